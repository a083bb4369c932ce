#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the Mandelbrot set's seahorse valley."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

WIDTH, HEIGHT = 200, 150
CENTER_X, CENTER_Y, SPAN, ITERATIONS_MAX = -0.7435, 0.1314, 0.012, 2000  # The same values as in mandelbrot.json.


def inside(width, height):
    """Returns the pixels from which the iteration does not escape, in the kernel's own order of operations."""
    cx = CENTER_X + ((np.arange(width) + 0.5) / width - 0.5) * SPAN
    cy = CENTER_Y - ((np.arange(height) + 0.5) / height - 0.5) * SPAN * height / width
    cx, cy = (part.ravel() for part in np.meshgrid(cx, cy))
    x, y, here = np.zeros_like(cx), np.zeros_like(cx), np.arange(cx.size)
    for _ in range(ITERATIONS_MAX):
        x2, y2 = x * x, y * y
        kept = x2 + y2 < 256
        x, y, x2, y2, here = x[kept], y[kept], x2[kept], y2[kept], here[kept]
        x, y = x2 - y2 + cx[here], 2 * x * y + cy[here]
    found = np.zeros(cx.size, bool)
    found[here] = True
    return found.reshape(height, width)


def main():
    options = gallery.options(__doc__)
    with hpvm.connect() as client:
        mandelbrot = client.prepare(hpvm.Graph.load(HERE / "mandelbrot.json"))
        image = mandelbrot.run(symbols={"w": WIDTH, "h": HEIGHT})["image"]
        large = mandelbrot.run(symbols={"w": 240, "h": 180})["image"] if options.picture else None
    black = (image == 0).all(-1)
    want = inside(WIDTH, HEIGHT)
    if options.picture:
        gallery.write_png(options.picture, large // 8 * 8)  # Fewer colours make a smaller file.
    gallery.finish("mandelbrot", bool((black == want).all()),
                   f"{WIDTH}x{HEIGHT} pixels, {want.sum()} do not escape; {(black != want).sum()} differ from numpy, "
                   "none may")


main()
