#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks soak.py's judgement: it reports growth, and takes neither noise nor a warm-up for growth."""

import random
import unittest

import soak


def samples(value, count=360, seconds=5):
    """Returns samples in which the daemon's KiB are `value(i)`."""
    flat = {name: 10 for name in soak.TOLERANCE}
    return [(seconds * i, {**flat, "daemon KiB": value(i)}) for i in range(count)]


class Soak(unittest.TestCase):
    def check(self, value, is_found, count=360):
        problems, report = soak.judge(samples(value, count))
        self.assertEqual(bool(problems), is_found, f"{problems} {report}")
        self.assertEqual(len(report), len(soak.TOLERANCE) if count == 360 else 1)

    def test_flat(self):
        self.check(lambda i: 30_000, False)

    def test_noise(self):
        rng = random.Random(1)
        self.check(lambda i: 30_000 + rng.gauss(0, 1_500), False)

    def test_peaks(self):
        self.check(lambda i: 30_000 + (60_000 if i % 40 == 39 else 0), False)

    def test_warm_up(self):
        self.check(lambda i: 30_000 + 500 * min(i, 80), False)

    def test_leak(self):
        # 100 bytes a job at 50 jobs a second: 9 MiB in half an hour.
        self.check(lambda i: 30_000 + i * 5 * 50 * 100 / 1024, True)

    def test_leak_in_noise(self):
        rng = random.Random(2)
        self.check(lambda i: 30_000 + i * 5 * 50 * 200 / 1024 + rng.gauss(0, 1_000), True)

    def test_leak_of_descriptors(self):
        leaking = [(at, {**values, "daemon descriptors": 40 + at / 200}) for at, values in samples(lambda i: 30_000)]
        problems, _ = soak.judge(leaking)
        self.assertEqual(len(problems), 1)
        self.assertIn("daemon descriptors", problems[0])

    def test_what_cannot_be_seen(self):
        hidden = [(at, {**values, "executor descriptors": None}) for at, values in samples(lambda i: 30_000)]
        self.assertEqual(soak.judge(hidden)[0], [])

    def test_few_samples(self):
        self.check(lambda i: 30_000 * i, False, count=2)
        self.assertEqual(soak.judge([])[0], [])


if __name__ == "__main__":
    unittest.main()
