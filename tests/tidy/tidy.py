#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the tree itself: include edges, file form, documents. Each fault is a line "path:line: what"; exits with 1 if there is any.

    tidy.py ROOT
"""

import pathlib
import re
import subprocess
import sys

import namespaces
import structure

# Folders with C++ whose tests may include anything, and which no other folder may include.
FREE = {"bench", "tests", "examples"}
# Tests beside the code may also use the code that they compare it with.
TEST_SUFFIXES = ("_test.cc", "_fuzz.cc", "_benchmark.cc")

LINE_MAX = 120
DOCUMENT_LINE_MAX = 160
# Tests read the rows of these documents: their cells are lists of folders, and of tests.
ROWS_READ_BY_TESTS = {"docs/ARCHITECTURE.md", "docs/SECURITY.md"}
# Golden kernels repeat each sentence of the specification, which is one line.
SENTENCES, SENTENCE = "docs/KERNELS.md", re.compile(r"- S\d+\. ")
# docs/reference generates the first three with its own limit; the last still has a line to be wrapped.
LINES_OF_ANY_LENGTH = {"docs/API.md", "docs/CONFIGURATION.md", "docs/GRAPHS.md", "examples/README.md"}
LINK_TARGET = re.compile(r"\]\([^()\s]+\)")
FOLDER_FILES_MAX = 40  # Does not count tests.
README_LINES_MAX = 30
README_FOR_USERS = {"client/kernel"}  # A guide, installed beside the header.
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
# A message of another process is Unchecked (base/unchecked.h): only a check opens it, and returns the checked message.
PARSE = re.compile(r"\b(?:Merge|Parse|ParsePartial)From\w+\(")
UNCHECKED_PEERS = ("supervisor", "executor", "builder", "compiler")
DOC_PATH = re.compile(r"`((?:base|sandbox|builder|proto|supervisor|graph|compiler|scheduler|backends|engine|executor|server|client|schemas|deploy|tests|"
                      r"bench|examples|docs)/[A-Za-z0-9_./-]+)`")


def tracked(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                             check=True)
    return [pathlib.PurePosixPath(line) for line in listing.stdout.splitlines() if (root / line).is_file()]


class Picture:
    """The folders of docs/ARCHITECTURE.md: the line of each folder in the picture, and its dependencies in the table."""

    ROW = re.compile(r"^\| `([a-z/]+)` \| .* \| ([^|]*) \|$")

    def __init__(self, root):
        self.root = root
        lines = (root / "docs/ARCHITECTURE.md").read_text(encoding="utf-8").split("\n")
        section = lines[lines.index("## Folders"):]
        fences = [number for number, line in enumerate(section) if line.startswith("```")]
        self.level = {name: -number for number, line in enumerate(section[fences[0] + 1:fences[1]]) for name in line.split()}
        end = next(number for number, line in enumerate(section) if number > 0 and line.startswith("## "))
        rows = filter(None, map(self.ROW.match, section[:end]))
        self.includes = {row.group(1): set(re.findall(r"[a-z/]+", row.group(2))) for row in rows}
        self.seen = {name: set() for name in self.includes}

    def folder_of(self, path):
        """Returns the longest of the folders that contains the path; None when there is none."""
        parts = path.split("/")[:-1]
        names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((name for name in names if name in self.includes), None)

    def check(self, path, target):
        """Returns the fault of an include; None when there is none."""
        target = structure.included(target, lambda name: (self.root / name).is_file())
        folder, other = self.folder_of(path), self.folder_of(target)
        if other is None or folder == other:
            return None
        self.seen[folder].add(other)
        return None if other in self.includes[folder] else f'{folder} may not include "{target}": docs/ARCHITECTURE.md has no such edge.'

    def faults(self):
        for folder in sorted(set(self.level) ^ set(self.includes)):
            yield f"{folder} stands in the picture or in the table, not in both."
        for folder, others in self.includes.items():
            for other in sorted(others - self.seen[folder]):
                yield f"{folder} is said to include {other}, and does not."
            for other in sorted(others & set(self.level)):
                if self.level[other] >= self.level.get(folder, 0):
                    yield f"{folder} includes {other}, which stands beside it or higher in the picture."


def check_source(path, lines, picture, fault):
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
        if folder not in FREE and not is_test:
            edge = picture.check(str(path), target)
            if edge is not None:
                fault(number, edge)
        if str(path).startswith(structure.PUBLIC_FOLDERS) and not target.startswith(("hpvm/", "absl/")):
            fault(number, f'A public header includes "{target}", which is not installed.')
        # These files are compiled as OpenCL C too, from one folder.
        if "/" not in target and not target.endswith(".pb.h") and path.parts[:2] not in (("bench", "cpu"), ("bench", "gpu")):
            fault(number, f'"{target}" is a bare include; name it from the root.')
    if folder not in FREE:
        for number, what in namespaces.faults(str(path), lines):
            fault(number, what)
    if path.suffix == ".h" and folder not in ("examples",) and "kernel" not in path.parts:
        guard = "HPVMD_" + re.sub(r"[^A-Za-z0-9]", "_", str(path)).upper() + "_"
        if f"#ifndef {guard}" not in lines:
            fault(1, f"The header guard is not {guard}.")


def check_folders(root, faults):
    """Checks that no folder has too many files, and that no two folders include each other."""
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


def shown(line):
    """Returns a line without the targets of its links, which cannot be wrapped."""
    return LINK_TARGET.sub("]", line)


def check_document(root, path, lines, fault):
    for number, line in enumerate(lines, 1):
        is_free = (line.startswith("|") and path in ROWS_READ_BY_TESTS) or (path == SENTENCES and SENTENCE.match(line)) or path in LINES_OF_ANY_LENGTH
        if len(shown(line)) > DOCUMENT_LINE_MAX and not is_free:
            fault(number, f"The line has {len(shown(line))} characters; the limit of documents is {DOCUMENT_LINE_MAX}.")
        for name in DOC_PATH.findall(line):
            bare = name.rstrip("/.")
            if not (root / bare).exists() and not list(root.glob(bare + ".*")):
                fault(number, f"`{name}` does not exist.")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    faults = []
    picture = Picture(root)
    for path in tracked(root):
        text_kind = path.suffix in (".cc", ".h")
        if path.suffix not in (".cc", ".h", ".md"):
            continue
        lines = (root / path).read_text(encoding="utf-8").split("\n")

        def fault(number, what, path=path):
            faults.append(f"{path}:{number}: {what}")

        if text_kind and (path.parts[0] in FREE or picture.folder_of(str(path)) is not None):
            check_source(path, lines[:-1] if lines[-1] == "" else lines, picture, fault)
        elif path.suffix == ".md" and path.name != "CHANGELOG.md":
            check_document(root, str(path), lines, fault)
    faults += (f"docs/ARCHITECTURE.md:1: {what}" for what in picture.faults())
    check_folders(root, faults)
    for line in faults:
        print(line)
    print(f"tidy: {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
