#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the nearest of some sites for each pixel, by a Vulkan compute shader."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

WIDTH, HEIGHT, SITES = 256, 192, 40


def nearest(sites, along_streets):
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    dx, dy = np.abs(sites[:, 0, None, None] - x), np.abs(sites[:, 1, None, None] - y)
    distances = dx + dy if along_streets else dx * dx + dy * dy
    return distances.argmin(0), distances.min(0)


def shown(result):
    pixels = gallery.DISTINCT[result["nearest"] % len(gallery.DISTINCT)].astype(int)
    near = result["distances"] / result["distances"].max()
    return (pixels * (1 - 0.7 * np.sqrt(near)[..., None])).astype("u1") // 8 * 8


def main():
    options = gallery.options(__doc__)
    sites = (np.random.default_rng(8).random((SITES, 2)) * (WIDTH, HEIGHT)).astype("i4")
    results, places = {}, {}
    gallery.keep(options, sites=sites)
    with hpvm.connect() as client:
        for name in ("voronoi", "streets"):
            try:
                graph = client.prepare(hpvm.Graph.load(HERE / f"{name}.json"))
            except hpvm.FailedPreconditionError as error:
                sys.exit(f"spirv: there is no Vulkan device: {error}")
            results[name] = graph.run(sites=sites, symbols={"w": WIDTH, "h": HEIGHT}, placements=True)
            places[name] = results[name].placements[0].device
    different = 0
    for name, along_streets in (("voronoi", False), ("streets", True)):
        for found, want in zip((results[name]["nearest"], results[name]["distances"]), nearest(sites, along_streets)):
            different += int((found != want).sum())
    if options.picture:
        gallery.write_png(options.picture, gallery.beside(shown(results["voronoi"]), shown(results["streets"])))
    gallery.finish("spirv", different == 0,
                   f"{WIDTH}x{HEIGHT} pixels, {SITES} sites, straight on {places['voronoi']} and along streets on "
                   f"{places['streets']}; {different} numbers differ from numpy, none may")


main()
