#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the network with numpy and writes weights.npz, which is committed. A fixed seed makes the result repeatable."""

import pathlib

import numpy as np

from digits import draw

HIDDEN, BATCH, STEPS, RATE = 24, 100, 4000, 0.25


def main():
    rng = np.random.default_rng(1)
    images, digits = draw(20_000, rng)
    w1, b1 = rng.standard_normal((64, HIDDEN)) * (2 / 64) ** 0.5, np.zeros(HIDDEN)
    w2, b2 = rng.standard_normal((HIDDEN, 10)) * (2 / HIDDEN) ** 0.5, np.zeros(10)
    for step in range(STEPS):
        chosen = rng.integers(len(images), size=BATCH)
        x, wanted = images[chosen], digits[chosen]
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        slope = p
        slope[np.arange(BATCH), wanted] -= 1
        slope /= BATCH
        back = slope @ w2.T * (hidden > 0)
        rate = RATE * (1 - step / STEPS)
        w2 -= rate * hidden.T @ slope
        b2 -= rate * slope.sum(0)
        w1 -= rate * x.T @ back
        b1 -= rate * back.sum(0)
    images, digits = draw(5000, np.random.default_rng(2))
    right = (np.maximum(images @ w1 + b1, 0) @ w2 + b2).argmax(1) == digits
    print(f"{right.mean():.1%} of 5,000 other digits are right")
    np.savez(pathlib.Path(__file__).resolve().parent / "weights.npz", weights1=w1.astype("f4"), bias1=b1.astype("f4"),
             weights2=w2.astype("f4"), bias2=b2.astype("f4"))


main()
