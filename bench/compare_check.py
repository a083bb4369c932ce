#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hpvm-bench compare`: against itself on a few short cases, and against scripted builds that only print given lines.

    compare_check.py BIN_FOLDER
"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()


def compare(base, *arguments):
    """Returns exit code, lines and standard error."""
    done = subprocess.run([BIN / "hpvm-bench", "compare", base, "--json", *arguments], capture_output=True, text=True, timeout=240)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def build(self, seconds, code=0):
        """Makes a build whose benchmark prints one case of `cpu`; with None the build does not know the benchmark."""
        line = json.dumps({"suite": "prk", "case": "nstream", "verified": True, "contenders": {"ours": {"seconds": seconds, "verified": True}}})
        program = pathlib.Path(self.folder.name, "bin", "hpvm-bench")
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n" + ("exit 2\n" if seconds is None else f"echo {shlex.quote(line)}\nexit {code}\n"))
        program.chmod(0o755)
        return self.folder.name

    def test_itself(self):
        code, lines, errors = compare(BIN.parent, "--only", "cpu/nstream", "--only", "overhead/dag/10000", "--pairs", "2")
        self.assertEqual(code, 0, errors)
        self.assertIn("Fewer than 5 pairs decide nothing", errors)
        cases = {(line["benchmark"], line["case"]): line for line in lines if "case" in line}
        for wanted in (("cpu", "nstream"), ("cpu", "nstream: ours_fast"), ("overhead", "dag/10000"), ("cpu", "geometric mean")):
            self.assertEqual(len(cases[wanted]["ratios"]), 2)
            self.assertGreater(cases[wanted]["low"], 0)
            self.assertFalse(cases[wanted]["slower"])

    def test_slower_than_the_base(self):
        code, lines, errors = compare(self.build(1e-9), "--only", "cpu/nstream")
        self.assertEqual(code, 1, errors)
        slower = {line["case"] for line in lines if line.get("slower")}
        self.assertEqual(slower, {"nstream", "geometric mean"})
        skipped = {line["skipped"]: line["reason"] for line in lines if "skipped" in line}
        self.assertEqual(skipped, {"cpu/nstream: ours_fast": "the base has no such figure"})

    def test_quicker_than_the_base(self):
        code, lines, _ = compare(self.build(1e9), "--only", "cpu/nstream", "--pairs", "1")
        self.assertEqual(code, 0)
        self.assertLess(next(line for line in lines if line.get("case") == "nstream")["ratio"], 0.5)

    def test_older_than_the_benchmark(self):
        code, lines, _ = compare(self.build(None), "--only", "cpu/nstream")
        self.assertEqual(code, 0)
        self.assertIn({"skipped": "cpu", "reason": "the base does not know it"}, lines)

    def test_no_build(self):
        code, lines, errors = compare("/nowhere")
        self.assertEqual((code, lines), (2, []))
        self.assertIn('"/nowhere" is no build\'s folder', errors)
        code, _, errors = compare(BIN.parent, "--only", "cqu")
        self.assertEqual(code, 2)
        self.assertIn("--only names no case", errors)


if __name__ == "__main__":
    unittest.main()
