#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Locates each patch again after comments around it have changed, and rewrites the patch's context.

    reanchor.py

Code is compared without comments and white space. A patch whose code has changed keeps its text and is listed: a person must fix it.
"""

import pathlib
import re
import sys

import patches

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def code(line):
    """Returns the line without its comment and without white space."""
    text = re.sub(r'"(\\.|[^"\\])*"', lambda found: found.group(0).replace("//", "\0\0"), line)
    return re.sub(r"\s+", "", text.split("//")[0].replace("\0\0", "//"))


def moved(start, body, lines):
    """Returns the hunk with the context that the file has now; None when its code is not there."""
    present = [(number, code(line)) for number, line in enumerate(lines) if code(line)]
    wanted = [code(text) for mark, text in body if mark != "+" and code(text)]
    found = [text for _, text in present]
    places = [k for k in range(len(found) - len(wanted) + 1) if found[k:k + len(wanted)] == wanted]
    if not places:
        return None
    at = min(places, key=lambda place: abs(present[place][0] - start))
    first, last, out = present[at][0], None, []
    for mark, text in body:
        if mark == "+":
            out.append((mark, text))
        elif code(text):
            number = present[at][0]
            if last is not None:
                out += [(" ", lines[k]) for k in range(last + 1, number)]
            out.append((mark, lines[number]))
            last, at = number, at + 1
    old, new = sum(mark != "+" for mark, _ in out), sum(mark != "-" for mark, _ in out)
    return [f"@@ -{first + 1},{old} +{first + 1},{new} @@\n"] + [mark + text for mark, text in out]


def reanchor(path):
    """Returns true when the patch has a place after the rewrite."""
    patch = patches.read(path)
    lines = (ROOT / patch.file).read_text(encoding="utf-8").splitlines(keepends=True)
    text, out, i = path.read_text(encoding="utf-8").splitlines(keepends=True), [], 0
    while i < len(text):
        found = re.match(r"@@ -(\d+)", text[i])
        out.append(text[i])
        i += 1
        if not found:
            continue
        end = i
        while end < len(text) and text[end][:1] in " +-" and not text[end].startswith(("--- ", "+++ ")):
            end += 1
        hunk = moved(int(found.group(1)) - 1, [(line[0], line[1:]) for line in text[i:end]], lines)
        out[-1:] = hunk or [out[-1], *text[i:end]]
        i = end
    path.write_text("".join(out), encoding="utf-8")
    return has_place(path)


def has_place(path):
    patch = patches.read(path)
    try:
        patches.edits_of(patch, (ROOT / patch.file).read_text(encoding="utf-8"))
        return True
    except patches.PatchError:
        return False


def main():
    lost = [path for folder in ("patches", "system") for path in sorted((HERE / folder).glob("*.patch")) if not has_place(path)]
    left = [path for path in lost if not reanchor(path)]
    print(f"{len(lost) - len(left)} patches were placed again.")
    for path in left:
        print(f"{path.relative_to(ROOT)}: its code has changed.")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
