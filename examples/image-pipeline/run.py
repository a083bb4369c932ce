#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Develops a picture from the counts of a camera's sensor."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

WIDTH, HEIGHT = 320, 216
BLACK, WHITE, RED, BLUE, OVEREXPOSED = 64, 1023, 1.8, 1.4, 10  # The same values as in image-pipeline.json.


def landscape(rng):
    """Returns a scene in linear light: sky, sun, staggered hills, and their reflection in a lake."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] / HEIGHT
    scene = np.array([0.55, 0.62, 0.8]) * (0.5 + 0.5 * y[..., None])
    scene = scene + np.array([0.5, 0.2, 0.0]) * (y[..., None] / 0.6) ** 3
    scene += np.exp(-((x - 1.05) ** 2 + (y - 0.3) ** 2) / 0.004)[..., None] * np.array([3.0, 2.4, 1.4])
    for depth in range(4):
        phase = rng.random(5) * 6.28
        ridge = 0.42 + 0.07 * depth - sum(0.05 / (k + 1) * np.sin((k + 1.5) * 2.1 * x + phase[k]) for k in range(5))
        colour = np.array([0.3, 0.33, 0.42]) * (1 - depth / 4) + np.array([0.05, 0.12, 0.04]) * depth / 4
        rough = 1 + 0.15 * rng.standard_normal((HEIGHT, WIDTH, 1)) * depth / 4
        scene = np.where((y > ridge)[..., None], colour * rough, scene)
    shore = int(HEIGHT * 0.72)
    depth_below = np.arange(HEIGHT - shore)
    scene[shore:] = scene[shore - 1 - depth_below] * np.array([0.55, 0.65, 0.75])
    return scene * 0.35


def counted(scene, rng):
    """Returns the counts of a sensor behind red, green and blue filters, with noise."""
    light = scene / np.array([RED, 1, BLUE])
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    colour = np.where(x % 2 != y % 2, 1, np.where(x % 2 == 1, 2, 0))
    mosaic = np.take_along_axis(light, colour[..., None], 2)[..., 0] * (WHITE - BLACK) + BLACK
    return np.clip(mosaic + 2 * rng.standard_normal(mosaic.shape), 0, WHITE).astype("u2")


def developed(raw):
    """Executes the graph's steps in numpy, in f32 and in the kernels' order of operations."""
    f = np.float32
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    gain = np.where(x % 2 != y % 2, f(1), np.where(x % 2 == 1, f(BLUE), f(RED)))
    mosaic = np.maximum((raw.astype("f4") - f(BLACK)) / (f(WHITE) - f(BLACK)) * gain, f(0))
    wide = np.pad(mosaic, 1, mode="edge")

    def at(dx, dy):
        return wide[1 + dy:HEIGHT + 1 + dy, 1 + dx:WIDTH + 1 + dx]
    beside, above = (at(-1, 0) + at(1, 0)) * f(0.5), (at(0, -1) + at(0, 1)) * f(0.5)
    corners = ((at(-1, -1) + at(1, -1)) + (at(-1, 1) + at(1, 1))) * f(0.25)
    odd_x, odd_y = x % 2 == 1, y % 2 == 1
    red = np.where(odd_y, np.where(odd_x, corners, above), np.where(odd_x, beside, mosaic))
    green = np.where(odd_x != odd_y, mosaic, (beside + above) * f(0.5))
    blue = np.where(odd_y, np.where(odd_x, mosaic, beside), np.where(odd_x, above, corners))
    rgb = np.stack([red, green, blue], -1)
    brightness = (red + 2 * green + blue) * f(0.25)
    bins = np.bincount(np.minimum((brightness * f(256)).astype(int), 255).ravel(), minlength=256)
    bin, above = 255, 0
    while bin > 0 and (above + bins[bin]) * 1000 <= raw.size * OVEREXPOSED:
        above += bins[bin]
        bin -= 1
    gain = f(256) / f(bin + 1)
    value = rgb * gain
    value = np.minimum(value * f(1.25) / (value + f(0.25)), f(1))
    return (np.sqrt(value) * f(255) + f(0.5)).astype("u1"), gain


def main():
    options = gallery.options(__doc__)
    rng = np.random.default_rng(3)
    raw = counted(landscape(rng), rng)
    gallery.keep(options, raw=raw)
    with hpvm.connect() as client:
        result = client.run(hpvm.Graph.load(HERE / "image-pipeline.json"), raw=raw, placements=True)
    want, gain = developed(raw)
    different = int((result["picture"] != want).sum())
    if options.picture:
        counts = (np.clip((raw[:, :WIDTH // 2].astype(int) - BLACK) * 2, 0, 255) // 32 * 32).astype("u1")
        gallery.write_png(options.picture, gallery.beside(counts, result["picture"][:, WIDTH // 2:] // 8 * 8, gap=2))
    gallery.finish("image-pipeline", different == 0 and result["gain"] == gain,
                   f"{WIDTH}x{HEIGHT} pixels through {len(result.placements)} nodes, gain {float(gain):.3f}; "
                   f"{different} bytes differ from numpy, none may")


main()
