#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a glider gun on a torus for some hundred generations."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

WIDTH, HEIGHT, STEP, FRAMES = 64, 48, 60, 4
GUN = """
........................#...........
......................#.#...........
............##......##............##
...........#...#....##............##
##........#.....#...##..............
##........#...#.##....#.#...........
..........#.....#.......#...........
...........#...#....................
............##......................
"""


def generation(cells):
    around = sum(np.roll(cells, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
    return ((around == 3) | ((around == 2) & (cells == 1))).astype("u1")


def main():
    options = gallery.options(__doc__)
    gun = np.array([[mark == "#" for mark in line] for line in GUN.split()], "u1")
    start = np.zeros((HEIGHT, WIDTH), "u1")
    start[4:4 + gun.shape[0], 6:6 + gun.shape[1]] = gun
    frames = [start]
    gallery.keep(options, cells=start)
    with hpvm.connect() as client:
        life = client.prepare(hpvm.Graph.load(HERE / "game-of-life.json"))
        with client.buffer(start) as cells:  # The buffer stays on the server; every run continues from the result of the last run.
            for _ in range(FRAMES - 1):
                life.run(cells=cells, repeat=STEP, rotations={"next": "cells"}, out={"next": cells})
                frames.append(cells.read())
    want = start
    different = 0
    for frame in frames[1:]:
        for _ in range(STEP):
            want = generation(want)
        different += int((frame != want).sum())
    if options.picture:
        wide = [gallery.enlarged(255 - frame * 225, 3) for frame in (frames[1], frames[-1])]
        gallery.write_png(options.picture, gallery.beside(*wide))
    gallery.finish("game-of-life", different == 0,
                   f"{WIDTH}x{HEIGHT} cells, {STEP * (FRAMES - 1)} generations, {frames[-1].sum()} alive; {different} "
                   "differ from numpy, none may")


main()
