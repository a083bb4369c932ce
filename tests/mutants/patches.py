# SPDX-License-Identifier: Apache-2.0
"""Patches that seed bugs: read, found in the sources as they are now, and applied together.

A patch is a unified diff of one file under two lines that say what goes wrong and which tests are likely to notice:

    What: Lanes that are off trap.
    Tests: gang_control_test spmd
    --- a/compiler/back/llvm/gang/gang_trap.cc
    ...

All hunks are found in the text without patches, so that neighbours do not disturb each other; lines that another
patch changes must not be changed as well.
"""
import dataclasses
import pathlib
import re

CONTEXT_LEFT_OUT_MAX = 2  # Lines at each end of a hunk that need not be found.
INCLUDE = '#include "base/mutant.h"\n'


class PatchError(Exception):
    pass


@dataclasses.dataclass
class Hunk:
    line: int   # Where it was, from 0.
    body: list  # (" ", "-" or "+", text)

    def before(self):
        return [text for mark, text in self.body if mark != "+"]


@dataclasses.dataclass
class Patch:
    name: str    # Of the file, and of the bug unless that needs patches of several files.
    what: str
    tests: list
    file: str
    hunks: list
    bug: str = ""  # What switches it on.


@dataclasses.dataclass
class Edit:
    begin: int  # Lines [begin, end) become `lines`.
    end: int
    lines: list
    name: str


def read(path):
    head = {"What": "", "Tests": ""}
    patch = Patch(path.stem, "", [], "", [])
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("+++ b/"):
            if patch.file:
                raise PatchError(f"{patch.name}: a patch changes one file.")
            patch.file = line[6:].split("\t")[0].strip()
        elif found := re.match(r"@@ -(\d+)", line):
            patch.hunks.append(Hunk(int(found.group(1)) - 1, []))
        elif patch.hunks and line[:1] in " +-":
            patch.hunks[-1].body.append((line[:1], line[1:]))
        elif found := re.match(r"(What|Tests): (.*)", line):
            head[found.group(1)] = found.group(2).strip()
    patch.what, patch.tests = head["What"], head["Tests"].split()
    if not patch.file or not patch.hunks or not patch.what or not patch.tests:
        raise PatchError(f"{patch.name}: a patch says What and Tests, names a file (+++ b/...) and has a hunk.")
    added = "".join(text for hunk in patch.hunks for mark, text in hunk.body if mark == "+")
    bugs = set(re.findall(r'HPVMD_MUTANT\("(\w+)"\)', added))
    patch.bug = next(iter(bugs), "")
    # A bug in several files has a patch for each, named after it and the file.
    if len(bugs) != 1 or patch.name not in (patch.bug, f"{patch.bug}_{pathlib.PurePosixPath(patch.file).stem}"):
        raise PatchError(f"{patch.name}: what it adds is not behind HPVMD_MUTANT(\"{patch.name}\").")
    return patch


def read_all(folder):
    return [read(path) for path in sorted(folder.glob("*.patch"))]


def _trimmed(body, fuzz):
    """The hunk without some context, and how many lines are missing in front."""
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
    """What the patch changes in the text; PatchError when it has no place there."""
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
    """The text with all patches, which are of one file, and the include that their switches need."""
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
    """By file: its new text."""
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
