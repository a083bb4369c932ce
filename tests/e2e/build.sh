#!/usr/bin/env bash
# Builds kernels.wasm, runaways.wasm, debug.wasm and iterate.wasm; needed only after a change of their sources.
set -euo pipefail
cd "$(dirname "$0")"
"${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -I../../client/kernel \
  -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o kernels.wasm kernels.c
"${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -mbulk-memory -I../../client/kernel \
  -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o runaways.wasm runaways.c
"${CLANG:-clang-22}" --target=wasm32 -O2 -g -fdebug-prefix-map="$PWD=." -nostdlib -ffreestanding --no-wasm-opt \
  -I../../client/kernel -Wl,--no-entry -Wl,--export-dynamic -o debug.wasm debug_kernels.c
"${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -I../../client/kernel \
  -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o iterate.wasm iterate.c
