#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh [FOLDER]: builds the modules from the sources beside this script into FOLDER, if their compilers are
# installed; without FOLDER, the committed modules. They have the compilers' default output: clang 22 runs the
# wasm-opt that it finds unless told not to; the "_opt" modules are built with it (Debian's binaryen 108, which cannot read
# 64-bit tables). AssemblyScript comes from `npm install assemblyscript`; ASC is the path of its asc.
set -e
cd "$(dirname "$0")"
out=${1:-.}
common="-O2 -nostdlib -ffreestanding -I../../.. -Wl,--no-entry -Wl,--export-dynamic"
cxx="$common -fno-exceptions -fno-rtti"
threads="-matomics -mbulk-memory"
if command -v clang-22 > /dev/null && command -v wasm-ld-22 > /dev/null; then
  clang++-22 --target=wasm32 $cxx --no-wasm-opt -o "$out/curves_cc.wasm" curves.cc
  clang++-22 --target=wasm64 $cxx --no-wasm-opt -o "$out/curves_cc64.wasm" curves.cc
  clang-22 --target=wasm32 $common -msimd128 --no-wasm-opt -o "$out/saxpy_simd.wasm" saxpy.c
  clang-22 --target=wasm32 $common $threads -Wl,--shared-memory,--max-memory=131072 --no-wasm-opt \
    -o "$out/count_threads.wasm" count.c
  clang-22 --target=wasm64 $common $threads --no-wasm-opt -o "$out/count_atomics64.wasm" count.c
  if command -v wasm-opt > /dev/null; then
    clang++-22 --target=wasm32 $cxx -o "$out/curves_cc_opt.wasm" curves.cc
    clang-22 --target=wasm32 $common -msimd128 -o "$out/saxpy_simd_opt.wasm" saxpy.c
  fi
fi
rustc=${RUSTC:-/usr/bin/rustc}
if [ -d "$("$rustc" --print sysroot 2> /dev/null)/lib/rustlib/wasm32-unknown-unknown" ]; then
  "$rustc" --target wasm32-unknown-unknown --crate-type cdylib -O -o "$out/curves_rust.wasm" curves.rs
fi
if [ -n "$ASC" ]; then
  "$ASC" curves.ts --optimize --outFile "$out/curves_as.wasm"
fi
chmod 644 "$out"/*.wasm
