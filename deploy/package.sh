#!/usr/bin/env bash
# Makes Debian packages from a finished build: hpvmd, hpvm-client, hpvm-engine and, if kernel-flavoured SPIR-V is built in, hpvm-spirv.
#   deploy/package.sh [--build FOLDER] [--output FOLDER] [--fast]
#     --build      a finished build; build/release by default
#     --output     the folder for the packages; build/packages by default
#     --fast       weaker compression, in seconds
# The packages fit the Debian release on which they are made: they depend on the packages whose libraries the programs load. Needs dpkg-dev.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
output=build/packages
compression=xz
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build takes a folder}; shift ;;
    --output) output=${2:?--output takes a folder}; shift ;;
    --fast) compression=gzip ;;
    *) echo "usage: deploy/package.sh [--build FOLDER] [--output FOLDER] [--fast]" >&2; exit 2 ;;
  esac
  shift
done

fail() { echo "package: $1" >&2; exit 1; }
command -v dpkg-shlibdeps >/dev/null || fail "dpkg-shlibdeps is missing; the package dpkg-dev has it."
[ -e "$build/CPackConfig.cmake" ] || fail "$build/CPackConfig.cmake is missing; configure and build the release preset first."
for program in hpvmd hpvmctl hpvm-executor hpvm-compiler; do
  [ -x "$build/bin/$program" ] || fail "$build/bin/$program is missing; build it first."
done
if grep -q '^HPVMD_FAILPOINTS:BOOL=ON' "$build/CMakeCache.txt"; then
  echo "package: this build has failpoints, with which tests make it fail; for packages that others install, configure the build with -DHPVMD_FAILPOINTS=OFF." >&2
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/hpvmd-package-XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages" -D CPACK_DEBIAN_COMPRESSION_TYPE="$compression" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; fail "cpack failed."; }
mkdir -p "$output"
for file in "$work"/packages/*.deb; do
  mv "$file" "$output/"
  file=$output/$(basename "$file")
  echo "package: $file, $(($(stat -c %s "$file") / 1024)) KiB packed, $(dpkg-deb -f "$file" Installed-Size) KiB installed"
done
