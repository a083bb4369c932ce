#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the matrices and checks the product, independently of hpvmd.

    check.py make A.npy B.npy        check.py verify A.npy B.npy C.npy
"""

import sys

import numpy as np


def main():
    action, *files = sys.argv[1:]
    if action == "make":
        rng = np.random.default_rng(7)
        np.save(files[0], rng.standard_normal((480, 512), dtype=np.float32))
        np.save(files[1], rng.standard_normal((512, 640), dtype=np.float32))
        return
    a, b, c = (np.load(f).astype(np.float64) for f in files)
    want = a @ b
    error = np.abs(c - want).max()
    # Each element sums 512 rounded products: 512 ulp of the largest partial sum bound its error.
    bound = 512 * 2.0**-24 * (np.abs(a) @ np.abs(b)).max()
    print(f"matmul: {a.shape[0]}x{a.shape[1]} times {b.shape[0]}x{b.shape[1]}; "
          f"largest error against float64 {error:.3g}, allowed {bound:.3g}")
    sys.exit(0 if c.shape == want.shape and error <= bound else 1)


if __name__ == "__main__":
    main()
