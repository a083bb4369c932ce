#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recognises digits by a small network whose weights stay on the server."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402
from digits import draw  # noqa: E402

BATCHES, IMAGES = 8, 128


def main():
    options = gallery.options(__doc__)
    images, digits = draw(BATCHES * IMAGES, np.random.default_rng(9))
    weights = dict(np.load(HERE / "weights.npz"))
    gallery.keep(options, images=images, **weights)
    with hpvm.connect() as client:
        network = client.prepare(hpvm.Graph.load(HERE / "neural-network.json"))
        kept = {name: client.buffer(values) for name, values in weights.items()}  # Sent once and read by every run.
        results = network.run_many([{"images": batch, **kept} for batch in images.reshape(BATCHES, IMAGES, 64)])
        for buffer in kept.values():
            buffer.delete()
    for result in results:
        if isinstance(result, hpvm.HpvmError):
            raise result
    found = np.concatenate([result["digits"] for result in results])
    probabilities = np.concatenate([result["probabilities"] for result in results])
    w = {name: values.astype("f8") for name, values in weights.items()}
    scores = np.maximum(images @ w["weights1"] + w["bias1"], 0) @ w["weights2"] + w["bias2"]
    want = np.exp(scores - scores.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    error, right = np.abs(probabilities - want).max(), (found == digits).mean()
    if options.picture:
        tiles = []
        for image, digit, told in zip(images[:84], digits, found):
            grey = (255 - np.clip(image.reshape(8, 8), 0, 1) * 255).astype("u1") // 16 * 16
            tile = gallery.blank(28, 28, (90, 170, 90) if digit == told else (220, 60, 60))
            tile[2:26, 2:26] = gallery.enlarged(grey, 3)[..., None]
            tiles.append(tile)
        rows = [np.concatenate(tiles[i:i + 14], 1) for i in range(0, 84, 14)]
        gallery.write_png(options.picture, np.concatenate(rows, 0))
    gallery.finish("neural-network", error < 1e-5 and right > 0.9,
                   f"{len(images)} images in {BATCHES} runs, {right:.1%} right; probabilities off numpy's by "
                   f"{error:.1e}, at most 1e-05 allowed")


main()
