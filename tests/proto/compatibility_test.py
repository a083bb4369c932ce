#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the checker of compatibility with copies that are broken on purpose."""

import contextlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

import compatibility
from compatibility import GOLDEN, ROOT

SMALL = """syntax = "proto3";
package hpvm.v1;
message Job {
  string id = 1;
  repeated int32 parts = 2;
  optional uint64 bytes = 3;
  oneof kind {
    string name = 4;
    State state = 5;
  }
  map<string, Part> labels = 6;
  reserved 8 to 10;
  reserved "old";
  message Part {
    bool done = 1;
  }
}
enum State {
  STATE_UNKNOWN = 0;
  STATE_DONE = 1;
  reserved 5;
}
service Jobs {
  rpc Get(Job) returns (Job);
  rpc Watch(Job) returns (stream Job);
}
"""
# Each entry replaces one text by another, and names a part of the expected message.
BREAKS = {
    "a field is gone": ("  string id = 1;\n", "", "field id = 1 of hpvm.v1.Job is gone"),
    "gone and reserved": ("  string id = 1;\n", "  reserved 1;\n", "field id = 1 of hpvm.v1.Job is gone"),
    "renumbered": ("string id = 1;", "string id = 7;", "field id = 1 of hpvm.v1.Job has the number 7 now"),
    "renamed": ("string id = 1;", "string identity = 1;", "field 1 of hpvm.v1.Job is called identity and was id"),
    "another type": ("string id = 1;", "bytes id = 1;", 'field id = 1 of hpvm.v1.Job is "bytes" and was "string"'),
    "no longer repeated": ("repeated int32 parts", "int32 parts", '"int32" and was "repeated int32"'),
    "no longer optional": ("optional uint64 bytes", "uint64 bytes", '"uint64" and was "optional uint64"'),
    "out of its oneof": ("    string name = 4;\n    State state = 5;\n  }\n", "    State state = 5;\n  }\n  string name = 4;\n",
                         '"string" and was "oneof kind: string"'),
    "into a oneof": ("  string id = 1;\n  repeated int32 parts = 2;\n  optional uint64 bytes = 3;\n  oneof kind {\n",
                     "  repeated int32 parts = 2;\n  optional uint64 bytes = 3;\n  oneof kind {\n    string id = 1;\n", "oneof kind: string"),
    "another message": ("State state = 5;", "Part state = 5;", '"oneof kind: hpvm.v1.Job.Part" and was'),
    "a map of others": ("map<string, Part>", "map<string, string>", "hpvm.v1.Job.LabelsEntry"),
    "a nested field": ("bool done = 1;", "int32 done = 1;", "field done = 1 of hpvm.v1.Job.Part"),
    "a reserved number": ("reserved 8 to 10;", "reserved 8 to 9; string more = 10;", "field more = 10 of hpvm.v1.Job takes what is reserved"),
    "a reserved name": ('reserved "old";', "string old = 20;", "field old = 20 of hpvm.v1.Job takes what is reserved"),
    "a value is gone": ("  STATE_DONE = 1;\n", "", "value STATE_DONE = 1 of hpvm.v1.State is gone"),
    "a value is renamed": ("STATE_DONE = 1;", "STATE_ENDED = 1;", "value 1 of hpvm.v1.State is called STATE_ENDED and was STATE_DONE"),
    "a value is renumbered": ("STATE_DONE = 1;", "STATE_DONE = 2;", "value STATE_DONE = 1 of hpvm.v1.State has the number 2 now"),
    "a reserved value": ("reserved 5;", "STATE_LATE = 5;", "value STATE_LATE = 5 of hpvm.v1.State takes what is reserved"),
    "a method is gone": ("  rpc Get(Job) returns (Job);\n", "", "method hpvm.v1.Jobs.Get is gone"),
    "a method is renamed": ("rpc Get(", "rpc Fetch(", "method hpvm.v1.Jobs.Get is gone"),
    "a method asks for another": ("rpc Get(Job)", "rpc Get(Job.Part)", "method hpvm.v1.Jobs.Get is (hpvm.v1.Job.Part"),
    "a method no longer streams": ("(stream Job)", "(Job)", "method hpvm.v1.Jobs.Watch is"),
    "a message is gone": ("  message Part {\n    bool done = 1;\n  }\n", "", "message hpvm.v1.Job.Part is gone"),
    "a service is renamed": ("service Jobs", "service Work", "service hpvm.v1.Jobs is gone"),
}
ADDITIONS = {
    "a field": ("string id = 1;", "string id = 1; string more = 7;"),
    "a field of a oneof": ("string name = 4;", "string name = 4; bytes raw = 11;"),
    "a value": ("STATE_DONE = 1;", "STATE_DONE = 1; STATE_LATE = 2;"),
    "a method": ("rpc Get(Job)", "rpc List(Job) returns (Job); rpc Get(Job)"),
    "a message": ("enum State", "message Other { string id = 1; }\nenum State"),
    "a service": ("service Jobs", "service More { rpc Get(Job) returns (Job); }\nservice Jobs"),
    "more is reserved": ("reserved 8 to 10;", "reserved 8 to 12;"),
    "deprecated": ("string id = 1;", "string id = 1 [deprecated = true];"),
    "another order": ("  string id = 1;\n  repeated int32 parts = 2;\n", "  repeated int32 parts = 2;\n  string id = 1;\n"),
    "a comment": ("message Job {", "// All of it.\nmessage Job {"),
}


class Checker(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="hpvm-proto-")
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        self.golden = self.folder / "golden.txt"
        (self.folder / "hpvm/v1").mkdir(parents=True)

    def small(self, text):
        (self.folder / "released.txt").write_text("# Those there are.\njob\n")
        (self.folder / "hpvm/v1/job.proto").write_text(text)

    def check(self, bless=False):
        """Returns the checker's exit code and output."""
        printed, code = io.StringIO(), 0
        with mock.patch.object(sys, "argv", ["compatibility.py", str(self.folder), str(self.golden)]), mock.patch.dict(
                os.environ, {"HPVMD_BLESS": "1" if bless else ""}), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                compatibility.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
                printed.write("" if isinstance(end.code, int) else end.code)
        return code, printed.getvalue()

    def test_breaks(self):
        self.small(SMALL)
        self.assertEqual(self.check(bless=True)[0], 0)
        before = self.golden.read_text()
        for name, (old, new, said) in BREAKS.items():
            with self.subTest(name):
                self.assertIn(old, SMALL)
                text = SMALL.replace(old, new)
                if name == "a message is gone":  # Replaces its uses as well.
                    text = text.replace("map<string, Part> labels", "map<string, State> labels")
                self.small(text)
                for bless in (False, True):  # HPVMD_BLESS accepts additions only.
                    code, printed = self.check(bless)
                    self.assertEqual(code, 1, printed)
                    self.assertIn(said, printed)
                self.assertEqual(self.golden.read_text(), before)

    def test_additions(self):
        for name, (old, new) in ADDITIONS.items():
            with self.subTest(name):
                self.golden.unlink(missing_ok=True)
                self.small(SMALL)
                self.assertEqual(self.check(bless=True)[0], 0)
                before = self.golden.read_text()
                self.assertIn(old, SMALL)
                self.small(SMALL.replace(old, new))
                code, printed = self.check()
                self.assertEqual(code, 0, printed)
                changes = name not in ("deprecated", "another order", "a comment")
                self.assertEqual("HPVMD_BLESS" in printed, changes, printed)
                self.assertEqual(self.check(bless=True)[0], 0)
                self.assertEqual(self.golden.read_text() != before, changes)
                self.small(SMALL)  # A released item stays; only reserved numbers and names may be given back.
                self.assertEqual(self.check()[0], 1 if changes and name != "more is reserved" else 0)

    def test_only_released_files(self):
        self.small(SMALL)
        self.check(bless=True)
        (self.folder / "hpvm/v1/next.proto").write_text(SMALL.replace("Job", "Next").replace("State", "NextState"))
        code, printed = self.check()
        self.assertEqual(code, 0, printed)
        self.assertIn("not released: next", printed)
        (self.folder / "released.txt").write_text("next\n")
        code, printed = self.check()
        self.assertEqual(code, 1)
        self.assertIn("message hpvm.v1.Job is gone", printed)

    def test_real_files(self):
        """The real files pass; a copy with one renumbered field fails, and so does a file that is not a .proto."""
        shutil.copytree(ROOT / "proto/hpvm/v1", self.folder / "hpvm/v1", dirs_exist_ok=True)
        shutil.copy(ROOT / "proto/released.txt", self.folder)
        shutil.copy(GOLDEN, self.golden)
        self.assertEqual(self.check()[0], 0)
        job = self.folder / "hpvm/v1/job.proto"
        self.assertIn("string handle = 2;", job.read_text())
        job.write_text(job.read_text().replace("string handle = 2;", "string handle = 30;", 1))
        code, printed = self.check()
        self.assertEqual(code, 1)
        self.assertIn("field handle = 2 of hpvm.v1.RunRequest has the number 30 now", printed)
        job.write_text("this is no file of protocols")
        code, printed = self.check()
        self.assertEqual(code, 1)
        self.assertIn("cannot be read", printed)

    def test_the_golden_file_says_all(self):
        found = compatibility.described(ROOT / "proto", compatibility.released(ROOT / "proto"))
        self.assertEqual(compatibility.read(compatibility.written(found)), found)
        self.assertGreater(len(found), 100)


if __name__ == "__main__":
    unittest.main(verbosity=2)
