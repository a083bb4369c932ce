#!/usr/bin/env bash
# Installs what is missing, builds release, and runs every test through ctest; then a short subset under AddressSanitizer and
# UndefinedBehaviorSanitizer, and the fuzzers for a few seconds each from their seed corpora.
#   tests/run.sh [--fast] [--long]
#     --fast   release tests only
#     --long   also the whole suite under the dev preset, ThreadSanitizer, the clang build, and longer fuzzing
set -euo pipefail
cd "$(dirname "$0")/.."

fast=0 long=0
for argument in "$@"; do
  case "$argument" in
    --fast) fast=1 ;;
    --long) long=1 ;;
    *) echo "usage: tests/run.sh [--fast] [--long]" >&2; exit 2 ;;
  esac
done

step() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; }
build() { # preset [targets...]
  local preset=$1; shift
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || { cat "build/$preset.configure.log"; exit 1; }
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build --preset "$preset" "${targets[@]}" >"build/$preset.build.log" 2>&1 ||
    { tail -n 60 "build/$preset.build.log"; exit 1; }
}

mkdir -p build
step "Installing what is missing"
./deploy/setup.sh
step "Building release"
build release
step "Testing release"
ctest --preset release --no-tests=error | tee build/release.ctest.log
passed=$(grep -c '   Passed ' build/release.ctest.log)
if [ "$fast" -eq 0 ]; then
  step "A subset under AddressSanitizer and UndefinedBehaviorSanitizer"
  subset=(base_test graph_test ir_golden_test ir_memory_test ir_verify_test ir_text_test wasm_front_test
    wasm_golden_test cpu_pool_test null_device_test fair_share_test residency_test engine_test server_core_test)
  build dev "${subset[@]}"
  ctest --preset dev -R "^($(IFS='|'; echo "${subset[*]}"))\$" --no-tests=error
  passed=$((passed + ${#subset[@]}))
  step "Fuzzing briefly"
  build fuzz fuzzers
  ctest --preset fuzz -L fuzz --no-tests=error
  passed=$((passed + $(ctest --preset fuzz -L fuzz -N | sed -n 's/^Total Tests: //p')))
fi
if [ "$long" -eq 1 ]; then
  step "Everything under AddressSanitizer and UndefinedBehaviorSanitizer"
  build dev
  ctest --preset dev
  step "ThreadSanitizer"
  build tsan
  ctest --preset tsan
  step "clang 22, warnings as errors"
  build clang
fi
printf '\n%s passed, 0 failed\n' "$passed"
