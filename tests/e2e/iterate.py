#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests iterations on the server, extents that depend on data, and graphs larger than memory, with the real programs.

    iterate.py BIN_FOLDER [TestCase.test ...]
"""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest

import numpy as np

from e2e import FAILED, HERE, OK, USAGE, Daemon

MODULES = {"k": {"kind": "wasm", "source": {"file": "iterate.wasm"}}}


def tensor(count="n", kind="f64"):
    return {"type": kind, "shape": [] if count is None else [count]}


def port(name, access, count="n", kind="f64"):
    return {"name": name, "access": access, **tensor(count, kind)}


def leaf(entry, *ports, instances=None, scalars=()):
    return {"ports": list(ports), "scalars": [{"name": n, "type": "i32", "value": v} for n, v in scalars],
            "variants": [{"module": "k", "entry": entry}], **({"instances": instances} if instances else {})}


def edges(*pairs):
    return [{"from": a, "to": b} for a, b in pairs]


NEWTON = {
    "hpvm": 1, "name": "newton", "modules": MODULES,
    "inputs": {"guess": tensor(), "squares": tensor()},
    "outputs": {"root": tensor(), "done": tensor(None, "u32")},
    "nodes": {
        "step": leaf("newton", port("guess", "in"), port("squares", "in"), port("better", "out"), instances=["n"]),
        "check": leaf("settled", port("before", "in"), port("after", "in"), port("done", "out", None, "u32"),
                      scalars=[("count", "n")])},
    "edges": edges(("guess", "step.guess"), ("squares", "step.squares"), ("guess", "check.before"),
                   ("step.better", "check.after"), ("step.better", "root"), ("check.done", "done"))}


def compacting(extra):
    return {
        "hpvm": 1, "name": "compacting", "modules": MODULES, "inputs": {"values": tensor()},
        "outputs": {"out": tensor(), "count": tensor(None, "u32")},
        "nodes": {
            "compact": leaf("compact", port("values", "in"), port("kept", "out"), port("count", "out", None, "u32"),
                            scalars=[("size", "n"), ("extra", extra)]),
            "plus": leaf("plus_one", port("count", "in", None, "u32"), port("kept", "in"), port("out", "out"),
                         instances=[{"port": "count", "max": "n"}])},
        "edges": edges(("values", "compact.values"), ("compact.count", "plus.count"), ("compact.kept", "plus.kept"),
                       ("plus.out", "out"), ("compact.count", "count"))}


def pyramid(width):
    """Returns a graph that makes `width` vectors from one, and needs all at the end: a working set of `width` vectors."""
    nodes, pairs = {}, []
    for i in range(width):
        nodes[f"make{i}"] = leaf("sum", port("a", "in"), port("b", "in"), port("out", "out"), instances=["n"])
        pairs += [("x", f"make{i}.a"), ("x" if i == 0 else f"make{i - 1}.out", f"make{i}.b")]
    for i in range(1, width):
        nodes[f"add{i}"] = leaf("sum", port("a", "in"), port("b", "in"), port("out", "out"), instances=["n"])
        pairs += [(f"make0.out" if i == 1 else f"add{i - 1}.out", f"add{i}.a"), (f"make{i}.out", f"add{i}.b")]
    # The first vector made is used last.
    pairs += [(f"add{width - 1}.out", "total")]
    return {"hpvm": 1, "name": "pyramid", "modules": MODULES, "inputs": {"x": tensor()}, "outputs": {"total": tensor()},
            "nodes": nodes, "edges": edges(*pairs)}


class Base(unittest.TestCase):
    def start(self, config=""):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-e2e-"))
        shutil.copy(HERE / "iterate.wasm", self.folder)
        (self.folder / "hpvmd.toml").write_text(config)
        self.daemon = Daemon(self.folder / "daemon", "--devices", "cpu", "--config", self.folder / "hpvmd.toml")
        self.ctl("devices", "--connect-timeout", "30")

    def tearDown(self):
        code = self.daemon.stop()
        log = self.daemon.log.read_text()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.assertEqual(code, 0, log[-2000:])

    def ctl(self, *arguments, code=OK):
        done = self.daemon.ctl(*arguments)
        self.assertEqual(done.returncode, code, f"{done.stdout}\n{done.stderr}\n{self.daemon.log.read_text()[-2000:]}")
        return done

    def save(self, name, values):
        np.save(self.folder / f"{name}.npy", np.asarray(values, np.float64))
        return f"{name}={self.folder}/{name}.npy"

    def load(self, name):
        return np.load(self.folder / f"{name}.npy")

    def run_graph(self, document, *arguments, command=("run",), code=OK):
        (self.folder / "g.json").write_text(json.dumps(document))
        return self.ctl("-o", "json", *command, self.folder / "g.json", *arguments, code=code)


class Iterations(Base):
    def setUp(self):
        self.start()
        self.squares = np.arange(1, 1001, dtype=np.float64)
        self.inputs = ["--input", self.save("guess", np.ones(1000)), "--input", self.save("squares", self.squares),
                       "--output", f"root={self.folder}/root.npy"]

    def newton(self, *arguments, command=("run",), code=OK):
        return self.run_graph(NEWTON, *self.inputs, *arguments, command=command, code=code)

    def test_runs_until_it_has_converged(self):
        for command in [("run",), ("run", "--local")]:
            with self.subTest(command=command):
                done = json.loads(self.newton("--repeat", 1000, "--rotate", "root=guess", "--until", "done",
                                              command=command).stdout)
                self.assertTrue(done["converged"])
                self.assertGreater(done["repetitions"], 5)
                self.assertLess(done["repetitions"], 40)
                for placement in done["placements"]:
                    self.assertEqual(placement["runs"], done["repetitions"])
                    self.assertGreaterEqual(int(placement["total_ns"]), int(placement["end_ns"]) - int(placement["start_ns"]))
                    self.assertRegex(placement["variant"], r"^(tiles of \d+ x \d+|one at a time)(, unchecked)?$")
                np.testing.assert_allclose(self.load("root"), np.sqrt(self.squares), rtol=1e-14)

    def test_the_table_sums_over_repetitions(self):
        (self.folder / "g.json").write_text(json.dumps(NEWTON))
        text = self.ctl("run", self.folder / "g.json", *self.inputs, "--repeat", 3).stdout
        self.assertRegex(text, r"NODE +DEVICE +VARIANT +START +TIME +RUNS")
        self.assertRegex(text, r"(?m) 3$")

    def test_job_converges_too(self):
        self.newton("--repeat", 1000, "--rotate", "root=guess", "--until", "done", command=("submit",))
        np.testing.assert_allclose(self.load("root"), np.sqrt(self.squares), rtol=1e-14)

    def test_repetitions_hand_over(self):
        expected = np.ones(1000)
        for _ in range(3):
            expected = 0.5 * (expected + self.squares / expected)
        done = json.loads(self.newton("--repeat", 3, "--rotate", "root=guess").stdout)
        self.assertEqual((done["repetitions"], done["converged"]), (3, False))
        np.testing.assert_array_equal(self.load("root"), expected)
        # The caller's input is unchanged.
        np.testing.assert_array_equal(self.load("guess"), np.ones(1000))
        self.newton("--repeat", 3)
        np.testing.assert_array_equal(self.load("root"), 0.5 * (1 + self.squares))

    def test_bad_rotations(self):
        graph = self.write()
        for arguments, text in [(["--rotate", "root=nobody"], "nobody"), (["--rotate", "rot=guess"], "rot"),
                                (["--rotate", "done=guess"], "done"), (["--until", "root"], "root"),
                                (["--until", "nobody"], "nobody"), (["--rotate", "root"], "root"),
                                (["--rotate", "root=guess", "--rotate", "root=squares"], "twice")]:
            with self.subTest(arguments=arguments):
                done = self.daemon.ctl("run", graph, *self.inputs, "--repeat", 2, *arguments)
                self.assertIn(done.returncode, (USAGE, FAILED), done.stderr)
                self.assertIn(text, done.stderr)

    def write(self):
        (self.folder / "g.json").write_text(json.dumps(NEWTON))
        return self.folder / "g.json"


class Extents(Base):
    def setUp(self):
        self.start()
        self.values = np.where(np.arange(1000) % 3 == 0, -1.0, np.arange(1000))
        self.inputs = ["--input", self.save("values", self.values), "--output", f"out={self.folder}/out.npy"]

    def test_as_many_instances_as_there_are_values(self):
        self.run_graph(compacting(0), *self.inputs)
        kept = self.values[self.values >= 0]
        out = self.load("out")
        np.testing.assert_array_equal(out[:len(kept)], kept + 1)
        np.testing.assert_array_equal(out[len(kept):], 0)  # No instance wrote there.

    def test_too_many_fail_the_run(self):
        done = self.run_graph(compacting(1000), *self.inputs, code=FAILED)
        self.assertIn("plus", done.stderr)
        self.assertIn("1666", done.stderr)
        self.assertIn("1000", done.stderr)


class Memory(Base):
    SIZE, WIDTH = 32 * 1024, 16  # 256 KiB a vector.

    def run_pyramid(self, code=OK):
        x = np.arange(self.SIZE) % 7
        done = self.run_graph(pyramid(self.WIDTH), "--input", self.save("x", x), "--output",
                              f"total={self.folder}/total.npy", code=code)
        if code == OK:
            factor = sum(i + 2 for i in range(self.WIDTH))
            np.testing.assert_array_equal(self.load("total"), factor * x)
        return done

    def test_what_fits_in_no_memory_goes_to_disk(self):
        self.start("[executor]\nhost_bytes_max = 1048576\nspill_bytes_max = 1073741824\n")
        done = json.loads(self.run_pyramid().stdout)
        self.assertGreater(int(done["traffic"]["spilled_bytes"]), 0)

    def test_without_a_disk_it_is_refused_with_the_sizes(self):
        self.start("[executor]\nhost_bytes_max = 1048576\nspill_bytes_max = 0\n")
        done = self.run_pyramid(code=FAILED)
        self.assertIn("1048576", done.stderr)

    def test_what_fits_stays(self):
        self.start()
        self.assertEqual(int(json.loads(self.run_pyramid().stdout)["traffic"]["spilled_bytes"]), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
