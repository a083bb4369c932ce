#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every patch finds its place in the sources, names existing tests, and is absent from the product's text."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import mutants
import patches
import seeded

TEXT = "".join(f"line {i}\n" for i in range(20))
HEAD = "Bug: It is wrong.\nTests: some_test\n--- a/x.cc\n+++ b/x.cc\n"


def parsed(hunk, name="bug"):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.patch"
        path.write_text(HEAD + hunk, encoding="utf-8")
        return patches.read(path)


def change(line, name="bug", number=None):
    """Returns a patch that replaces a line with a switch, with one line of context on either side."""
    number = line if number is None else number
    return parsed(f"@@ -{number} +{number} @@\n line {line - 1}\n-line {line}\n+HPVMD_MUTANT(\"{name}\")\n"
                  f" line {line + 1}\n", name)


class PatchTest(unittest.TestCase):
    def test_neighbours_do_not_disturb_each_other(self):
        both = patches.apply([change(5), change(6, "other")], TEXT).splitlines()
        self.assertEqual(both[0], patches.INCLUDE.strip())
        self.assertEqual(both[5:9], ["line 4", 'HPVMD_MUTANT("bug")', 'HPVMD_MUTANT("other")', "line 7"])

    def test_moved_text_and_changed_context_are_found(self):
        moved = "new\n" * 7 + TEXT.replace("line 4\n", "line four\n")
        self.assertIn('line four\nHPVMD_MUTANT("bug")\nline 6\n', patches.apply([change(5)], moved))

    def test_the_nearest_of_several_places_is_taken(self):
        twice = TEXT + TEXT
        found = patches.apply([change(5, number=25)], twice)
        self.assertTrue(found.endswith(TEXT.replace("line 5\n", 'HPVMD_MUTANT("bug")\n')))

    def test_lost_places_and_conflicts_are_said(self):
        with self.assertRaisesRegex(patches.PatchError, "bug: no place for the hunk of line 5"):
            patches.apply([change(5)], TEXT.replace("line 5\n", "line five\n"))
        with self.assertRaisesRegex(patches.PatchError, "bug and other change the same lines"):
            patches.apply([change(5), change(5, "other")], TEXT)

    def test_what_is_behind_no_switch_is_refused(self):
        with self.assertRaisesRegex(patches.PatchError, "not behind"):
            parsed("@@ -1 +1 @@\n-line 0\n+line zero\n")


class DescriptionTest(unittest.TestCase):
    def test_says_how_a_test_failed(self):
        for output, status, expected in (
                ("FOUND seed 12: other bytes. v3 16x1x1 checked: ...", 1, "seed 12: other bytes"),
                ("FOUND seed 7 on opencl:0, variant 1: param 0 differs", 1, "seed 7: param 0 differs"),
                ("REFUTED seed 3740 launch 2 (proven): Instance (0, 0, 0): ...", 1, "seed 3740: a claim of the prover"),
                ("[ RUN      ] A.B\n[  FAILED  ] A.B (1 ms)", 1, "A.B"),
                ("[ RUN      ] A.B\n", -11, "A.B: signal 11"),
                ("FAILED /x/y.ir: a crash. More", 1, "y.ir: a crash"),
                ("", 3, "exit status 3")):
            self.assertEqual(mutants.describe(output, status), expected)


class SourcesTest(unittest.TestCase):
    def setUp(self):
        self.known = patches.read_all(mutants.HERE / "patches")
        self.system = patches.read_all(mutants.HERE / "system")

    def test_every_patch_has_its_place(self):
        self.assertGreaterEqual(len(self.known), 40)
        self.assertGreaterEqual(len(self.system), 70)
        for known in (self.known, self.system):
            for file, text in patches.apply_all(known, seeded.ROOT).items():
                self.assertIn(patches.INCLUDE, text, file)

    def test_every_test_is_known(self):
        built = "".join(path.read_text(encoding="utf-8") for folder in ("compiler", "tests", "backends")
                        for pattern in ("CMakeLists.txt", "*.cmake") for path in (seeded.ROOT / folder).rglob(pattern))
        for patch in self.known:
            for test in mutants.tests_of(patch):
                stem = re.sub(r"(?<=^gang_|back_)(arith|assumed|control|memory|record|stack|transpose|vector)(?=_test$)", "${part}", test)
                self.assertTrue(test in mutants.CAMPAIGNS or f"({test}\n" in built or f"({test} " in built or
                                f"({stem} " in built, f"{patch.name} names {test}")

    def test_no_switch_is_in_the_product(self):
        found = subprocess.run(["grep", "-rlE", r"HPVMD_MUTANT\(", "--include=*.cc", "--include=*.h", "base",
                                "compiler", "backends", "scheduler", "engine", "server", "executor", "supervisor"], cwd=seeded.ROOT, capture_output=True,
                               text=True, check=False).stdout
        self.assertEqual(found, "")


if __name__ == "__main__":
    sys.exit(unittest.main())
