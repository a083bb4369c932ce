#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the pages of packages and of the archive, so that every link in them leads to an installed file.

    pages.py OUTPUT SOURCE=PLACE ...

SOURCE is a page or a folder of the tree, PLACE is its path below OUTPUT. Pages and pictures of folders are copied. Links between
pages follow the new paths; a link to a file that is not copied becomes plain text.
"""

import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES, PICTURES = {".md"}, {".svg", ".png"}
LEFT_OUT = {"reference", "out"}  # Folders: generators of pages, and the output of examples.
TARGET = re.compile(r"\]\(([^()\s#]*)(#[^()\s]*)?\)")


def places(pairs):
    """Returns the place below the output of each file of the tree."""
    found = {}
    for source, place in (pair.split("=") for pair in pairs):
        start = ROOT / source
        if start.is_file():
            found[start] = pathlib.PurePath(place)
            continue
        for path in sorted(start.rglob("*")):
            inner = path.relative_to(start)
            if path.suffix in PAGES | PICTURES and not LEFT_OUT & set(inner.parts):
                found[path] = pathlib.PurePath(place) / inner
    return found


def rewritten(path, text, place_of):
    """Returns the page with its links rewritten for its place."""

    def target_of(match):
        name, fragment = match.group(1), match.group(2) or ""
        if not name or re.match(r"[a-z]+:", name):
            return match.group()
        there = pathlib.Path(os.path.normpath(path.parent / name))
        for candidate in (there, there / "README.md"):
            if candidate in place_of:
                return f"]({os.path.relpath(place_of[candidate], place_of[path].parent)}{fragment})"
        return "](\0)"

    out = []
    for piece in re.split(r"(^```.*?^```)", text, flags=re.M | re.S):
        if not piece.startswith("```"):
            piece = TARGET.sub(target_of, piece)
            piece = re.sub(r"!?\[([^\[\]]*)\]\(\0\)", r"\1", piece)
        out.append(piece)
    return "".join(out)


def copy(output, pairs):
    place_of = places(pairs)
    for path, place in place_of.items():
        target = output / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in PAGES:
            target.write_text(rewritten(path, path.read_text(encoding="utf-8"), place_of), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
        target.chmod(0o644)


if __name__ == "__main__":
    copy(pathlib.Path(sys.argv[1]), sys.argv[2:])
