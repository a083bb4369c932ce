#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the edges of a picture that another graph has rendered."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402
from check import edges  # noqa: E402

WIDTH, HEIGHT = 320, 240


def main():
    options = gallery.options(__doc__)
    with hpvm.connect() as client:
        scene = client.run(hpvm.Graph.load(HERE / "scene.json"), symbols={"w": WIDTH, "h": HEIGHT})["image"]
        found = client.run(hpvm.Graph.load(HERE / "edge-detection.json"), image=scene)["edges"]
    want = edges(scene)
    different, allowed = int((found != want).sum()), scene.size // 2000
    if options.picture:
        gallery.write_png(options.picture, gallery.beside(scene // 8 * 8, found))
    gallery.finish("edge-detection", different <= allowed and 0.001 < (want != 0).mean() < 0.2,
                   f"{WIDTH}x{HEIGHT} pixels, {(found != 0).mean():.1%} are edges; {different} differ from numpy, at "
                   f"most {allowed} may")


main()
