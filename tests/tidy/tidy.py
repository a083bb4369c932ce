#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the tree itself: include edges, file form, documents. Each fault is a line "path:line: what"; exit 1 if there is any.

    tidy.py ROOT
"""

import pathlib
import re
import subprocess
import sys

import structure

# Which folders a folder may include, besides itself. design: docs/ARCHITECTURE.md, "Folders".
COMPILER_FACE = {"compiler/api", "compiler/ir"}
EDGES = {
    "base": set(),
    "sandbox": {"base"},
    "builder": {"base", "proto"},
    "graph": {"base"},
    "compiler": {"base", "graph"},
    "compiler/api": {"base", "builder", "proto"},
    "compiler/driver": {"base", "graph", "sandbox", "builder", "proto"},
    "backends": {"base"} | COMPILER_FACE,
    "scheduler": {"base", "graph"},
    "engine": {"base", "graph", "scheduler", "backends"} | COMPILER_FACE,
    "proto": {"base"},
    "supervisor": {"base", "proto"},
    "executor": {"base", "sandbox", "builder", "graph", "engine", "proto", "backends"} | COMPILER_FACE,
    "server": {"base", "scheduler", "proto", "supervisor"},
    "client": {"base", "proto"},
    # docs/decisions/0004; the chain of the audit, which links base alone, is checked offline by the same code.
    "client/ctl": {"base", "proto", "supervisor", "graph", "server/audit/audit_chain.h"} | COMPILER_FACE,
    "bench": None,  # Benchmarks and tests may reach everything.
    "tests": None,
    "examples": {"client"},
}
# Tests beside the code may also use what they compare with.
TEST_SUFFIXES = ("_test.cc", "_fuzz.cc", "_benchmark.cc")

LINE_MAX = 120
FOLDER_FILES_MAX = 40  # Without tests.
README_LINES_MAX = 30
README_FOR_USERS = {"client/kernel"}  # A guide, installed beside the header.
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
# A message of another process is Unchecked (base/unchecked.h): a check alone opens it, and hands out what it has checked.
PARSE = re.compile(r"\b(?:Merge|Parse|ParsePartial)From\w+\(")
UNCHECKED_PEERS = ("supervisor", "executor", "builder", "compiler")
DOC_PATH = re.compile(r"`((?:base|sandbox|builder|proto|supervisor|graph|compiler|scheduler|backends|engine|executor|server|client|schemas|deploy|tests|"
                      r"bench|examples|docs)/[A-Za-z0-9_./-]+)`")


def tracked(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                             check=True)
    return [pathlib.PurePosixPath(line) for line in listing.stdout.splitlines() if (root / line).is_file()]


def may_include(path, target):
    if path.parts[0] == target.split("/")[0]:
        return True
    allowed = EDGES.get("/".join(path.parts[:2]), EDGES[path.parts[0]])
    return allowed is None or any(target == a or target.startswith(a + "/") for a in allowed)


def check_source(path, lines, fault):
    folder = path.parts[0]
    is_test = path.name.endswith(TEST_SUFFIXES) or "testing" in path.parts
    if not lines or "SPDX-License-Identifier" not in lines[0]:
        fault(1, "The first line is not the SPDX line.")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_MAX:
            fault(number, f"The line has {len(line)} characters; the limit is {LINE_MAX}.")
        if line.rstrip() != line:
            fault(number, "The line ends in white space.")
        if TODO.search(line):
            fault(number, "A reminder without an issue number.")
        if folder in UNCHECKED_PEERS and not is_test and PARSE.search(line):
            fault(number, "A message is parsed without ParseUnchecked.")
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        top = target.split("/")[0]
        if top in EDGES and not is_test and not may_include(path, target):
            fault(number, f'{folder}/ may not include "{target}".')
        # Kernels are compiled as OpenCL C too, from one folder.
        if "/" not in target and not target.endswith(".pb.h") and path.parts[:2] not in (("bench", "cpu"), ("bench", "gpu")):
            fault(number, f'"{target}" is a bare include; name it from the root.')
    if path.suffix == ".h" and folder not in ("examples",) and "kernel" not in path.parts:
        guard = "HPVMD_" + re.sub(r"[^A-Za-z0-9]", "_", str(path)).upper() + "_"
        if f"#ifndef {guard}" not in lines:
            fault(1, f"The header guard is not {guard}.")


def check_folders(root, faults):
    """No folder holds more than a head holds, and none includes another that includes it back."""
    names = structure.production(root)
    for folder, count in structure.files_by_folder(names).items():
        if count > FOLDER_FILES_MAX:
            faults.append(f"{folder}:1: The folder has {count} files; the limit is {FOLDER_FILES_MAX}.")
        readme = root / folder / "README.md"
        if not readme.is_file():
            faults.append(f"{folder}:1: The folder has no README.md that says what lives here and where to begin.")
        elif folder not in README_FOR_USERS and len(readme.read_text().splitlines()) > README_LINES_MAX:
            faults.append(f"{folder}/README.md:1: It has more than {README_LINES_MAX} lines.")
    texts = {name: structure.without_comments((root / name).read_text()) for name in names}
    for group in structure.cycles(structure.folder_edges(names, texts)):
        faults.append(f"{group[0]}:1: These folders include each other: {', '.join(group)}.")


def check_document(root, lines, fault):
    for number, line in enumerate(lines, 1):
        for name in DOC_PATH.findall(line):
            bare = name.rstrip("/.")
            if not (root / bare).exists() and not list(root.glob(bare + ".*")):
                fault(number, f"`{name}` does not exist.")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    faults = []
    for path in tracked(root):
        text_kind = path.suffix in (".cc", ".h")
        if path.suffix not in (".cc", ".h", ".md"):
            continue
        lines = (root / path).read_text(encoding="utf-8").split("\n")

        def fault(number, what, path=path):
            faults.append(f"{path}:{number}: {what}")

        if text_kind and path.parts[0] in EDGES:
            check_source(path, lines[:-1] if lines[-1] == "" else lines, fault)
        elif path.suffix == ".md" and path.name != "CHANGELOG.md":
            check_document(root, lines, fault)
    check_folders(root, faults)
    for line in faults:
        print(line)
    print(f"tidy: {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
