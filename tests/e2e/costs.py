#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the measured costs of launches: measured in runs, shown by hpvmctl, kept over restarts, separate for each tenant.

    costs.py BIN_FOLDER [TestCase.test ...]
"""

import json
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

import numpy as np

from e2e import HERE, OK, USAGE, Daemon, one_node, port

SIZE = 1000


class Costs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-e2e-"))
        shutil.copy(HERE / "kernels.wasm", self.folder)
        np.save(self.folder / "in.npy", np.arange(SIZE, dtype=np.int32))
        self.graph = self.folder / "g.json"
        self.graph.write_text(json.dumps(one_node("add", [port("in", "in"), port("out", "out")], [("amount", 1)])))
        self.start()

    def tearDown(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        self.daemon = Daemon(self.folder / "daemon", "--devices", "cpu")
        self.ctl("devices", "--connect-timeout", "30")

    def ctl(self, *arguments, code=OK):
        done = self.daemon.ctl(*arguments)
        self.assertEqual(done.returncode, code, f"{done.stdout}\n{done.stderr}\n{self.daemon.log.read_text()[-2000:]}")
        return done

    def run_once(self, *arguments):
        return self.ctl("run", self.graph, "--input", f"in={self.folder}/in.npy", "--output",
                        f"out_out={self.folder}/out.npy", *arguments).stdout

    def costs(self, *arguments):
        return json.loads(self.ctl("costs", "-o", "json", *arguments).stdout)["kernels"]

    def kernel(self):
        kernels = self.costs()
        self.assertEqual([(k["kernel"], k["device"], int(k["instances"])) for k in kernels], [("k/add", "cpu:0", 1024)])
        return kernels[0]

    def test_runs_are_measured(self):
        self.assertEqual(self.costs(), [])
        self.run_once()
        first = self.kernel()
        self.assertEqual(int(first["samples"]), 1)
        self.assertGreater(first["estimate_ns"], 0)
        self.assertGreater(first["measured_ns"], 0)
        self.run_once()
        self.assertEqual(int(self.kernel()["samples"]), 2)
        table = self.ctl("costs").stdout.splitlines()
        self.assertEqual(table[0].split(), ["KERNEL", "DEVICE", "INSTANCES", "ESTIMATE", "MEASURED", "SAMPLES", "ERROR"])
        self.assertEqual(table[1].split()[:2], ["k/add", "cpu:0"])
        self.assertEqual(self.ctl("costs", "-o", "name").stdout.split(), ["k/add"])

    def test_restart_keeps_history(self):
        # Only the first runs of a plan are always measured; the history is saved when its samples have doubled.
        samples = 0
        for _ in range(200):
            self.run_once()
            samples = int(self.kernel()["samples"])
            if samples >= 3:
                break
        self.assertGreaterEqual(samples, 3)
        self.daemon.stop(signal.SIGKILL)
        self.start()
        self.assertEqual(self.costs(), [])  # No graph is prepared yet.
        self.assertNotIn("~", self.run_once())
        self.assertGreaterEqual(int(self.kernel()["samples"]), 4)

    def test_estimates_are_marked(self):
        first = self.run_once()
        self.assertIn("~cpu:0", first)
        self.assertIn("~: placed by an estimate", first)
        report = json.loads(self.run_once("--local", "-o", "json"))
        self.assertTrue(report["placements"][0]["is_estimate"])

    def test_other_tenants_see_nothing(self):
        self.run_once()
        self.assertEqual(self.costs("--tenant", "other"), [])
        self.assertEqual(len(self.costs()), 1)

    def test_unknown_handles(self):
        self.assertIn("no prepared graph", self.ctl("costs", "--handle", "graph-nothing", code=USAGE).stderr)
        self.ctl("costs", "--handle", "", code=USAGE)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
