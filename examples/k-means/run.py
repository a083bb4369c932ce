#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups points by k-means on the server."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

COUNT, CENTRES = 6000, 7


def move(points, centres, labels):
    """Executes one round in numpy, in f32 and with integers as in the kernels."""
    way = points[:, None] - centres
    labels_next = (way[..., 0] * way[..., 0] + way[..., 1] * way[..., 1]).argmin(1).astype("i4")
    centres_next = centres.copy()
    for k in range(CENTRES):
        mine = (points[labels_next == k].astype("f8") * 1048576).astype("i8")
        if len(mine):
            centres_next[k] = mine.sum(0) * (1 / (1048576.0 * len(mine)))
    return centres_next, labels_next, bool((labels_next == labels).all())


def main():
    options = gallery.options(__doc__)
    rng = np.random.default_rng(4)
    middles, spreads = rng.uniform(-4, 4, (CENTRES, 2)), rng.uniform(0.3, 0.9, (CENTRES, 1))
    group = rng.integers(CENTRES, size=COUNT)
    points = (middles[group] + spreads[group] * rng.standard_normal((COUNT, 2))).astype("f4")
    centres, labels = points[:CENTRES].copy(), np.full(COUNT, -1, "i4")
    gallery.keep(options, points=points, centres=centres, labels=labels)
    with hpvm.connect() as client:
        graph = client.prepare(hpvm.Graph.load(HERE / "k-means.json"))
        # The inputs are a mapping because `labels` is also the name of an option of run().
        result = graph.run({"points": points, "centres": centres, "labels": labels}, repeat=500, until="done",
                           rotations={"centres_next": "centres", "labels_next": "labels"})
    want, want_labels, rounds, done = centres, labels, 0, False
    while not done:
        want, want_labels, done = move(points, want, want_labels)
        rounds += 1
    exact = np.array_equal(result["centres_next"], want) and np.array_equal(result["labels_next"], want_labels)
    if options.picture:
        y, x = np.mgrid[0:240, 0:320]
        cells = (np.stack([(x - 160) / 26, (120 - y) / 26], -1)[..., None, :] - want) ** 2
        pixels = 255 - (255 - gallery.DISTINCT[cells.sum(-1).argmin(-1)]) // 4
        gallery.dots(pixels, 120 - 26 * points[:, 1], 160 + 26 * points[:, 0], gallery.DISTINCT[result["labels_next"]])
        gallery.dots(pixels, 120 - 26 * want[:, 1], 160 + 26 * want[:, 0], (0, 0, 0), 7)
        gallery.dots(pixels, 120 - 26 * want[:, 1], 160 + 26 * want[:, 0], (255, 255, 255), 3)
        gallery.write_png(options.picture, pixels)
    gallery.finish("k-means", result.converged and exact and rounds == result.repetitions,
                   f"{COUNT} points, {CENTRES} centres, {result.repetitions} rounds, numpy takes {rounds}; equal to "
                   f"the bit: {exact}")


main()
