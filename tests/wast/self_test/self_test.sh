#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hpvm-wast must fail on wrong assertions, wrong files and wrong command lines.
#   self_test.sh HPVM_WAST
set -euo pipefail
tool=$1
folder=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0

# expect STATUS TEXT ARGUMENTS...: the tool exits with STATUS and prints TEXT.
expect() {
  local status=$1 text=$2 came=0
  shift 2
  "$tool" "$@" >"$work/out" 2>&1 || came=$?
  if [ "$came" -ne "$status" ] || ! grep -qF -- "$text" "$work/out"; then
    echo "hpvm-wast $*: expected exit code $status and \"$text\"; came exit code $came and:"
    cat "$work/out"
    faults=$((faults + 1))
  fi
}

cd "$folder"
wast2json wrong.wast -o "$work/wrong.json"
# All commands except the first module are wrong.
commands=$(grep -c '"type": "\(module\|action\|assert\)' "$work/wrong.json")
for engine in interp cpu; do
  expect 1 "1 passed, $((commands - 1)) failed" --engine "$engine" "$work/wrong.json"
  expect 1 'wrong.wast:19: assert_return: "one": expected i32 2 (0x00000002); came i32 1 (0x00000001).' \
    --engine "$engine" "$work/wrong.json"
done

write() { printf '%s\n' "$2" >"$work/$1.json"; }
script() { write "$1" "{\"source_filename\": \"$1.wast\", \"commands\": [$2]}"; }
write not_json 'hello'
write not_script '{"a": 1}'
script empty ''
script no_line '{"type": "module"}'
script exception '{"type": "assert_exception", "line": 3, "action": {"type": "invoke", "field": "f", "args": []}}'
script no_module '{"type": "module", "line": 1, "filename": "missing.wasm"}'
script bad_lane '{"type": "assert_return", "line": 1, "action": {"type": "invoke", "field": "f", "args":
  [{"type": "v128", "lane_type": "i8", "value": ["1"]}]}, "expected": []}'
script bad_value '{"type": "assert_return", "line": 1, "action": {"type": "invoke", "field": "f", "args":
  [{"type": "i32", "value": "4294967296"}]}, "expected": []}'
script bad_type '{"type": "assert_return", "line": 1, "action": {"type": "invoke", "field": "f", "args":
  [{"type": "anyref", "value": "null"}]}, "expected": []}'
script text_only '{"type": "assert_malformed", "line": 1, "filename": "a.wat", "text": "", "module_type": "text"}'
expect 1 'is not a script that wast2json wrote.' "$work/not_json.json"
expect 1 'is not a script that wast2json wrote.' "$work/not_script.json"
expect 1 'holds no commands.' "$work/empty.json"
expect 1 'no_line.wast:?: A command has no line.' "$work/no_line.json"
expect 1 'exception.wast:3: The command "assert_exception" is not supported.' "$work/exception.json"
expect 1 '0 passed, 1 failed' "$work/no_module.json"
expect 1 'A v128 has 1 lanes of type "i8".' "$work/bad_lane.json"
expect 1 '"4294967296" is no value of type i32.' "$work/bad_value.json"
expect 1 'Values of type "anyref" are not supported.' "$work/bad_type.json"
expect 0 '1 skipped (text format)' "$work/text_only.json"
expect 1 '0 passed, 2 failed' "$work/empty.json" "$work/not_json.json"
expect 2 'usage: hpvm-wast [--engine interp|cpu] [--verbose] FILE.json...'
expect 2 '--fast' --fast "$work/wrong.json"
expect 2 'gpu' --engine gpu "$work/wrong.json"
expect 2 'missing.json' "$work/missing.json"
expect 0 '--engine' --help
exit $((faults != 0))
