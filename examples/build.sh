#!/usr/bin/env bash
# Builds every example's module from its source. The modules are committed, so the script is needed only after a change.
# It needs clang 22 for .c, glslangValidator (Debian's glslang-tools) for .comp, and for .rs Debian's rustc, whose std has wasm32.
set -euo pipefail
cd "$(dirname "$0")"
clang=${CLANG:-clang-22}
rustc=${RUSTC:-/usr/bin/rustc}
for source in */*.c; do
  "$clang" --target=wasm32 -O2 -nostdlib -ffreestanding -fno-math-errno --no-wasm-opt -I../client/kernel \
    -Wl,--no-entry -Wl,--export-dynamic -Wl,--strip-debug -o "${source%.c}.wasm" "$source"
  chmod 644 "${source%.c}.wasm"
  echo "${source%.c}.wasm: $(stat -c %s "${source%.c}.wasm") bytes"
done
for source in */*.comp; do
  if command -v glslangValidator >/dev/null; then
    glslangValidator --quiet -V --target-env vulkan1.2 -o "${source%.comp}.spv" "$source"
    echo "${source%.comp}.spv: $(stat -c %s "${source%.comp}.spv") bytes"
  else
    echo "${source%.comp}.spv: not built, there is no glslangValidator"
  fi
done
for source in */*.rs; do
  if [ -d "$("$rustc" --print sysroot 2>/dev/null)/lib/rustlib/wasm32-unknown-unknown" ]; then
    "$rustc" --target wasm32-unknown-unknown --crate-type cdylib -O -C strip=debuginfo -o "${source%.rs}.wasm" "$source"
    chmod 644 "${source%.rs}.wasm"
    echo "${source%.rs}.wasm: $(stat -c %s "${source%.rs}.wasm") bytes"
  else
    echo "${source%.rs}.wasm: not built, $rustc has no wasm32-unknown-unknown"
  fi
done
