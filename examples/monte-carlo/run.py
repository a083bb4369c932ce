#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prices two options by simulated paths: an array of jobs, one for each seed."""

import pathlib
import sys

import hpvm
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import gallery  # noqa: E402

import math

JOBS, PATHS, DAYS = 4, 8192, 64
START, STRIKE, RATE, VOLATILITY = 100.0, 105.0, 0.03, 0.25  # The same values as in monte-carlo.json, except the strike.
YEARS = DAYS / 252


def black_scholes():
    """Returns the European option's price without simulation."""
    spread = VOLATILITY * math.sqrt(YEARS)
    d = (math.log(START / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / spread
    normal = [0.5 * math.erfc(-x / math.sqrt(2)) for x in (d, d - spread)]
    return START * normal[0] - STRIKE * math.exp(-RATE * YEARS) * normal[1]


def hashed(value):
    value = value * np.uint32(747796405) + np.uint32(2891336453)
    word = ((value >> ((value >> np.uint32(28)) + np.uint32(4))) ^ value) * np.uint32(277803737)
    return (word >> np.uint32(22)) ^ word


def last_prices(seed):
    """Returns the prices on the last day; the last bits of logarithms, cosines and exponentials may differ."""
    key = hashed(hashed(np.array([seed], "u4")) ^ np.arange(PATHS, dtype="u4"))[:, None]
    day = 2 * np.arange(DAYS, dtype="u4")
    first, second = ((hashed(key + day + np.uint32(i)) + 0.5) * 2.0**-32 for i in (0, 1))
    normal = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
    step = YEARS / DAYS
    return np.exp(np.log(START) + ((RATE - VOLATILITY**2 / 2) * step + VOLATILITY * math.sqrt(step) * normal).sum(1))


def main():
    options = gallery.options(__doc__)
    with hpvm.connect() as client:
        jobs = client.submit_array(hpvm.Graph.load(HERE / "monte-carlo.json"), JOBS, symbol="seed", strike=STRIKE,
                                   options=hpvm.SubmitOptions(symbols={"paths": PATHS, "days": DAYS}))
        results = [job.result(timeout=60) for job in jobs]
    sums = sum(result["sums"].sum(0) for result in results)
    count = JOBS * PATHS
    european, asian = sums[0] / count, sums[2] / count
    errors = [math.sqrt((sums[i + 1] / count - (sums[i] / count) ** 2) / count) for i in (0, 2)]
    exact = black_scholes()
    last = np.concatenate([result["last"] for result in results])
    want = np.concatenate([last_prices(seed) for seed in range(JOBS)])
    off = np.abs(last / want - 1).max()
    if options.picture:
        pixels, edges = gallery.blank(200, 340), np.linspace(60, 160, 81)
        heights = np.histogram(last, edges)[0] / count / (edges[1] - edges[0])
        for i, height in enumerate(heights):
            paid = edges[i] >= STRIKE  # The European option pays here.
            pixels[190 - int(height * 5500):190, 10 + 4 * i:13 + 4 * i] = gallery.DISTINCT[1 if paid else 0]
        prices = np.linspace(60, 160, 320)
        spread = VOLATILITY * math.sqrt(YEARS)
        density = np.exp(-((np.log(prices / START) - (RATE - VOLATILITY**2 / 2) * YEARS) / spread) ** 2 / 2)
        density /= prices * spread * math.sqrt(2 * math.pi)
        gallery.line(pixels, 190 - density * 5500, np.arange(10, 330), (0, 0, 0))
        gallery.write_png(options.picture, pixels)
    gallery.finish("monte-carlo", off < 1e-12 and abs(european - exact) < 4 * errors[0] and asian < european,
                   f"{count} paths in {JOBS} jobs; European {european:.3f} +- {errors[0]:.3f}, by formula "
                   f"{exact:.3f}; Asian {asian:.3f} +- {errors[1]:.3f}; prices off numpy's by {off:.1e}, at most "
                   "1e-12 allowed")


main()
