#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that a file outside its folder's namespace is a fault, wherever the file leaves it, and so is a folder without a namespace."""
import pathlib
import unittest

import namespaces
import tidy


def found(path, text):
    return [what for _, what in namespaces.faults(path, text.split("\n"))]


def block(space, body="int F();\n"):
    return f"namespace {space} {{\n\n{body}\n}}  // namespace {space}\n"


class NamespacesTest(unittest.TestCase):
    def test_a_planted_file_fails(self):
        for path, space in (("engine/planted.h", "hpvm"), ("engine/run/planted.cc", "hpvm"), ("executor/planted_test.cc", "hpvm"),
                            ("sandbox/testing/planted.h", "hpvm::testing"), ("builder/planted.cc", "hpvm::supervisor"),
                            ("backends/shared/planted.h", "hpvm"), ("base/planted.h", "hpvm::engine"),
                            ("compiler/api/planted.h", "hpvm::ir"), ("client/planted.cc", "hpvm::ctl"),
                            ("backends/cpu/worker.h", "hpvm"), ("compiler/back/llvm/a_test.cc", "hpvm"), ("server/core/planted.cc", "other")):
            with self.subTest(path=path):
                self.assertRegex(" ".join(found(path, block(space))), f"namespace {space};.* stand in hpvm")

    def test_tidy_asks(self):
        faults = []
        lines = ["// SPDX-License-Identifier: Apache-2.0", *block("hpvm").split("\n")]
        tidy.check_source(pathlib.PurePosixPath("engine/planted.cc"), lines[:-1], None, lambda *fault: faults.append(fault))
        self.assertEqual(faults, [(2, "This is in namespace hpvm; files of engine stand in hpvm::engine (docs/decisions/0018-namespaces.md).")])

    def test_the_room_and_what_is_below_it_passes(self):
        for path, space in (("engine/a.h", "hpvm::engine"), ("engine/testing/a.h", "hpvm::engine::testing"),
                            ("scheduler/placement/a.cc", "hpvm::scheduler::placing"), ("base/a.h", "hpvm"), ("base/a.h", "hpvm::limits"),
                            ("backends/vulkan/device.h", "hpvm"), ("backends/null/device.cc", "hpvm"), ("compiler/back/a.h", "hpvm::gpu"),
                            ("compiler/back/llvm/testing/a.h", "hpvm::cpu::testing"), ("compiler/pass/tile/a.h", "hpvm::pass")):
            with self.subTest(path=path):
                self.assertEqual(found(path, block(space)), [])

    def test_another_rooms_class_may_be_declared(self):
        declared = "namespace grpc {\nclass Status;\n}\n\n" + block("hpvm::engine", "class Engine;  // Ours.\n")
        self.assertEqual(found("server/a.h", declared + block("hpvm::server")), [])
        self.assertEqual(found("base/a.h", block("hpvm", "namespace gpu {\nclass Forced;\n}\n\nint F();\n")), [])

    def test_part_of_a_file_is_enough(self):
        self.assertEqual(len(found("engine/a.cc", block("hpvm::engine") + block("hpvm"))), 1)
        nested = block("hpvm", "namespace engine {\nint F() {\n  return 0;\n}\n}  // namespace engine\n\nint G();\n")
        self.assertEqual(len(found("engine/a.cc", nested)), 1)
        self.assertEqual(len(found("engine/a.cc", block("hpvm", "namespace {\n\nint F();\n\n}  // namespace\nint G();\n"))), 2)

    def test_no_namespace_and_no_room(self):
        self.assertEqual(len(found("engine/a.h", "int F();\n")), 1)
        self.assertEqual(len(found("engine/a.cc", "namespace {\nint F();\n}  // namespace\n")), 1)
        self.assertEqual(found("executor/main.cc", "int main() { return 0; }\n"), [])
        self.assertIn("has no room", found("attic/a.h", block("hpvm::attic"))[0])


if __name__ == "__main__":
    unittest.main()
