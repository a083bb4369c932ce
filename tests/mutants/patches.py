# SPDX-License-Identifier: Apache-2.0
"""Reads patches that seed bugs, finds their places in the current sources, and applies them together.

A patch is a unified diff of one file below two lines: the bug that it seeds, and the tests that are likely to catch it.

    Bug: Inactive lanes trap.
    Tests: gang_control_test spmd
    --- a/compiler/back/llvm/gang/gang_trap.cc
    ...

All hunks are located in the unpatched text, so that neighbouring patches do not disturb each other. No two patches may
change the same lines.
"""
import dataclasses
import pathlib
import re

CONTEXT_LEFT_OUT_MAX = 2  # Context lines at each end of a hunk that need not match.
INCLUDE = '#include "base/mutant.h"\n'


class PatchError(Exception):
    pass


@dataclasses.dataclass
class Hunk:
    line: int   # Line of the hunk in the original file, from 0.
    body: list  # (" ", "-" or "+", text)

    def before(self):
        return [text for mark, text in self.body if mark != "+"]


@dataclasses.dataclass
class Patch:
    name: str    # The patch file's stem; equals `bug` unless the bug needs patches of several files.
    what: str
    tests: list
    file: str
    hunks: list
    bug: str = ""  # The value of HPVMD_MUTANT that enables the bug.


@dataclasses.dataclass
class Edit:
    begin: int  # Lines [begin, end) become `lines`.
    end: int
    lines: list
    name: str


def read(path):
    head = {"Bug": "", "Tests": ""}
    patch = Patch(path.stem, "", [], "", [])
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("+++ b/"):
            if patch.file:
                raise PatchError(f"{patch.name}: a patch must change exactly one file.")
            patch.file = line[6:].split("\t")[0].strip()
        elif found := re.match(r"@@ -(\d+)", line):
            patch.hunks.append(Hunk(int(found.group(1)) - 1, []))
        elif patch.hunks and line[:1] in " +-":
            patch.hunks[-1].body.append((line[:1], line[1:]))
        elif found := re.match(r"(Bug|Tests): (.*)", line):
            head[found.group(1)] = found.group(2).strip()
    patch.what, patch.tests = head["Bug"], head["Tests"].split()
    if not patch.file or not patch.hunks or not patch.what or not patch.tests:
        raise PatchError(f"{patch.name}: a patch needs the lines Bug and Tests, a file (+++ b/...) and a hunk.")
    added = "".join(text for hunk in patch.hunks for mark, text in hunk.body if mark == "+")
    bugs = set(re.findall(r'HPVMD_MUTANT\("(\w+)"\)', added))
    patch.bug = next(iter(bugs), "")
    # A bug that spans several files has one patch for each, named after the bug and the file.
    if len(bugs) != 1 or patch.name not in (patch.bug, f"{patch.bug}_{pathlib.PurePosixPath(patch.file).stem}"):
        raise PatchError(f"{patch.name}: the added code is not behind HPVMD_MUTANT(\"{patch.name}\").")
    return patch


def read_all(folder):
    return [read(path) for path in sorted(folder.glob("*.patch"))]


def _trimmed(body, fuzz):
    """Returns the hunk without some of its context, and the number of lines removed at its front."""
    marks = [mark for mark, _ in body]
    first = next((i for i, mark in enumerate(marks) if mark != " "), len(marks))
    last = next((i for i, mark in enumerate(reversed(marks)) if mark != " "), len(marks))
    front, back = min(fuzz, first), min(fuzz, last)
    return body[front:len(body) - back], front


def _find(lines, hunk, name):
    for fuzz in range(CONTEXT_LEFT_OUT_MAX + 1):
        body, front = _trimmed(hunk.body, fuzz)
        before = [text for mark, text in body if mark != "+"]
        places = [i for i in range(len(lines) - len(before) + 1) if lines[i:i + len(before)] == before]
        if places:
            return body, min(places, key=lambda place: abs(place - front - hunk.line))
    raise PatchError(f"{name}: no place for the hunk of line {hunk.line + 1}:\n" + "".join(hunk.before()))


def edits_of(patch, text):
    """Returns the edits that the patch makes in the text; raises PatchError when a hunk has no place there."""
    lines = text.splitlines(keepends=True)
    edits = []
    for hunk in patch.hunks:
        body, at = _find(lines, hunk, patch.name)
        is_open = False
        for mark, line in body:
            if mark == " ":
                at, is_open = at + 1, False
                continue
            if not is_open:
                edits.append(Edit(at, at, [], patch.name))
                is_open = True
            if mark == "-":
                at += 1
                edits[-1].end = at
            else:
                edits[-1].lines.append(line)
    return edits


def apply(patches, text):
    """Returns the text with all patches, which are of one file, and the include that their switches need."""
    lines = text.splitlines(keepends=True)
    edits = sorted((edit for patch in patches for edit in edits_of(patch, text)),
                   key=lambda edit: (edit.begin, edit.end, edit.name))
    for one, next_one in zip(edits, edits[1:]):
        if next_one.begin < one.end or (next_one.begin, next_one.end) == (one.begin, one.end):
            raise PatchError(f"{one.name} and {next_one.name} change the same lines.")
    for edit in reversed(edits):
        lines[edit.begin:edit.end] = edit.lines
    first = next((i for i, line in enumerate(lines) if line.startswith("#include ")), 0)
    lines.insert(first, INCLUDE)
    return "".join(lines)


def apply_all(patches, root):
    """Returns the new text of each patched file, by file."""
    by_file = {}
    for patch in patches:
        by_file.setdefault(patch.file, []).append(patch)
    texts = {}
    for file, of_file in sorted(by_file.items()):
        path = root / file
        if not path.is_file():
            raise PatchError(f"{of_file[0].name}: there is no {file}.")
        texts[file] = apply(of_file, path.read_text(encoding="utf-8"))
    return texts
