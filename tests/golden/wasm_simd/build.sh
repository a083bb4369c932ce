#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernels of this folder, which also seed the fuzz target. The results are committed, so that the tests need
# no clang.
set -euo pipefail
cd "$(dirname "$0")"
for source in *.c; do
  "${CLANG:-clang-22}" --target=wasm32 -msimd128 -O2 -nostdlib -ffreestanding --no-wasm-opt -I../../../client/kernel \
    -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o "${source%.c}.wasm" "$source"
done
chmod -x -- *.wasm
for kernel in *.wasm; do
  install -m 644 -- "$kernel" "../../fuzz/wasm_front/simd_$kernel"
done
