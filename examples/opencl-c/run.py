#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates spots and stripes of a reaction of two substances, by a kernel in OpenCL C."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

SIZE, STEPS, CHECKED = 128, 4000, 100
FEED, DECAY = np.float32(0.037), np.float32(0.06)  # The same values as in gray-scott.json.


def step(u, v):
    def diffused(a):
        return ((np.roll(a, 1, 1) + np.roll(a, -1, 1)) + (np.roll(a, 1, 0) + np.roll(a, -1, 0))) - np.float32(4) * a
    eaten = u * v * v
    return (u + (np.float32(0.16) * diffused(u) - eaten + FEED * (np.float32(1) - u)),
            v + (np.float32(0.08) * diffused(v) + eaten - (FEED + DECAY) * v))


def main():
    options = gallery.options(__doc__)
    rng = np.random.default_rng(6)
    u, v = np.ones((SIZE, SIZE), "f4"), np.zeros((SIZE, SIZE), "f4")
    for y, x in rng.integers(SIZE - 8, size=(12, 2)):
        u[y:y + 8, x:x + 8], v[y:y + 8, x:x + 8] = 0.5, 0.25
    hand_over = {"u_next": "u", "v_next": "v"}
    gallery.keep(options, u=u, v=v)
    with hpvm.connect() as client:
        try:
            graph = client.prepare(hpvm.Graph.load(HERE / "gray-scott.json"))
        except hpvm.FailedPreconditionError as error:
            sys.exit(f"opencl-c: there is no OpenCL device: {error}")
        first = graph.run(u=u, v=v, repeat=CHECKED, rotations=hand_over, placements=True)
        last = graph.run(u=u, v=v, repeat=STEPS, rotations=hand_over) if options.picture else first
    want = u, v
    for _ in range(CHECKED):
        want = step(*want)
    error = max(np.abs(first["u_next"] - want[0]).max(), np.abs(first["v_next"] - want[1]).max())
    if options.picture:
        gallery.write_png(options.picture, gallery.enlarged(gallery.coloured(last["v_next"]) // 8 * 8, 2))
    gallery.finish("opencl-c", error < 1e-5,
                   f"{SIZE}x{SIZE} cells, {CHECKED} steps on {first.placements[0].device}; off numpy's by "
                   f"{error:.1e}, at most 1e-05 allowed")


main()
