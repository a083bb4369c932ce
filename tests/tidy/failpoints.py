#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/FAILPOINTS.md lists each failpoint of the sources once. Each fault is a line; the script exits with 1 if there is any.

    failpoints.py ROOT
"""

import collections
import pathlib
import re
import sys

PLACE = re.compile(r'HPVMD_FAILPOINT\("([^"]*)"\)')
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+){1,2}")
FOLDERS = ("base", "sandbox", "builder", "proto", "supervisor", "server", "executor", "engine", "client")
PLACES_MIN = 41


def places(root):
    found = collections.defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            is_test = path.name.endswith(("_test.cc", "_fuzz.cc", "_benchmark.cc")) or "testing" in path.parts
            if path.suffix not in (".cc", ".h") or is_test or path.name == "failpoint.h":
                continue
            for match in PLACE.finditer(path.read_text(encoding="utf-8")):
                found[match.group(1)].append(str(path.relative_to(root)))
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    found = places(root)
    listed = ROW.findall((root / "docs/FAILPOINTS.md").read_text(encoding="utf-8"))
    faults = []
    for name, paths in sorted(found.items()):
        if not NAME.fullmatch(name):
            faults.append(f'{paths[0]}: "{name}" is not "part.what" or "part.what.when".')
        if len(paths) > 1:
            faults.append(f'"{name}" stands in the sources {len(paths)} times: {", ".join(paths)}.')
        if name not in listed:
            faults.append(f'{paths[0]}: "{name}" is not in docs/FAILPOINTS.md.')
    for name, count in sorted(collections.Counter(listed).items()):
        if count > 1:
            faults.append(f'docs/FAILPOINTS.md: "{name}" is listed {count} times.')
        if name not in found:
            faults.append(f'docs/FAILPOINTS.md: "{name}" is not in the sources.')
    if len(found) < PLACES_MIN:
        faults.append(f"There are {len(found)} failpoints; at least {PLACES_MIN} are wanted.")
    print("\n".join(faults + [f"failpoints: {len(found)} places, {len(faults)} faults"]))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
