#!/usr/bin/env bash
# Installs missing packages, builds release, and runs every test through ctest; then, from one more build, a short subset under
# AddressSanitizer and UndefinedBehaviorSanitizer, and the fuzzers for a few seconds each from their seed corpora.
#   tests/run.sh [--fast] [--long] [--reliability] [--repeat] [--compiler]
#     --fast          release tests only
#     --long          also the whole suite under the dev preset, ThreadSanitizer, the clang and gcc builds, and longer fuzzing
#     --reliability   also the long tests of jobs, about three hours on two cores: 100,000 simulated worlds, every fault of the
#                     store's script, each seeded bug caught, 500 faults of a cluster, 1,000 kills, 100 drains, 1,000 reloads, half an hour of chaos; logs go to
#                     tests/sim/logs and tests/chaos/logs
#     --repeat        also every fast test 50 times, and 50 times beside a load of eight processes: several hours on two cores; the log
#                     goes to tests/repeat/logs
#     --compiler      also the long tests of the compiler: each seeded bug caught, in a separate build
set -euo pipefail
cd "$(dirname "$0")/.."

fast=0 long=0 reliability=0 repeat=0 compiler=0
for argument in "$@"; do
  case "$argument" in
    --fast) fast=1 ;;
    --long) long=1 ;;
    --reliability) reliability=1 ;;
    --repeat) repeat=1 ;;
    --compiler) compiler=1 ;;
    *) echo "usage: tests/run.sh [--fast] [--long] [--reliability] [--repeat] [--compiler]" >&2; exit 2 ;;
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
step "Installing the packages that are missing"
./deploy/setup.sh --tests
step "Building release"
build release
step "Testing release"
# Tests run in parallel, two more than there are processors because many tests wait. Tests that start daemons use all processors themselves,
# so that one runs per processor. Tests that judge by time run alone.
daemons='^(e2e|bench)' alone='^(chaos|lab)'
good=1
ctest --preset release -E "$daemons|$alone" --parallel $(($(nproc) + 2)) --no-tests=error | tee build/release.ctest.log || good=0
ctest --preset release -R "$daemons" --parallel "$(nproc)" --no-tests=error | tee -a build/release.ctest.log || good=0
ctest --preset release -R "$alone" --no-tests=error | tee -a build/release.ctest.log || good=0
if [ "$good" -eq 0 ]; then
  step "The output of the tests that failed, once more"  # Printed here, so that a truncated log contains it.
  awk '/ Test +#[0-9]+: .*(Passed|\*\*\*)/ { failed = /\*\*\*/; lines = 0 } failed && lines++ < 150' build/release.ctest.log
  exit 1
fi
passed=$(grep -c '   Passed ' build/release.ctest.log)
if [ "$fast" -eq 0 ]; then
  step "A subset under AddressSanitizer and UndefinedBehaviorSanitizer"
  subset=(base_test graph_test ir_bounds_test ir_golden_test ir_memory_test ir_verify_test ir_text_test find_bounds_test wasm_front_test
    wasm_golden_test cpu_pool_test null_device_test fair_share_test residency_test engine_test server_core_test cluster_test
    hosts_test)
  build fuzz "${subset[@]}" fuzzers
  ctest --preset fuzz -R "^($(IFS='|'; echo "${subset[*]}"))\$" --parallel "$(nproc)" --no-tests=error
  passed=$((passed + ${#subset[@]}))
  step "Fuzzing briefly"
  ctest --preset fuzz -L fuzz --parallel "$(nproc)" --no-tests=error
  passed=$((passed + $(ctest --preset fuzz -L fuzz -N | sed -n 's/^Total Tests: //p')))
fi
if [ "$long" -eq 1 ]; then
  step "Everything under AddressSanitizer and UndefinedBehaviorSanitizer"
  build dev
  ctest --preset dev
  step "ThreadSanitizer"
  build tsan
  ctest --preset tsan
  step "clang 22 and GCC, warnings as errors"
  build clang
  build gcc
fi
if [ "$reliability" -eq 1 ]; then
  day=$(date +%Y-%m-%d)
  step "100,000 simulated worlds"
  build/release/bin/hpv-sim --seeds 1..100000 --jobs "$(nproc)" --log "tests/sim/logs/$day.log"
  step "20,000 worlds of hosts that share the store, and 500 faults around a real PostgreSQL"
  build/release/bin/hpv-sim --cluster --sqlite --seeds 0..19999 --jobs "$(nproc)" --log "tests/sim/logs/$day-cluster-sqlite.log"
  /usr/bin/python3 tests/cluster/faults.py build/release/bin --faults 500 --log "tests/cluster/logs/$day.log"
  /usr/bin/python3 tests/cluster/daemon_faults.py build/release/bin --faults 500 --log "tests/cluster/logs/$day-daemons.log"
  step "Every fault of the store's script"
  HPVMD_SWEEP=full ctest --preset release -R '^store_.*_test$' --no-tests=error --timeout 7200
  step "Seeded bugs"
  /usr/bin/python3 tests/mutants/patched.py build/system_mutants
  (cd build/system_mutants && mkdir -p build && build mutants hpv-sim hpv-schedsim)
  /usr/bin/python3 tests/sim/mutants.py build/system_mutants/build/mutants/bin/hpv-sim
  /usr/bin/python3 tests/schedsim/mutants.py build/system_mutants/build/mutants/bin/hpv-schedsim
  step "Kills, drains, reloads and half an hour of chaos"
  /usr/bin/python3 tests/chaos/chaos.py build/release/bin --kills 1000 --drains 100 --reloads 1000 --soak 30 --log "tests/chaos/logs/$day.log"
  step "The attack lab, long"
  /usr/bin/python3 tests/lab/lab.py build/release --full --log "tests/lab/logs/$day.log"
  step "Every call beside a neighbour, 50 times"
  /usr/bin/python3 tests/lab/lab.py build/release --settings matrix --every --times 50 --log "tests/lab/logs/$day-matrix.log"
fi
if [ "$repeat" -eq 1 ]; then
  step "Every fast test 50 times, and 50 times beside a load"
  /usr/bin/python3 tests/repeat/repeat.py build/release --log "tests/repeat/logs/$(date +%Y-%m-%d).log"
fi
if [ "$compiler" -eq 1 ]; then
  step "Every graph of the GPU corpus on both interfaces"
  /usr/bin/python3 tests/gpu/graphs/run.py build/release/bin --short
  step "Seeded bugs of the compiler"
  /usr/bin/python3 tests/mutants/mutants.py --build build/compiler_mutants --jobs "$(nproc)" --log tests/mutants/logs/mutants.log
fi
printf '\n%s passed, 0 failed\n' "$passed"
