#!/usr/bin/env bash
# Makes a wheel of the Python client in FOLDER (default: build/wheel), without the network.
#   client/python/wheel.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
into=${1:-$here/../../build/wheel}
python=${PYTHON:-/usr/bin/python3}
mkdir -p "$into"
into=$(cd "$into" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/package"
cp -r "$here/pyproject.toml" "$here/README.md" "$here/hpvm" "$work/package/"
find "$work/package" -name __pycache__ -prune -exec rm -rf {} +
rm -rf "$work/package/hpvm/v1"
"$here/stubs.sh" "$work/package"
(cd "$work/package" && "$python" -m pip wheel --quiet --no-build-isolation --no-deps --no-index --wheel-dir "$into" .)
ls "$into"/hpvm-*.whl
