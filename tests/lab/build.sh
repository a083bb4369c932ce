#!/usr/bin/env bash
# Builds kernels.wasm; needed only after a change of kernels.c.
set -euo pipefail
cd "$(dirname "$0")"
"${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -I../../client/kernel \
  -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o kernels.wasm kernels.c
wat2wasm --no-check -o far.wasm far.wat
