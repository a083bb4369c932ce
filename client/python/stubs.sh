#!/usr/bin/env bash
# Writes the Python code that protoc generates from proto/hpvm/v1 to FOLDER/hpvm/v1 (default: beside this script).
#   client/python/stubs.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
proto=$here/../../proto
into=${1:-$here}
protos=("$proto"/hpvm/v1/*.proto)
services=(service admin operations)
mkdir -p "$into/hpvm/v1"
protoc -I "$proto" --python_out="$into" --pyi_out="$into" "${protos[@]}"
for service in "${services[@]}"; do
  protoc -I "$proto" --plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" --grpc_out="$into" "$proto/hpvm/v1/$service.proto"
done
