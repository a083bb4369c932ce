#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Solves a sparse system of equations by conjugate gradients on the server."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

SIDE = 40


def poisson(rng):
    """Returns the matrix of heat conduction in an uneven plate, in compressed rows, and the heat sources."""
    inside = np.ones((SIDE, SIDE), bool)
    inside[SIDE // 2:, SIDE // 2:] = False  # The plate is an L.
    number = np.where(inside, np.cumsum(inside).reshape(SIDE, SIDE) - 1, -1)
    conducts = np.exp(0.5 * rng.standard_normal((SIDE, SIDE)))
    rows, columns, numbers = [], [], []
    for y, x in np.argwhere(inside):
        total = 0.0
        for v, u in ((y - 1, x), (y, x - 1), (y, x + 1), (y + 1, x)):
            there = (v, u) if 0 <= v < SIDE and 0 <= u < SIDE and inside[v, u] else None
            weight = 0.5 * (conducts[y, x] + (conducts[there] if there else conducts[y, x]))
            total += weight
            if there:
                rows.append(number[y, x]), columns.append(number[there]), numbers.append(-weight)
        rows.append(number[y, x]), columns.append(number[y, x]), numbers.append(total)
    order = np.lexsort((columns, rows))
    rows, columns, numbers = np.array(rows)[order], np.array(columns, "i4")[order], np.array(numbers)[order]
    row_start = np.searchsorted(rows, np.arange(inside.sum() + 1)).astype("i4")
    heat = np.where(np.hypot(*(np.mgrid[0:SIDE, 0:SIDE] - SIDE // 4)) < 4, 1.0, 0.0)[inside]
    return inside, row_start, columns, numbers, heat


def main():
    options = gallery.options(__doc__)
    inside, row_start, columns, numbers, b = poisson(np.random.default_rng(5))
    n = len(b)
    gallery.keep(options, row_start=row_start, columns=columns, numbers=numbers, x=np.zeros(n), b=b)
    with hpvm.connect() as client:
        graph = client.prepare(hpvm.Graph.load(HERE / "sparse-cg.json"))
        result = graph.run(row_start=row_start, columns=columns, numbers=numbers, x=np.zeros(n), r=b, p=b, rho=b @ b,
                           enough=1e-20 * (b @ b), repeat=1000, until="done",
                           rotations={"x_next": "x", "r_next": "r", "p_next": "p", "rho_next": "rho"})
    x = result["x_next"]
    matrix = np.zeros((n, n))
    matrix[np.repeat(np.arange(n), np.diff(row_start)), columns] = numbers
    residual = np.linalg.norm(b - matrix @ x) / np.linalg.norm(b)
    want = np.linalg.solve(matrix, b)
    error = np.abs(x - want).max() / np.abs(want).max()
    if options.picture:
        plate = np.full((SIDE, SIDE), np.nan)
        plate[inside] = x
        pixels = gallery.coloured(np.nan_to_num(plate))
        pixels[~inside] = 255
        side = 6 * SIDE
        pattern = np.zeros((side, side))
        places = np.repeat(np.arange(n), np.diff(row_start)) * side // n, columns.astype(int) * side // n
        np.add.at(pattern, places, 1)
        grey = 255 - np.minimum(pattern * 24, 255).astype("u1")
        gallery.write_png(options.picture, gallery.beside(grey, gallery.enlarged(pixels, 6)))
    gallery.finish("sparse-cg", result.converged and residual < 1e-9 and error < 1e-8,
                   f"{n} unknowns, {len(numbers)} numbers, {result.repetitions} iterations; residual {residual:.1e}, "
                   f"at most 1e-09 allowed; off numpy's solution by {error:.1e}, at most 1e-08 allowed")


main()
