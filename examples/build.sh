#!/usr/bin/env bash
# Builds every example's .wasm from its C source. The results are committed, so this is needed only after a change.
set -euo pipefail
cd "$(dirname "$0")"
clang=${CLANG:-clang-22}
for source in */*.c; do
  "$clang" --target=wasm32 -O2 -nostdlib -ffreestanding -fno-math-errno --no-wasm-opt -I../client/kernel \
    -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o "${source%.c}.wasm" "$source"
  echo "${source%.c}.wasm: $(stat -c %s "${source%.c}.wasm") bytes"
done
