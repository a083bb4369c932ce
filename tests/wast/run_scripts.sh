#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Converts every script of a folder with wast2json and runs them all.
#   run_scripts.sh HPVM_WAST ENGINE FOLDER
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: run_scripts.sh HPVM_WAST ENGINE FOLDER" >&2; exit 2; }
tool=$1 engine=$2 folder=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

shopt -s nullglob
scripts=("$folder"/*.wast)
[ ${#scripts[@]} -gt 0 ] || { echo "run_scripts.sh: There is no script in \"$folder\"." >&2; exit 1; }
cd "$folder"
for script in "${scripts[@]}"; do
  name=$(basename "$script" .wast)
  wast2json --enable-threads --enable-memory64 "$name.wast" -o "$work/$name.json"
done
"$tool" --engine "$engine" "$work"/*.json
