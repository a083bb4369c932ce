#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the potential between plates, which the server iterates until it has settled."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

WIDTH, HEIGHT, PAIRS, TOLERANCE = 120, 90, 20, np.float32(1e-5)


def plates():
    """Returns two plates with a potential of 1 and -1 and a ring with 0.5; the edge has 0."""
    potential, fixed = np.zeros((HEIGHT, WIDTH), "f4"), np.zeros((HEIGHT, WIDTH), "u1")
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    ring = np.abs(np.hypot(y - 45, x - 60) - 12) < 1.2
    for place, value in ((np.s_[15:75, 30:32], 1), (np.s_[15:75, 88:90], -1), (ring, 0.5)):
        potential[place], fixed[place] = value, 1
    return potential, fixed


def sweep(potential, fixed):
    next_one = potential.copy()
    across, down = potential[1:-1, :-2] + potential[1:-1, 2:], potential[:-2, 1:-1] + potential[2:, 1:-1]
    mean = (across + down) * np.float32(0.25)
    next_one[1:-1, 1:-1] = np.where(fixed[1:-1, 1:-1], potential[1:-1, 1:-1], mean)
    return next_one


def main():
    options = gallery.options(__doc__)
    start, fixed = plates()
    gallery.keep(options, potential=start, fixed=fixed)
    with hpvm.connect() as client:
        graph = client.prepare(hpvm.Graph.load(HERE / "jacobi.json"))
        result = graph.run(potential=start, fixed=fixed, tolerance=TOLERANCE, symbols={"pairs": PAIRS},
                           repeat=10_000, rotations={"potential_next": "potential"}, until="done")
    found = result["potential_next"]
    sweeps = result.repetitions * (2 * PAIRS + 1)
    want = start
    for _ in range(sweeps):
        before, want = want, sweep(want, fixed)
    left = np.abs(want - before).max()
    if options.picture:
        heights = np.floor((found + 1) * 10 + 0.5)  # Lines of equal potential lie where this value changes.
        lines = np.zeros(found.shape, bool)
        lines[:, 1:] |= heights[:, 1:] != heights[:, :-1]
        lines[1:] |= heights[1:] != heights[:-1]
        pixels = gallery.coloured(found, -1, 1)
        pixels[lines] = pixels[lines] // 2
        pixels[fixed != 0] = 255
        gallery.write_png(options.picture, gallery.enlarged(pixels, 3))
    gallery.finish("jacobi", result.converged and np.array_equal(found, want) and left <= TOLERANCE,
                   f"settled after {sweeps} sweeps in {result.repetitions} repetitions; equal to numpy's to the bit: "
                   f"{np.array_equal(found, want)}; the last sweep changes {left:.1e}, at most {TOLERANCE:.0e} allowed")


main()
