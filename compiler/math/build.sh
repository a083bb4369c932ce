#!/usr/bin/env bash
# Links math.wasm: musl's libm as Debian packages it in wasi-libc, behind the exports of functions.def, and the forms of
# fast.def and device.def. The result is committed, so that the bits of a kernel's results do not depend on who builds
# hpvmd; math_module_test links it again and compares.
#   compiler/math/build.sh [OUTPUT]     needs clang-22, lld-22 and wasi-libc; exits with 3 when one is missing
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
output="${1:-$here/math.wasm}"
library=/usr/lib/wasm32-wasi/libc.a
for need in "$(command -v clang-22 || echo /clang-22)" "$(command -v wasm-ld-22 || echo /wasm-ld-22)" "$library"; do
  if [ ! -e "$need" ]; then
    echo "build.sh: $need is missing; install clang-22, lld-22 and wasi-libc" >&2
    exit 3
  fi
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$here"
# No builtins: clang would make calls of one function into calls of another. MVP: what musl's objects are made of. What
# the objects define comes before the library's.
for source in math reduce trig exp_log; do
  clang-22 --target=wasm32-wasip1 -mcpu=mvp -O2 -std=c11 -Wall -Wextra -fno-builtin \
    -mllvm -disable-cgp-select2branch -I ../.. -isystem /usr/include/wasm32-wasi -c "$source.c" -o "$work/$source.o"
done
# Conversions that saturate, so that none is a branch; no tables where selects will do.
clang-22 --target=wasm32-wasip1 -mcpu=mvp -mnontrapping-fptoint -O2 -std=c11 -Wall -Wextra -fno-builtin \
  -fno-math-errno -fno-jump-tables -ffp-contract=off -mllvm -disable-cgp-select2branch \
  -I ../.. -isystem /usr/include/wasm32-wasi -c fast.c -o "$work/fast.o"
# The stack lies below the tables, so that running out of it faults. --export of the constructors keeps the linker from
# wrapping every function in a call of them; there are none.
wasm-ld-22 --no-entry --export=__wasm_call_ctors --no-export-dynamic -z stack-size=1024 --stack-first --gc-sections \
  --strip-debug "$work/math.o" "$work/reduce.o" "$work/trig.o" "$work/exp_log.o" "$work/fast.o" "$library" -o "$work/math.wasm"
cp "$work/math.wasm" "$output"
