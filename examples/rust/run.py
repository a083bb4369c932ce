#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes distances between words, by a kernel in Rust."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

WORDS = """
gradient graph grid group guard halo hash heap histogram index instance integer iterate jacobi join kernel key label
lane latency launch lattice layer leaf limit linear list load lock loop matrix memory merge mesh message minimum
module network node norm number object operand order output packet parallel pattern pipeline pixel plan pointer port
prefix process product profile program queue quota random range rank ratio reader record reduce region register repeat
result ring row sample scalar schedule script segment sequence series server shape signal solver sort source space
spectrum stage state step store stream stride string submit sum symbol system table task tensor tenant term thread
tile time token trace transform tree tuple type unit update value vector vertex view wait weight window word worker
""".split()
STRIDE = 32


def distances(words):
    """Returns Levenshtein's distances of all pairs at once, letter by letter."""
    longest, count = max(map(len, words)), len(words)
    letters = np.array([list(word.ljust(longest).encode()) for word in words])
    lengths = np.array([len(word) for word in words])
    row = np.broadcast_to(np.arange(longest + 1), (count, count, longest + 1)).copy()
    result = np.zeros((count, count), int)
    for i in range(longest + 1):
        ended = lengths == i
        result[ended] = row[ended][:, np.arange(count), lengths]
        if i < longest:
            before, row = row, row.copy()
            row[..., 0] = i + 1
            for j in range(longest):
                changed = before[..., j] + (letters[:, None, i] != letters[None, :, j])
                row[..., j + 1] = np.minimum(changed, np.minimum(before[..., j + 1], row[..., j]) + 1)
    return result


def main():
    options = gallery.options(__doc__)
    table = np.zeros((len(WORDS), STRIDE), "u1")
    for row, word in zip(table, WORDS):
        row[0] = len(word)
        row[1:1 + len(word)] = list(word.encode())
    gallery.keep(options, words=table)
    with hpvm.connect() as client:
        found = client.run(hpvm.Graph.load(HERE / "edit-distance.json"), words=table)["distances"]
    want = distances(WORDS)
    apart = np.where(np.eye(len(WORDS), dtype=bool), 99, found)
    a, b = divmod(int(apart.argmin()), len(WORDS))
    if options.picture:
        gallery.write_png(options.picture, gallery.enlarged(gallery.coloured(-found.astype(int)), 2))
    gallery.finish("rust", np.array_equal(found, want),
                   f"{len(WORDS)} words, all pairs; {(found != want).sum()} distances differ from numpy, none may; "
                   f'nearest are "{WORDS[a]}" and "{WORDS[b]}"')


main()
