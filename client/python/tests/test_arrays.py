#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays of all kinds: types, strides, byte orders, DLPack, torch; and arrays that no tensor can hold."""

import threading
import unittest

import numpy as np

import support
from support import hpvm

TYPES = {"bool": "?", "i8": "i1", "u8": "u1", "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8",
         "f16": "f2", "f32": "f4", "f64": "f8"}


class Arrays(support.WithServer):
    def setUp(self):
        self.add = self.client.prepare(support.add(amount=0))

    def through(self, value):
        return self.add.run({"in": value})["out_out"]

    def test_every_type_comes_back(self):
        for name, dtype in TYPES.items():
            array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
            with self.subTest(name), self.client.buffer(array) as buffer:
                back = buffer.read()
                self.assertEqual(back.dtype, np.dtype(dtype))
                np.testing.assert_array_equal(back, array)

    def test_forms_of_one_array(self):
        plain = np.arange(10, dtype="i4")
        read_only = plain.copy()
        read_only.flags.writeable = False
        forms = {"plain": plain, "every second": np.arange(20, dtype="i4") // 2 * 1, "big-endian": plain.astype(">i4"),
                 "read-only": read_only, "a list": plain.tolist(), "reversed": plain[::-1][::-1],
                 "a column": np.stack([plain, plain], axis=1)[:, 0], "a memoryview": memoryview(plain),
                 "an array of bytes": np.frombuffer(plain.tobytes(), "i4")}
        forms["every second"] = np.repeat(plain, 2)[::2]
        for name, form in forms.items():
            with self.subTest(name):
                value = np.asarray(form, "i4") if name == "a list" else form
                self.assertEqual(self.through(value).tolist(), plain.tolist())

    def test_fortran_order_and_scalars(self):
        matmul = self.client.prepare(support.matmul())
        a = np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3))
        np.testing.assert_array_equal(matmul.run(A=a, B=a.T)["C"], a @ a.T)
        with self.client.buffer(np.float32(2.5)) as buffer:
            self.assertEqual(buffer.shape, ())
            self.assertEqual(float(buffer.read()), 2.5)

    def test_no_elements(self):
        self.assertEqual(self.through(np.empty(0, "i4")).shape, (0,))
        matmul = self.client.prepare(support.matmul())
        self.assertEqual(matmul.run(A=np.empty((0, 3), "f4"), B=np.empty((3, 2), "f4"))["C"].shape, (0, 2))
        self.assertEqual(matmul.run(A=np.empty((2, 0), "f4"), B=np.empty((0, 2), "f4"))["C"].tolist(), [[0, 0], [0, 0]])
        with self.assertRaisesRegex(hpvm.InvalidArgumentError, "at least 1 byte"):
            self.client.buffer(np.empty((3, 0, 2), "f8"))

    def test_what_no_tensor_holds(self):
        for value, why in (("text", "dtype"), (np.array([1 + 2j]), "complex"), (np.array([object()]), "object"),
                           (np.array(["a"]), "dtype"), (np.array(["2026-11-29"], "M8[D]"), "dtype"),
                           (np.zeros(2, [("x", "i4")]), "dtype"), (np.zeros(2, "g"), "float128|longdouble"), ([[1], [2, 3]], "")):
            with self.subTest(repr(value)), self.assertRaisesRegex(TypeError, "Input 'in'.*" + why):
                self.through(value)
        with self.assertRaisesRegex(TypeError, "33 dimensions|17 dimensions"):
            self.through(np.zeros((1,) * 17, "i4"))

    def test_wrong_types_and_shapes_are_told_by_name(self):
        for value in (np.zeros(3, "f4"), np.zeros((3, 3), "i4")):
            with self.assertRaises(hpvm.InvalidArgumentError) as caught:
                self.through(value)
            self.assertIn('"in"', str(caught.exception))
        with self.assertRaisesRegex(hpvm.InvalidArgumentError, "nothing"):
            self.add.run({"in": np.zeros(1, "i4"), "nothing": np.zeros(1, "i4")})

    def test_dlpack(self):
        import torch
        plain = np.arange(10, dtype="i4")
        self.assertEqual(self.through(torch.from_numpy(plain)).tolist(), plain.tolist())
        self.assertEqual(self.through(torch.arange(20, dtype=torch.int32)[::2] // 2).tolist(), plain.tolist())
        result = self.through(plain)
        taken = torch.from_dlpack(result)
        taken += 1
        self.assertEqual(result.tolist(), (plain + 1).tolist())  # The same memory.
        self.assertEqual(np.from_dlpack(self.through(plain)).tolist(), plain.tolist())

    def test_torch_bf16_and_gradients(self):
        import torch
        values = torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16)
        with self.client.buffer(values) as buffer:
            bits = buffer.read()
            self.assertEqual(bits.dtype, np.uint16)
            back = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)
            self.assertTrue(torch.equal(back, values))
        with self.client.buffer(torch.ones(3, requires_grad=True)) as buffer:
            self.assertEqual(buffer.read().tolist(), [1, 1, 1])

    def test_arrays_of_a_device_go_through_the_host(self):
        """Uses stand-ins for arrays of CuPy and JAX, which need a GPU; device_arrays.py has the real libraries."""
        plain = np.arange(10, dtype="i4")

        class OnDevice:
            def __dlpack_device__(self):
                return 2, 0  # CUDA.

            def __dlpack__(self, stream=None):
                raise AssertionError("Nobody here can read a device's memory.")

        class LikeCupy(OnDevice):
            def get(self):
                return plain

        class LikeJax(OnDevice):
            def __array__(self, dtype=None):
                return plain

        for array in (LikeCupy(), LikeJax()):
            self.assertEqual(self.through(array).tolist(), plain.tolist())

    def test_something_with_dlpack_that_fails(self):
        class Odd:
            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, stream=None):
                raise BufferError("not today")

            def __array__(self, dtype=None):
                raise ValueError("nor so")

        with self.assertRaisesRegex(TypeError, "Input 'in' cannot be converted to an array: nor so"):
            self.through(Odd())

    def test_an_array_that_another_thread_writes(self):
        array, stop = np.zeros(1 << 20, "i4"), threading.Event()

        def write():
            while not stop.is_set():
                array[:] += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                self.assertEqual(self.through(array).shape, array.shape)
        finally:
            stop.set()
            writer.join()
        self.assertTrue((self.through(array) == array).all())


if __name__ == "__main__":
    support.main()
