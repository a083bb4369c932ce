#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates two rotating discs of bodies that pass each other."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

COUNT, CHECKED, STEPS, FRAMES = 512, 20, 40, 6
TIME, SOFTENING = np.float32(0.01), np.float32(0.0025)  # The same values as in n-body.json.


def discs(rng):
    """Returns positions with masses, and velocities: each disc turns around its centre, and the discs fly past each
    other."""
    half = COUNT // 2
    positions, velocities = np.zeros((COUNT, 4), "f4"), np.zeros((COUNT, 4), "f4")
    for disc, (centre, drift) in enumerate((((-0.9, -0.35), (0.55, 0.1)), ((0.9, 0.35), (-0.55, -0.1)))):
        radius, angle = 0.05 + 0.55 * np.sqrt(rng.random(half)), 2 * np.pi * rng.random(half)
        part = slice(disc * half, (disc + 1) * half)
        positions[part, 0] = centre[0] + radius * np.cos(angle)
        positions[part, 1] = centre[1] + radius * np.sin(angle)
        positions[part, 2] = 0.02 * rng.standard_normal(half)
        positions[part, 3] = 1 / half
        speed = np.sqrt(radius / 0.6) / np.sqrt(radius + 0.1)  # The mass within a radius grows with the square of the radius.
        velocities[part, 0] = drift[0] - speed * np.sin(angle) * 0.75
        velocities[part, 1] = drift[1] + speed * np.cos(angle) * 0.75
    return positions, velocities


def step(positions, velocities):
    """Executes one step in numpy, in f32 and in the kernel's order of operations."""
    pull = np.zeros((COUNT, 3), "f4")
    for x, y, z, mass in positions:
        way = np.stack([x, y, z]) - positions[:, :3]
        near = np.float32(1) / np.sqrt(((way[:, 0] ** 2 + way[:, 1] ** 2) + way[:, 2] ** 2) + SOFTENING)
        pull += way * (mass * ((near * near) * near))[:, None]
    positions, velocities = positions.copy(), velocities.copy()
    velocities[:, :3] += pull * TIME
    positions[:, :3] += velocities[:, :3] * TIME
    return positions, velocities


def energy(positions, velocities):
    p, v = positions.astype("f8"), velocities.astype("f8")
    distance = np.sqrt(((p[:, None, :3] - p[None, :, :3]) ** 2).sum(-1) + float(SOFTENING))
    pairs = p[:, None, 3] * p[None, :, 3] / distance
    return 0.5 * (p[:, 3] * (v[:, :3] ** 2).sum(-1)).sum() - 0.5 * (pairs.sum() - np.trace(pairs))


def main():
    options = gallery.options(__doc__)
    start = discs(np.random.default_rng(11))
    hand_over = {"positions_next": "positions", "velocities_next": "velocities"}
    pixels = gallery.blank(220, 360, (12, 12, 24))
    gallery.keep(options, positions=start[0], velocities=start[1])
    with hpvm.connect() as client:
        graph = client.prepare(hpvm.Graph.load(HERE / "n-body.json"))
        first = graph.run(positions=start[0], velocities=start[1], repeat=CHECKED, rotations=hand_over)
        # From here on the data stay on the server; only some pictures come back.
        positions, velocities = client.buffer(start[0]), client.buffer(start[1])
        for frame in range(FRAMES):
            seen = positions.read()
            shade = (frame + 1) / FRAMES
            colours = np.where(np.arange(COUNT)[:, None] < COUNT // 2, [255, 170, 70], [110, 190, 255]) * shade
            size = 2 if frame == FRAMES - 1 else 1
            gallery.dots(pixels, 110 - 80 * seen[:, 1], 180 + 80 * seen[:, 0], colours.astype("u1"), size)
            graph.run(positions=positions, velocities=velocities, repeat=STEPS, rotations=hand_over,
                      out={"positions_next": positions, "velocities_next": velocities})
        last = positions.read(), velocities.read()
    want = start
    for _ in range(CHECKED):
        want = step(*want)
    exact = np.array_equal(first["positions_next"], want[0]) and np.array_equal(first["velocities_next"], want[1])
    drift = abs(energy(*last) / energy(*start) - 1)
    if options.picture:
        gallery.write_png(options.picture, pixels)
    gallery.finish("n-body", exact and drift < 0.02,
                   f"{COUNT} bodies; {CHECKED} steps equal numpy's to the bit: {exact}; energy after {FRAMES * STEPS} "
                   f"steps off by {drift:.2%}, at most 2% allowed")


main()
