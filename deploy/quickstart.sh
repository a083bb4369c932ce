#!/usr/bin/env bash
# Goes from a fresh Debian 12 to two graphs run by a private hpvmd: installs, builds, runs examples/matmul and
# examples/edge-detection, checks both results, shows the device and the phases of each run, and stops the daemon.
#   deploy/quickstart.sh [--keep FOLDER]     --keep writes the pictures and arrays there instead of a temporary folder
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}

keep=
case "${1:-}" in
  "") ;;
  --keep) keep=${2:?--keep takes a folder} ;;
  *) echo "usage: deploy/quickstart.sh [--keep FOLDER]" >&2; exit 2 ;;
esac

step() { printf '\n== %s\n' "$1"; }

step "Installing the packages that are missing"
./deploy/setup.sh
step "Building"
mkdir -p build
# Builds only the programs, so that the packages for tests need not be installed.
cmake --preset release -DHPVMD_TESTS=OFF >build/quickstart.configure.log 2>&1 || { cat build/quickstart.configure.log; exit 1; }
cmake --build --preset release --target hpvmd hpvm-executor hpvm-compiler hpvmctl python_package >build/quickstart.build.log 2>&1 ||
  { tail -n 50 build/quickstart.build.log; exit 1; }
echo "built: $(ls build/release/bin | tr '\n' ' ')"

work=$(mktemp -d "${TMPDIR:-/tmp}/hpvmd-quickstart-XXXXXX")
daemon=
finish() {
  [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon"; } || true
  rm -rf "$work"
}
trap finish EXIT
data=${keep:-$work/data}
mkdir -p "$data"
bin=$PWD/build/release/bin
export HPVM_SERVER=unix:$work/hpvmd.sock

step "Starting a private hpvmd on $HPVM_SERVER"
"$bin/hpvmd" --dev --listen "$HPVM_SERVER" --state "$work/state" >"$work/hpvmd.log" 2>&1 &
daemon=$!
"$bin/hpvmctl" devices --connect-timeout 30 || { cat "$work/hpvmd.log"; exit 1; }

step "examples/matmul: two real matrices"
examples=examples/matmul
"$python" $examples/check.py make "$data/A.npy" "$data/B.npy"
"$bin/hpvmctl" submit $examples/matmul.json --input A="$data/A.npy" --input B="$data/B.npy" --output C="$data/C.npy"
"$python" $examples/check.py verify "$data/A.npy" "$data/B.npy" "$data/C.npy"

step "examples/edge-detection: the edges of a photograph"
examples=examples/edge-detection
"$bin/hpvmctl" submit $examples/scene.json --symbol w=1280 --symbol h=960 --output image="$data/scene.png"
"$bin/hpvmctl" submit $examples/edge-detection.json --input image="$data/scene.png" --output edges="$data/edges.png"
"$bin/hpvmctl" run $examples/edge-detection.json --input image="$data/scene.png" --output edges="$data/edges.npy" >/dev/null
"$bin/hpvmctl" run $examples/scene.json --symbol w=1280 --symbol h=960 --output image="$data/scene.npy" >/dev/null
"$python" $examples/check.py "$data/scene.npy" "$data/edges.npy"

step "Jobs so far"
"$bin/hpvmctl" jobs

step "Stopping"
kill "$daemon"
wait "$daemon"
daemon=
echo "hpvmd ended cleanly; both results are right."
[ -z "$keep" ] || echo "Look at $keep/scene.png and $keep/edges.png."
