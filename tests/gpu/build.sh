#!/usr/bin/env bash
# Builds tenants.wasm; needed only after a change of tenants.c.
set -euo pipefail
cd "$(dirname "$0")"
"${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -I../../client/kernel \
  -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o tenants.wasm tenants.c
