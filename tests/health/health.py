#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests devices that are faulty, hot, paused or excluded, and management libraries that hang, crash, lie or are missing: the real
daemon with a library that imitates NVIDIA's. The device is lavapipe, whose own UUID the library claims.

    health.py BIN_FOLDER FAKE_LIBRARY
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import unittest.mock

import numpy as np

FAKE = pathlib.Path(sys.argv.pop(2)).resolve()
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from e2e import BIN, CANNOT_PLACE, HERE, OK, UNREACHABLE, USAGE, Daemon, children  # noqa: E402
from jobs import WithDaemon, add  # noqa: E402

CONFIG = """
[devices]
backends = "cpu,vulkan"
health_interval_ms = 100
health_temperature_max_c = 90
nvml_library = "{library}"
{more}
[metrics]
listen = "127.0.0.1:{port}"
"""
GPU = "vulkan:0"


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Health(WithDaemon):
    more = ""

    @classmethod
    def start(cls):
        cls.library = cls.folder / "libnvidia-ml.so.1"
        shutil.copy(FAKE, cls.library)
        cls.answers = pathlib.Path(f"{cls.library}.answers")
        cls.port = free_port()
        (cls.folder / "hpvmd.toml").write_text(CONFIG.format(library=cls.library, more=cls.more, port=cls.port))
        cls.run_daemon()
        cls.uuid = cls.device()["health"]["uuid"]

    @classmethod
    def run_daemon(cls):
        cls.daemon = Daemon(cls.folder / "daemon", "--config", cls.folder / "hpvmd.toml")
        ready = cls.daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + cls.daemon.log.read_text()

    @classmethod
    def device(cls, name=GPU):
        listed = json.loads(cls.daemon.ctl("devices", "-o", "json").stdout)
        return next(device for device in listed if device["id"] == name)

    def say(self, **answers):
        """Sets the library's answers from now on."""
        said = {"uuid": f"GPU-{self.uuid}", "bus": "00000000:19:00.0", "driver": "550.54", "temperature": 40, "power": 71500, **answers}
        part = self.answers.with_suffix(".part")
        part.write_text("".join(f"{name} {value}\n" for name, value in said.items() if value is not None))
        part.rename(self.answers)

    def until(self, wanted, what, seconds=20):
        end = time.monotonic() + seconds
        while not wanted(device := self.device()):
            self.assertLess(time.monotonic(), end, f"{what}: {device}\n{self.daemon.log.read_text()[-2000:]}")
            time.sleep(0.05)
        return device

    def until_fenced(self, why):
        device = self.until(lambda d: d.get("health", {}).get("fence"), why)
        self.assertIn(why, device["health"]["fence"])
        self.assertEqual(device["state"], "STATE_BROKEN")
        self.assertIn("FENCED", self.ctl("devices").stdout)
        return device

    def until_known(self):
        """Waits until a process that hung or failed has been replaced."""
        return self.until(lambda d: int(d["health"].get("read_unix_ns", 0)) > time.time_ns() - 2_000_000_000 and not d["health"].get("fence"),
                          "healthy", seconds=90)

    def setUp(self):
        self.say()
        self.ctl("device", "resume", GPU)
        self.until_known()

    def only_there(self):
        document = add()
        document["nodes"]["node"]["devices"] = [GPU]
        return document

    def test_healthy(self):
        self.say(ecc_corrected=3, ecc_uncorrected=0)
        device = self.until(lambda d: d["health"].get("ecc_corrected") == "3", "memory errors")
        self.assertEqual((device["health"]["temperature_c"], device["health"]["driver_version"], device["health"]["bus"]),
                         (40, "550.54", "0000:19:00.0"))
        self.assertNotIn("power_w", device["health"])  # The power is for administrators only, since it shows the load of others.
        now = json.loads(self.ctl("top", "--once", "-o", "json").stdout)
        [load] = [load for load in now["devices"] if load["device"]["id"] == GPU]
        self.assertEqual(load["device"]["health"]["power_w"], 71.5)
        wide = self.ctl("devices", "-o", "wide").stdout
        self.assertIn("3 corrected, 0 not", wide)
        wanted = (f'hpvm_device_temperature_celsius{{device="{GPU}"}} 40', f'hpvm_device_fenced{{device="{GPU}"}} 0')
        end = time.monotonic() + 20
        while True:  # Metrics read the devices once a second.
            text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
            if all(line in text for line in wanted):
                break
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.2)

    def test_heat_fences_until_it_is_over(self):
        self.say(temperature=91)
        self.until_fenced("The device is too hot: 91 degrees")
        self.say(temperature=85)
        time.sleep(0.5)
        self.until_fenced("too hot")
        self.say(temperature=79)
        self.until_known()

    def test_faults_of_the_hardware(self):
        job_document = self.only_there()
        self.ctl("run", *self.graph(job_document))
        for answers, why in (({"xid": f"79 {time.time_ns()}"}, "Xid 79: it has fallen off the bus"), ({"lost": 1}, "has lost the device"),
                             ({"ecc_uncorrected": 2}, "2 errors that could not be corrected"), ({"count": 0}, "The device is gone")):
            with self.subTest(why):
                self.say(ecc_uncorrected=0)
                self.until(lambda d: d["health"].get("ecc_uncorrected") == "0", "counted")
                self.say(**answers)
                self.until_fenced(why)
                refused = self.ctl("run", *self.graph(job_document), "--patience", "0.5s", code=UNREACHABLE).stderr
                self.assertIn(f"{GPU} is fenced.", refused)
                self.ctl("run", *self.graph(add()))  # The run uses another device.
                self.assertRegex(self.daemon.ctl("doctor").stdout, rf"fault +{GPU} .* is fenced: .*\n +-> Reset or replace it")
                self.say()
                time.sleep(0.3)
                self.assertTrue(self.device()["health"]["fence"])  # The process does not end by itself.
                self.ctl("device", "resume", GPU)
                self.until_known()
                self.ctl("run", *self.graph(job_document))

    def test_faults_of_applications_are_recorded(self):
        self.say(xid=f"13 {time.time_ns()}")
        device = self.until(lambda d: d["health"].get("last_xid") == "13", "recorded")
        self.assertFalse(device["health"].get("fence"))
        self.assertEqual(device["state"], "STATE_READY")
        self.assertIn("Xid 13", self.daemon.ctl("doctor").stdout)

    def test_a_library_that_hangs_crashes_or_fails(self):
        for answers in ({"hang": 1}, {"crash": 1}, {"no_init": 1, "crash": None}):
            with self.subTest(answers):
                self.say(**({"crash": 1} if "no_init" in answers else answers))
                self.until(lambda d: int(d["health"].get("read_unix_ns", 0)) == 0, "silence")
                self.say(**answers)
                self.ctl("run", *self.graph(add()))
                self.assertEqual(self.device()["state"], "STATE_READY")
                self.say()
                self.until_known()

    def test_lies(self):
        for answers in ({"temperature": 1_000_000_000}, {"uuid": "endless"}, {"bus": "endless", "driver": "endless"}, {"count": 1_000_000},
                        {"xid": f"4000000000 {time.time_ns()}"}, {"temperature": 4294967295}, {"power": 4294967295}, {"uuid": "../../etc/passwd\x1b[31m"}):
            with self.subTest(answers):
                self.say(**answers)
                time.sleep(0.5)
                device = self.device()
                self.assertFalse(device["health"].get("fence"), device)
                self.assertEqual(device["state"], "STATE_READY")
                self.assertLessEqual(device["health"].get("temperature_c", 0), 250)
                self.ctl("run", *self.graph(add()))

    def test_the_command_prints_what_the_library_says(self):
        done = subprocess.run([BIN / "hpvmd", "--device-health", self.library, "--readings", "2", "--interval-ms", "100"], capture_output=True, text=True,
                              timeout=30)
        self.assertEqual(done.returncode, OK, done.stderr)
        first, second = map(json.loads, done.stdout.splitlines())
        self.assertEqual(first["devices"][0]["temperature_c"], 40)
        self.assertEqual(second["devices"][0]["driver"], "550.54")
        none = subprocess.run([BIN / "hpvmd", "--device-health", "/none.so"], capture_output=True, text=True, timeout=30)
        self.assertEqual((none.returncode, json.loads(none.stdout)["error"]), (1, "The library /none.so could not be loaded."))

    def test_paused_devices(self):
        document = self.only_there()
        self.assertIn(f"No work is started on {GPU}", self.ctl("device", "pause", GPU, "--reason", "new fans").stdout)
        self.assertIn("PAUSED", self.ctl("devices").stdout)
        refused = self.ctl("run", *self.graph(document), "--patience", "0.5s", code=UNREACHABLE).stderr
        self.assertIn(f"{GPU} is paused: new fans. A part of the graph runs nowhere else.", refused)
        self.ctl("run", *self.graph(add()))
        job = self.submit(document)
        time.sleep(0.3)
        facts = self.job(job)
        self.assertEqual((facts["state"], facts.get("attempt", 0)), ("JOB_STATE_ACCEPTED", 0))
        self.assertEqual(facts["waits_for"], f"Waits for a device. {GPU} is paused: new fans. A part of the graph runs nowhere else.")
        self.kill()
        self.run_daemon()  # The device stays paused.
        time.sleep(0.5)
        self.assertEqual(self.job(job)["state"], "JOB_STATE_ACCEPTED")
        self.assertEqual(self.device()["paused"]["reason"], "new fans")
        self.assertRegex(self.daemon.ctl("doctor").stdout, rf"warning +{GPU} .* is paused: new fans\.\n +-> An administrator ends the pause")
        self.ctl("device", "resume", GPU)
        self.ctl("wait", job, timeout=60)
        self.assertEqual(self.job(job)["attempt"], 1)
        self.assertIn("There is no device", self.ctl("device", "pause", "vulkan:77", code=USAGE).stderr)
        self.assertIn("The reason has 256 bytes; the limit is 255.", self.ctl("device", "pause", GPU, "--reason", "x" * 256, code=USAGE).stderr)


class NoLibrary(Health):
    """Everything but health works without a library, and devices can be left to other programs."""

    @classmethod
    def start(cls):
        cls.port = free_port()
        (cls.folder / "hpvmd.toml").write_text(CONFIG.format(library="/none/libnvidia-ml.so.1", more=f'deny = "{cls.more or GPU}"', port=cls.port))
        cls.run_daemon()

    def setUp(self):
        pass

    def test_it_works(self):
        device = self.device()
        self.assertEqual(device["state"], "STATE_LEFT_OUT")
        self.assertNotIn("temperature_c", device["health"])
        self.assertIn("is left out. The configuration leaves the device to other programs (devices.deny).", self.daemon.ctl("doctor").stdout)
        self.ctl("run", *self.graph(add()))
        refused = self.ctl("run", *self.graph(self.only_there()), code=CANNOT_PLACE).stderr
        self.assertIn("No device here can run node", refused)
        self.assertIn("The library /none/libnvidia-ml.so.1 could not be loaded.", self.daemon.log.read_text())


class Processors(unittest.TestCase):
    """Executors and their children avoid reserved processors, and stay on one node."""

    def run_with(self, cpu, **environment):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-cpus-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "hpvmd.toml").write_text('[devices]\nbackends = "cpu"\n[executor]\nspares = 0\n[cpu]\n' + cpu)
        shutil.copy(HERE / "kernels.wasm", folder)
        with unittest.mock.patch.dict(os.environ, environment):
            daemon = Daemon(folder / "daemon", "--config", folder / "hpvmd.toml")
        self.addCleanup(daemon.stop)
        (folder / "graph.json").write_text(json.dumps(add()))
        (folder / "x.npy").write_bytes(b"")
        np.save(folder / "x.npy", np.arange(3, dtype=np.int32))
        return daemon, folder

    def run_as(self, daemon, folder, tenant):
        """Returns the processors of each thread of the tenant's processes."""
        before = set(children(daemon.process.pid))
        [port] = [name for name in add()["inputs"]]
        done = daemon.ctl("run", folder / "graph.json", "--input", f"{port}={folder}/x.npy", "--tenant", tenant, "--connect-timeout", "30")
        self.assertEqual(done.returncode, OK, done.stderr + daemon.log.read_text())
        found = set(children(daemon.process.pid)) - before
        self.assertGreaterEqual(len(found), 2)  # The executor and its compiler.
        return {frozenset(os.sched_getaffinity(int(task.name))) for pid in found for task in pathlib.Path(f"/proc/{pid}/task").iterdir()}

    def test_reserved(self):
        mine = sorted(os.sched_getaffinity(0))
        if len(mine) < 2:
            self.skipTest("The machine has only one processor.")
        daemon, folder = self.run_with(f'reserved_cores = "{mine[0]}-{mine[0]}"\n')
        self.assertEqual(self.run_as(daemon, folder, "ann"), {frozenset(mine[1:])})
        self.assertEqual(os.sched_getaffinity(daemon.process.pid), set(mine))
        self.assertRegex(daemon.ctl("devices").stdout, rf"cpu:0 .*processors [0-9,-]+ of {len(mine)}")

    def test_nodes(self):
        if not {0, 1} <= os.sched_getaffinity(0):
            self.skipTest("The machine has only one processor.")
        daemon, folder = self.run_with('numa = "node"\n', HWLOC_SYNTHETIC="numa:2 core:1 pu:1", HWLOC_THISSYSTEM="1")
        ann, bob = self.run_as(daemon, folder, "ann"), self.run_as(daemon, folder, "bob")
        self.assertEqual(sorted(map(sorted, ann | bob)), [[0], [1]])
        self.assertEqual((len(ann), len(bob)), (1, 1))
        self.assertIn("each executor on one of 2 nodes", daemon.ctl("devices").stdout)

    def test_nothing_left(self):
        for reserved, why in (("4095", "leaves executors none"), ("x", "neither a number of cores")):
            daemon, _ = self.run_with(f'reserved_cores = "{reserved}"\n')
            self.assertNotEqual(daemon.process.wait(30), 0)
            self.assertIn(why, daemon.log.read_text())


for name in [name for name in dir(Health) if name.startswith("test_") and name != "test_it_works"]:
    setattr(NoLibrary, name, None)

if __name__ == "__main__":
    unittest.main(argv=[__file__, *sys.argv[2:]])
