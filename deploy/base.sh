#!/usr/bin/env bash
# Makes a minimal Debian 12 with these packages: a folder, or a tar archive if PLACE ends in .tar.
#   deploy/base.sh PLACE PACKAGE...
# The packages come from the Debian sources that this machine uses, without third-party sources; no image registry is needed. Needs root,
# and mmdebstrap, which `deploy/setup.sh --tests` installs.
set -euo pipefail
place=${1:?"usage: deploy/base.sh PLACE PACKAGE..."}
shift
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  if [ -s "$file" ] && grep -q '^[^#]*/debian' "$file"; then
    sources+=("$file")
  fi
done
mmdebstrap --variant=minbase --include="$(IFS=,; echo "$*")" --dpkgopt='path-exclude=/usr/share/{doc,man,locale}/*' --dpkgopt=force-unsafe-io \
  bookworm "$place" "${sources[@]}"
