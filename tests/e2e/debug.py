#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the means of debugging end to end: lines in traps, prints, asserts, `run --check`, and the compiler's limits.

    debug.py BIN_FOLDER [TestCase.test ...]
"""

import json
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

import numpy as np

from e2e import FAILED, HERE, OK, USAGE, WithDaemon, one_node, port
from wasm_module import HARD_STATEMENT, module_of

SOURCE = (HERE / "debug_kernels.c").read_text().splitlines()
EVERYWHERE = (("run",), ("run", "--local"), ("submit",))


def line_of(mark):
    """Returns the line of debug_kernels.c that has the comment "at: mark"."""
    return 1 + next(i for i, line in enumerate(SOURCE) if line.endswith(f"// at: {mark}"))


def debug_node(entry, ports, **more):
    document = one_node(entry, ports, **more)
    document["modules"]["k"]["source"]["file"] = "debug.wasm"
    return document


IN_OUT = (port("in", "in"), port("out", "out"))


class DebugCase(WithDaemon):
    files = ("debug.wasm",)
    devices = "auto"

    def run_graph(self, document, values, *arguments, command=("run",), code=OK, name="in"):
        graph = self.folder / "graph.json"
        graph.write_text(json.dumps(document))
        np.save(self.folder / "in.npy", np.asarray(values, np.int32))
        done = self.daemon.ctl(*command, graph, "--input", f"{name}={self.folder}/in.npy", *arguments)
        self.assertEqual(done.returncode, code, f"stdout: {done.stdout}\nstderr: {done.stderr}\n"
                                                f"log: {self.daemon.log.read_text()[-2000:]}")
        return done


class Debugging(DebugCase):
    def test_traps_name_the_line(self):
        document = debug_node("lookup", IN_OUT, scalars=[("distance", 100_000_000)])
        # A check runs on the interpreter and reports the lowest instance that traps.
        for command, instances in [(command, "[12]") for command in EVERYWHERE] + [(("run", "--check"), "1")]:
            with self.subTest(command=command):
                done = self.run_graph(document, [1, 2, 3], command=command, code=FAILED)
                self.assertRegex(done.stderr, r'Node "node" trapped: out of bounds memory access at address \d+ '
                                              rf'\(4 bytes\) in instance \({instances}, 0, 0\), function "lookup", '
                                              rf'debug_kernels\.c:{line_of("fetch")}:10')

    def test_prints(self):
        document = debug_node("chatty", IN_OUT)
        want = [f"node({i}, 0, 0): in[{i}] is {v}, half of it {v / 2:.1f}" for i, v in enumerate((3, 4, 5))]
        for command in EVERYWHERE:
            with self.subTest(command=command):
                done = self.run_graph(document, [3, 4, 5], command=command)
                self.assertEqual([line for line in done.stderr.splitlines() if line.startswith("node(")], want)
        done = self.run_graph(document, [3, 4, 5], "-o", "json", command=("submit",))
        report = json.loads(done.stdout)
        self.assertEqual([line["text"] for line in report["log"]["lines"]], [line.split(": ", 1)[1] for line in want])
        logs = self.daemon.ctl("jobs", "logs", report["job"])
        self.assertEqual(logs.stdout.splitlines(), want)

    def test_prints_are_bounded_and_in_order(self):
        document = debug_node("verbose", [port("out", "inout")], scalars=[("lines", 700)])
        done = self.run_graph(document, [0, 0, 0, 0], name="out")
        lines = [line for line in done.stderr.splitlines() if line.startswith("node(")]
        self.assertEqual(lines, [f"node({i}, 0, 0): line {n} of many" for i in (0, 1) for n in range(700)][:1000])
        self.assertIn("... 1800 more lines were dropped", done.stderr)

    def test_prints_cannot_steer_a_terminal(self):
        done = self.run_graph(debug_node("steer", [port("out", "inout")], instances="1"), [0], name="out")
        self.assertIn("node(0, 0, 0): ?[2J?? done\nnode(0, 0, 0): second line\n", done.stderr)

    def test_asserts_keep_what_was_printed(self):
        document = debug_node("claims", IN_OUT)
        for command in EVERYWHERE:
            with self.subTest(command=command):
                done = self.run_graph(document, [5, 0], command=command, code=FAILED)
                self.assertIn("node(1, 0, 0): looking at 0", done.stderr)
                self.assertRegex(done.stderr, r'in instance \(1, 0, 0\), function "claims", '
                                              rf'debug_kernels\.c:{line_of("assert")}:')

    def test_check_finds(self):
        cases = [("race", "race", "race"), ("accumulate", "uninitialised read", "uninitialised"),
                 ("stray", "wrong buffer", "stray")]
        for entry, kind, mark in cases:
            for command in (("run", "--check"), ("run", "--local", "--check")):
                with self.subTest(entry, command=command):
                    out = self.folder / "checked.npy"
                    out.unlink(missing_ok=True)
                    done = self.run_graph(debug_node(entry, IN_OUT), [1, 2, 3, 4], "-o", "json", "--output",
                                          f"out_out={out}", command=command, code=FAILED)
                    self.assertTrue(out.exists())
                    findings = json.loads(done.stdout)["log"]["findings"]
                    self.assertEqual({finding["kind"] for finding in findings}, {kind}, findings)
                    self.assertEqual(findings[0]["node"], "node")
                    self.assertIn(f"debug_kernels.c:{line_of(mark)}", findings[0]["message"])
                    self.assertIn(f"debug_kernels.c:{line_of(mark)}", findings[0]["place"])
                    text = self.run_graph(debug_node(entry, IN_OUT), [1, 2, 3, 4], command=command, code=FAILED)
                    self.assertIn(f'check: node "node": {findings[0]["message"]}', text.stderr)

    def test_check_finds_missed_barriers(self):
        document = debug_node("skip", IN_OUT, group=[4])
        for command in (("run", "--check"), ("run", "--local", "--check")):
            with self.subTest(command=command):
                done = self.run_graph(document, [1, 0, 1, 1], command=command, code=FAILED)  # The run also traps.
                self.assertRegex(done.stderr, r'check: node "node": missed barrier: instance \(0, 0, 0\) waits at a barrier '
                                              rf'.*debug_kernels\.c:{line_of("barrier")}:5.* instance \(1, 0, 0\) has ended')
                self.assertIn('Node "node" trapped: barrier', done.stderr)

    def test_check_of_a_good_kernel(self):
        done = self.run_graph(debug_node("good", IN_OUT), [1, 2, 3], "--output", f"out_out={self.folder}/good.npy",
                              command=("run", "--check"))
        self.assertNotIn("check:", done.stderr)
        self.assertEqual(np.load(self.folder / "good.npy").tolist(), [2, 4, 6])

    def test_broken_debug_information_costs_nothing(self):
        module = (HERE / "debug.wasm").read_bytes()
        at = module.index(b".debug_line") + len(".debug_line")
        for name, broken in (("zeros", bytes(64)), ("ones", b"\xff" * 64)):
            with self.subTest(name):
                (self.folder / "debug.wasm").write_bytes(module[:at] + broken + module[at + 64:])
                try:
                    done = self.run_graph(debug_node("good", IN_OUT), [1], "--output", f"out_out={self.folder}/b.npy")
                    self.assertEqual(np.load(self.folder / "b.npy").tolist(), [2])
                    self.assertIn("hpvmctl: warning: ", done.stderr)
                    self.assertIn("debug information is ignored in part", done.stderr)
                finally:
                    (self.folder / "debug.wasm").write_bytes(module)


class Caps(DebugCase):
    """Modules that are hard to compile end within the limits, with an error message, and do not affect other tenants."""

    devices = "cpu"  # Another device might run a module that the CPU's compiler refuses.

    def check_compile(self, module, wants, seconds):
        (self.folder / "hard.wasm").write_bytes(module)
        document = debug_node("f", IN_OUT)
        document["modules"]["k"]["source"]["file"] = "hard.wasm"
        start = time.monotonic()
        graph = self.folder / "graph.json"
        graph.write_text(json.dumps(document))
        np.save(self.folder / "in.npy", np.asarray([1], np.int32))
        done = self.daemon.ctl("run", graph, "--input", f"in={self.folder}/in.npy", timeout=seconds + 30)
        self.assertLess(time.monotonic() - start, seconds + 20)
        if wants is None:
            self.assertEqual(done.returncode, OK, done.stderr)
        else:
            # The module is invalid, or it exceeds a limit of this server.
            self.assertIn(done.returncode, (USAGE, FAILED), done.stderr)
            self.assertRegex(done.stderr, wants)
        self.run_graph(debug_node("good", IN_OUT), [1])  # Other runs continue.

    def test_start_function_without_end(self):
        self.check_compile(module_of([b"\x03\x40\x0c\x00\x0b", b""], start=0), "start", 40)

    def test_huge_function(self):
        self.check_compile(module_of([HARD_STATEMENT * 200_000]), "limit|cap|seconds|memory", 40)

    def test_many_functions(self):
        # None of the functions is reached, so each costs only its reading.
        self.check_compile(module_of([b""] * 999_999 + [b""]), None, 40)
        self.check_compile(module_of([b""] * 1_000_000 + [b""]), "more functions than the limit", 40)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
