# SPDX-License-Identifier: Apache-2.0
"""Draws digits of 8 by 8 pixels from a font of 3 by 5 dots, shifted by parts of a pixel, blurred and with noise."""

import numpy as np

FONT = """
### .#. ### ### #.# ### ### ### ### ###
#.# ##. ..# ..# #.# #.. #.. ..# #.# #.#
#.# .#. ### .## ### ### ### .#. ### ###
#.# .#. #.. ..# ..# ..# #.# .#. #.# ..#
### ### ### ### ..# ### ### .#. ### ###
"""


def glyphs():
    rows = [line.split() for line in FONT.split("\n") if line]
    return np.array([[[dot == "#" for dot in row[digit]] for row in rows] for digit in range(10)], float)


def draw(count, rng):
    """Returns images in f32, [count, 64], and their digits."""
    digits = rng.integers(10, size=count)
    dots = glyphs()[digits]
    y, x = np.arange(8)[:, None], np.arange(8)[None, :]
    images = np.zeros((count, 8, 8))
    top, left = 0.9 + rng.uniform(-0.6, 0.6, (count, 1, 1)), 1.9 + rng.uniform(-0.9, 0.9, (count, 1, 1))
    high, wide = rng.uniform(1.1, 1.45, (count, 1, 1)), rng.uniform(1.3, 1.8, (count, 1, 1))
    slant = rng.uniform(-0.15, 0.15, (count, 1, 1))
    for row in range(5):
        for column in range(3):
            down, right = y - (top + row * high), x - (left + column * wide - slant * row)
            spot = np.exp(-(down**2 + right**2) / 0.7)
            images += dots[:, row, column][:, None, None] * spot
    images = np.clip(images, 0, 1) + 0.12 * rng.standard_normal(images.shape)
    return images.reshape(count, 64).astype("f4"), digits
