#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every example, and graphs whose extents depend on data, in growing and shrinking sizes through one daemon.

    sizes.py BIN_FOLDER [TestCase.test ...]

Each run's outputs must equal those of `run --local`, byte for byte: the daemon remembers the sizes that a graph needed, the
local runner nothing.
"""

import json
import sys
import unittest

import numpy as np

from e2e import OK, ROOT, WithDaemon
from iterate import NEWTON, compacting

EXAMPLES = ROOT / "examples"
# Sizes on both sides of the largest inline output (256 KiB), with repeats of a size.
PICTURES = [(64, 48), (640, 480), (1280, 960), (1280, 960), (320, 200), (900, 1200), (1, 1), (2000, 1000)]
COUNTS = [10, 70_000, 300_000, 300_000, 5, 120_000]


class Sizes(WithDaemon):
    files = ("iterate.wasm",)

    def ctl(self, *arguments, code=OK):
        done = self.daemon.ctl(*arguments)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def check(self, graph, outputs, *arguments, commands=(("run",), ("submit",))):
        """Checks that the daemon and the local runner give the same outputs."""
        def run(*command):
            to = {name: self.folder / f"{name}.npy" for name in outputs}
            for file in to.values():
                file.unlink(missing_ok=True)
            self.ctl(*command, graph, *arguments, *[x for name, file in to.items() for x in ("--output", f"{name}={file}")])
            return {name: np.load(file) for name, file in to.items()}
        wanted = run("run", "--local")
        for command in commands:
            found = run(*command)
            for name in outputs:
                np.testing.assert_array_equal(found[name], wanted[name], err_msg=f"{command} {arguments}")
        return wanted

    def save(self, name, values):
        np.save(self.folder / f"{name}.npy", values)
        return ("--input", f"{name}={self.folder}/{name}.npy")

    def write(self, document):
        (self.folder / "g.json").write_text(json.dumps(document))
        return self.folder / "g.json"

    def test_pictures_sized_by_symbols(self):
        for graph in ("edge-detection/scene.json", "mandelbrot/mandelbrot.json"):
            for width, height in PICTURES:
                with self.subTest(graph=graph, width=width, height=height):
                    made = self.check(EXAMPLES / graph, ["image"], "--symbol", f"w={width}", "--symbol", f"h={height}")
                    self.assertEqual(made["image"].shape[:2], (height, width))

    def test_pictures_sized_by_inputs(self):
        random = np.random.default_rng(1)
        for width, height in PICTURES:
            with self.subTest(width=width, height=height):
                image = random.integers(0, 256, (height, width), dtype=np.uint8)
                self.check(EXAMPLES / "edge-detection/edge-detection.json", ["edges"], *self.save("image", image))

    def test_products(self):
        random = np.random.default_rng(2)
        for m, k, n in [(4, 5, 6), (300, 20, 400), (700, 30, 500), (700, 2, 500), (3, 900, 2), (512, 64, 512)]:
            with self.subTest(m=m, k=k, n=n):
                a, b = (random.random(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
                self.check(EXAMPLES / "matmul/matmul.json", ["C"], *self.save("A", a), *self.save("B", b))

    def test_repeats(self):
        graph = self.write(NEWTON)
        for count in COUNTS:
            for repeat in (1, 5, 2):
                with self.subTest(count=count, repeat=repeat):
                    squares = np.arange(1, count + 1, dtype=np.float64)
                    self.check(graph, ["root"], *self.save("guess", np.ones(count)), *self.save("squares", squares),
                               "--repeat", repeat, "--rotate", "root=guess")

    def test_extents_that_depend_on_data(self):
        graph = self.write(compacting(0))
        random = np.random.default_rng(3)
        for count in COUNTS:
            for share in (0.1, 0.9, 0.5):
                with self.subTest(count=count, share=share):
                    values = random.random(count) - share
                    self.check(graph, ["out", "count"], *self.save("values", values))

    def test_arrays_whose_elements_differ(self):
        graph = EXAMPLES / "edge-detection/scene.json"
        for indices in ("100-1500:350", "200-900:350"):
            self.ctl("submit", graph, "--array", indices, "--array-symbol", "w", "--symbol", "h=700",
                     "--output", f"image={self.folder}/array-{{index}}.npy")
        for width in (100, 450, 800, 1150, 1500, 200, 550, 900):
            self.assertEqual(np.load(self.folder / f"array-{width}.npy").shape, (700, width))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
