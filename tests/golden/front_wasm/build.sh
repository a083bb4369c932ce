#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the kernels of this folder and the seeds of the fuzz target. The results are committed, so that the tests need neither clang nor
# wat2wasm and the expected IR does not move with the compiler's version.
set -euo pipefail
cd "$(dirname "$0")"
root=../../..
for source in *.c; do
  "${CLANG:-clang-22}" --target=wasm32 -O2 -nostdlib -ffreestanding --no-wasm-opt -I$root/client/kernel \
    -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o "${source%.c}.wasm" "$source"
done
chmod -x -- *.wasm
seeds=$root/tests/fuzz/wasm_front
mkdir -p $seeds
install -m 644 -- *.wasm $seeds/
for source in control/*.wat; do
  wat2wasm --enable-threads --enable-memory64 -o "$seeds/$(basename "${source%.wat}").wasm" "$source"
done
