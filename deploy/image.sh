#!/usr/bin/env bash
# Builds the container image localhost/hpvmd from build/release and tries it: a container serves the examples as an unprivileged user.
#   deploy/image.sh [--test]     --test also runs a container and a graph in it
# Needs root and the packages of `deploy/setup.sh --containers`. Debian's packages come from the sources that this machine uses.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/release/bin
programs=(hpvmd hpvm-executor hpvm-compiler hpvmctl)
podman=(podman)
# runc also works on machines where crun cannot manage cgroups.
command -v runc >/dev/null && podman=(podman --runtime "$(command -v runc)")

for program in "${programs[@]}"; do
  [ -x "$bin/$program" ] || { echo "image: $bin/$program is missing; build the release preset first." >&2; exit 1; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/hpvmd-image-XXXXXX")
trap 'rm -rf "$work"' EXIT

# Packages that own the libraries that the programs load.
mapfile -t libraries < <(for program in "${programs[@]}"; do ldd "$bin/$program"; done | awk '$3 ~ /^\// {print $3}' | sort -u)
mapfile -t packages < <(for library in "${libraries[@]}"; do
  dpkg-query -S "$library" "$(readlink -f "$library")" "${library#/usr}" 2>/dev/null | sed 's/:.*//' | grep -v -- '-dev$' || true
done | sort -u)
echo "image: base with ${#packages[@]} packages: ${packages[*]}"
if ! "${podman[@]}" image exists localhost/hpvmd-base; then
  deploy/base.sh "$work/base.tar" "${packages[@]}"
  "${podman[@]}" import "$work/base.tar" localhost/hpvmd-base >/dev/null
fi

mkdir -p "$work/context/bin"
for program in "${programs[@]}"; do
  strip -o "$work/context/bin/$program" "$bin/$program"
done
cp deploy/hpvmd.toml client/kernel/hpvm.h "$work/context/"
cp -r examples "$work/context/examples"
"${podman[@]}" build --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 -q -t localhost/hpvmd -f deploy/Containerfile "$work/context"
echo "image: localhost/hpvmd, $("${podman[@]}" image inspect --format '{{.Size}}' localhost/hpvmd) bytes"
[ "${1:-}" = --test ] || exit 0

container=$("${podman[@]}" run --rm -d --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 localhost/hpvmd)
trap '"${podman[@]}" kill "$container" >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
inside=("${podman[@]}" exec "$container")
"${inside[@]}" hpvmctl --connect-timeout 30 devices || { "${podman[@]}" logs "$container"; exit 1; }
"${inside[@]}" hpvmctl submit /usr/share/hpvm/examples/mandelbrot/mandelbrot.json --symbol w=640 --symbol h=360 -O image=/tmp/m.png
"${inside[@]}" hpvmctl submit /usr/share/hpvm/examples/edge-detection/scene.json --symbol w=640 --symbol h=480 -O image=/tmp/s.png
"${inside[@]}" hpvmctl submit /usr/share/hpvm/examples/edge-detection/edge-detection.json -i image=/tmp/s.png -O edges=/tmp/e.png
user=$("${inside[@]}" id -u)
[ "$user" != 0 ] || { echo "image: the container runs as root." >&2; exit 1; }
"${podman[@]}" stop -t 20 "$container" >/dev/null
echo "image: served the examples as user $user."
