#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Passes arrays on a GPU in and out: CuPy, JAX and torch, as far as they are installed. For machines with a GPU.

    device_arrays.py PACKAGE SERVER

Prints a line for each library; exit code 1 when a library's result differs from numpy's."""

import importlib
import pathlib
import sys

sys.path.insert(0, sys.argv[1])

import numpy as np  # noqa: E402

import hpvm  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]


def cupy(array):
    import cupy
    return cupy.asarray(array), lambda back: cupy.asnumpy(cupy.from_dlpack(cupy.asarray(back)))


def jax(array):
    import jax
    return jax.device_put(array), lambda back: np.asarray(jax.device_put(back))


def torch(array):
    import torch
    return torch.from_numpy(array).cuda(), lambda back: torch.from_dlpack(back).cuda().cpu().numpy()


def main():
    failed = False
    a = np.arange(300 * 200, dtype="f4").reshape(300, 200) % 7
    with hpvm.connect(sys.argv[2]) as client:
        matmul = client.prepare(hpvm.Graph.load(ROOT / "examples/matmul/matmul.json"))
        for make in (cupy, jax, torch):
            try:
                importlib.import_module(make.__name__)
                on_device, back = make(a)
            except Exception as error:  # The library is not installed, or finds no GPU.
                print(f"{make.__name__}: skipped ({type(error).__name__}: {error})")
                continue
            result = back(matmul.run(A=on_device, B=np.ascontiguousarray(a.T))["C"])
            is_good = np.array_equal(result, a @ a.T)
            failed |= not is_good
            print(f"{make.__name__}: {'right' if is_good else 'WRONG'}, {type(on_device).__module__}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
