#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multiplies two matrices: one blurs, the other is a picture."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

ROWS, INNER, COLUMNS = 160, 160, 240


def main():
    options = gallery.options(__doc__)
    rng = np.random.default_rng(7)
    distance = np.arange(ROWS)[:, None] - np.arange(INNER)
    blur = np.exp(-(distance / 6.0) ** 2)
    a = (blur / blur.sum(1, keepdims=True)).astype("f4")  # Each row is a weighted mean.
    b = np.where(rng.random((INNER // 20, COLUMNS // 20)) < 0.5, 0, 1).repeat(20, 0).repeat(20, 1).astype("f4")
    gallery.keep(options, A=a, B=b)
    with hpvm.connect() as client:
        result = client.run(hpvm.Graph.load(HERE / "matmul.json"), A=a, B=b, placements=True)
    c = result["C"]
    want = a.astype("f8") @ b.astype("f8")
    error = np.abs(c - want).max()
    # Each element sums INNER rounded products.
    bound = INNER * 2.0**-24 * (np.abs(a).astype("f8") @ np.abs(b)).max()
    if options.picture:
        gallery.write_png(options.picture, gallery.beside(*map(gallery.coloured, (a, b, c))))
    gallery.finish("matmul", error <= bound,
                   f"{ROWS}x{INNER} times {INNER}x{COLUMNS} on {result.placements[0].device}; largest error "
                   f"{error:.2g}, allowed {bound:.2g}")


main()
