#!/usr/bin/env bash
# Builds tenants.wasm, canaries.wasm, groups.wasm and the shaders; needed only after a change of their sources.
set -euo pipefail
cd "$(dirname "$0")"
for name in tenants canaries groups; do
  "${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -I../../client/kernel \
    -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o "$name.wasm" "$name.c"
done
for name in canaries_fill canaries_scan; do
  glslangValidator -V --target-env vulkan1.1 --quiet -o "$name.spv" "$name.comp"
done
