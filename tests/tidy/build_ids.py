#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every program and library of a build has a GNU build id, by which caches of compiled code identify a build
(base/io/build_id.h).

    build_ids.py BUILD_FOLDER
"""

import pathlib
import re
import subprocess
import sys


def main():
    folder = pathlib.Path(sys.argv[1]) / "bin"
    faults, seen = [], 0
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        seen += 1
        notes = subprocess.run(["readelf", "-n", str(path)], capture_output=True, text=True, check=True).stdout
        if not re.search(r"Build ID: [0-9a-f]{40}\b", notes):
            faults.append(f"{path}: no build id of 20 bytes")
    if seen == 0:
        faults.append(f"{folder}: no programs")
    for fault in faults:
        print(fault)
    print(f"build_ids: {len(faults)} faults in {seen} files")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
