#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes the fine detail from a picture by Fourier transforms."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

STAGES = 8
SIZE = 1 << STAGES


def main():
    options = gallery.options(__doc__)
    rng = np.random.default_rng(2)
    y, x = np.mgrid[0:SIZE, 0:SIZE]
    circles = zip(*rng.uniform(20, 236, (2, 12)), rng.uniform(8, 50, 12), rng.uniform(-0.5, 0.7, 12))
    picture = sum((np.hypot(y - cy, x - cx) < r) * v for cy, cx, r, v in circles)
    picture = (picture + 0.4 * np.sin(x * 0.9) * np.sin(y * 1.1)).astype("f4")  # Circles, and a fine grid over them.
    data = np.stack([picture, np.zeros_like(picture)], -1)
    gallery.keep(options, data=data)
    with hpvm.connect() as client:
        fft = client.prepare(hpvm.Graph.load(HERE / "fft.json"))
        transform = fft.run(data=data, symbols={"stages": STAGES, "direction": 1})["transform"]
        frequency = np.minimum(np.arange(SIZE), SIZE - np.arange(SIZE))
        low = np.exp(-(frequency / 14.0) ** 4).astype("f4")
        filtered = transform * (low[:, None] * low)[..., None] / np.float32(SIZE * SIZE)
        smooth = fft.run(data=filtered, symbols={"stages": STAGES, "direction": -1})["transform"]
    want = np.fft.fft2(picture.astype("f8"))
    found = transform[..., 0] + 1j * transform[..., 1]
    error = np.linalg.norm(found - want) / np.linalg.norm(want)
    back = np.fft.ifft2(want * np.outer(low, low))
    error_back = np.linalg.norm(smooth[..., 0] + 1j * smooth[..., 1] - back) / np.linalg.norm(back)
    if options.picture:
        every = np.s_[::2, ::2]
        spectrum = np.log1p(np.abs(np.fft.fftshift(found)))
        grey = [((p - picture.min()) / np.ptp(picture) * 255).clip(0, 255)[:200, :200].astype("u1") // 8 * 8
                for p in (picture, smooth[..., 0])]
        colours = gallery.coloured(spectrum[every], 1, spectrum.max() * 0.8) // 8 * 8
        colours = gallery.enlarged(colours, 2)[28:228, 28:228]
        gallery.write_png(options.picture, gallery.beside(grey[0], colours, grey[1]))
    gallery.finish("fft", max(error, error_back) < 1e-6,
                   f"{SIZE}x{SIZE} numbers, there and back; off numpy's transform by {error:.1e} and {error_back:.1e} "
                   "of its size, at most 1e-06 allowed")


main()
