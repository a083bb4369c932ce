#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the scripts of a checkout of WebAssembly's specification tests on both engines and prints the totals.
#   HPVM_WASM_TESTSUITE=FOLDER run_suite.sh HPVM_WAST
# wast2json converts every .wast below the folder; scripts that it cannot read (later proposals) are listed. Exit code
# 77 when the variable is not set, which ctest shows as skipped.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: HPVM_WASM_TESTSUITE=FOLDER run_suite.sh HPVM_WAST" >&2; exit 2; }
[ -n "${HPVM_WASM_TESTSUITE:-}" ] || { echo "HPVM_WASM_TESTSUITE is not set."; exit 77; }
tool=$1
suite=$(cd "$HPVM_WASM_TESTSUITE" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

converted=0 refused=0
while IFS= read -r -d '' script; do
  name=${script#"$suite"/}
  flags=(--enable-threads)
  case $name in *memory64*) flags+=(--enable-memory64) ;; esac
  mkdir -p "$work/$(dirname "$name")"
  json="$work/${name%.wast}.json"
  if (cd "$(dirname "$script")" && wast2json "${flags[@]}" "$(basename "$script")" -o "$json") 2>"$work/errors"; then
    converted=$((converted + 1))
  else
    refused=$((refused + 1))
    rm -f "$json"
    echo "not converted: $name: $(head -n 1 "$work/errors")"
  fi
done < <(find "$suite" -name '*.wast' -print0 | sort -z)
[ "$converted" -gt 0 ] || { echo "No script below \"$suite\" could be converted." >&2; exit 1; }

status=0
for engine in interp cpu; do
  echo "== $engine: $converted scripts, $refused not converted"
  begin=$(date +%s)
  find "$work" -name '*.json' -print0 | sort -z | xargs -0 "$tool" --engine "$engine" >"$work/$engine.log" || status=1
  grep -v ': [0-9]* passed, [0-9]* failed$' "$work/$engine.log" || true
  echo "$(($(date +%s) - begin)) s"
done
exit "$status"
