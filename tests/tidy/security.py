#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every threat in docs/SECURITY.md names tests, and that these tests exist and run.

    security.py ROOT

The last cell of a row has paths, some with names in parentheses. A path is a file that CMake builds or runs, a module of
such a file, or a script for machines with a GPU that docs/GPU.md describes; a name is a test or a function in the file,
or a word of its tables.
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| (T\w+) \|")
TEST = re.compile(r"`([^`]+)`(?: \(([^)]*)\))?")


def registered(root, path):
    """Returns true if ctest, or the build of a fuzzer, uses the file."""
    if named_by_cmake(root, path):
        return True
    if path.suffix != ".py":
        return False
    if path.is_relative_to("tests/gpu") and path.name in (root / "docs/GPU.md").read_text(encoding="utf-8"):
        return True
    beside = [other for other in (root / path.parent).glob("*.py") if other.name != path.name]
    return any(re.search(rf"\b{path.stem}\b", other.read_text(encoding="utf-8")) and named_by_cmake(root, other.relative_to(root))
               for other in beside)


def named_by_cmake(root, path):
    listings = [listing for folder in path.parents for pattern in ("CMakeLists.txt", "*.cmake") for listing in (root / folder).glob(pattern)]
    return any(path.name in listing.read_text(encoding="utf-8") for listing in listings)


def faults_of(root, number, threat, cell):
    tests = TEST.findall(cell)
    if not tests:
        yield f"{number}: {threat} names no test."
    for name, words in tests:
        path = pathlib.PurePosixPath(name)
        if not (root / path).is_file():
            yield f"{number}: {threat}: `{name}` does not exist."
            continue
        if not registered(root, path):
            yield f"{number}: {threat}: CMake does not know `{name}`."
        text = (root / path).read_text(encoding="utf-8")
        for word in filter(None, (one.strip() for one in words.split(","))):
            if not re.search(rf"\b{re.escape(word)}\b", text):
                yield f"{number}: {threat}: `{name}` has no {word}."


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    rows, faults = 0, []
    for number, line in enumerate((root / "docs/SECURITY.md").read_text(encoding="utf-8").split("\n"), 1):
        match = ROW.match(line)
        if match:
            rows += 1
            faults += faults_of(root, number, match.group(1), line.rstrip("| ").split(" | ")[-1])
    if rows < 20:
        faults.append(f"docs/SECURITY.md has {rows} rows of threats; its table was not understood.")
    for fault in faults:
        print(f"docs/SECURITY.md:{fault}")
    print(f"security: {rows} threats, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
