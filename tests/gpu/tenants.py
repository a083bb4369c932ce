#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests two executors on one GPU: the effect of one's faults, hangs and ends on the other.

    tenants.py BIN_FOLDER [TestCase.test ...]

Each has a daemon of its own. The neighbour runs a small graph repeatedly and checks every result; the offender does
what its test says. Skipped when only processors are behind the machine's drivers; HPVM_TENANTS_ANY=1
runs it on those.
"""

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin").resolve()
OK, FAILED, DEADLINE, UNAVAILABLE = 0, 1, 6, 7
GONE_SECONDS = 2.0   # A hung kernel must be gone this long after its deadline.
QUIET_SECONDS = 8.0  # Limit of the neighbour's longest run during any test.

FAULT = """
kernel void fault(global int* data) {
  data[get_global_id(0) + ((long)data[0] << 40)] = 1;
}
kernel void hang(global volatile int* data) {
  while (data[get_global_id(0)] != 12345) {
  }
  data[0] = 1;
}
"""


class Daemon:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.server = f"unix:{self.folder}/hpvmd.sock"
        self.log = self.folder / "hpvmd.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [BIN / "hpvmd", "--dev", "--listen", self.server, "--state", self.folder / "state"], stderr=log, stdout=log)

    def ctl(self, *arguments, timeout=120):
        environment = {**os.environ, "HPVM_SERVER": self.server, "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run([BIN / "hpvmctl", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                              env=environment)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def node(kind, source, entry, device, n, options=None):
    """Returns a document with one node that updates `data`, n i32."""
    data = {"type": "i32", "shape": [n]}
    module = {"kind": kind, "source": source}
    if options:
        module["options"] = options
    return {"hpvm": 1, "inputs": {"data": data}, "outputs": {"out": data}, "modules": {"m": module},
            "nodes": {"node": {"ports": [{"name": "data", "access": "inout", **data}], "instances": [n],
                               "devices": [device], "variants": [{"module": "m", "entry": entry}]}},
            "edges": [{"from": "data", "to": "node.data"}, {"from": "node.data", "to": "out"}]}


def opencl_c(entry, device, n=64):
    return node("opencl", {"inline": base64.b64encode(FAULT.encode()).decode()}, entry, device, n)


def descendants(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry.name)] + descendants(int(entry.name))
    return found


def gpu_memory():
    """Returns the device memory in use, by process, in MiB; empty without nvidia-smi."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {int(m[1]): int(m[2]) for m in re.finditer(r"^(\d+), (\d+)$", text, re.M)}


class Neighbour(threading.Thread):
    """Neighbour runs and checks a graph until it is told to stop."""

    def __init__(self, daemon, device, folder):
        super().__init__()
        self.daemon_, self.graph, self.stopping = daemon, folder / f"neighbour-{device.replace(':', '')}.json", False
        self.runs, self.wrong, self.longest, self.error = 0, 0, 0.0, ""
        self.values = np.arange(1 << 16, dtype=np.int32)
        self.folder = folder
        self.graph.write_text(json.dumps(node("wasm", {"file": "kernels.wasm"}, "increment", device, len(self.values))))
        np.save(folder / "n-in.npy", self.values)

    def once(self):
        start = time.monotonic()
        out = self.folder / "n-out.npy"
        done = self.daemon_.ctl("run", self.graph, "--input", f"data={self.folder}/n-in.npy", "--output", f"out={out}")
        if done.returncode != OK:
            self.error = self.error or done.stderr[-500:]
            self.wrong += 1
        elif not np.array_equal(np.load(out), self.values + 1):
            self.wrong += 1
        self.runs += 1
        return time.monotonic() - start

    def run(self):
        while not self.stopping:
            self.longest = max(self.longest, self.once())


class Tenants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-tenants-"))
        shutil.copy(ROOT / "tests/gpu/tenants.wasm", cls.folder / "kernels.wasm")
        cls.offender, cls.quiet = Daemon(cls.folder / "offender"), Daemon(cls.folder / "neighbour")
        for daemon in (cls.offender, cls.quiet):
            cls.devices = cls.found(daemon)
        cls.has_gpu = "NVIDIA" in cls.devices or "HPVM_TENANTS_ANY" in os.environ
        np.save(cls.folder / "zeros.npy", np.zeros(64, np.int32))
        np.save(cls.folder / "ones.npy", np.ones(64, np.int32))

    @staticmethod
    def found(daemon):
        """Returns the devices, once drivers have been tried."""
        for _ in range(120):
            listed = daemon.ctl("--connect-timeout", "60", "--format", "json", "devices")
            assert listed.returncode == OK, listed.stderr + daemon.log.read_text()
            if "opencl:" in listed.stdout and "vulkan:" in listed.stdout:
                break
            time.sleep(0.1)
        return listed.stdout

    @classmethod
    def tearDownClass(cls):
        for daemon in (cls.offender, cls.quiet):
            daemon.stop()
        shutil.rmtree(cls.folder)

    def setUp(self):
        if not self.has_gpu:
            self.skipTest("no GPU here: " + " ".join(self.devices.split())[:200])

    def submit(self, document, data, *arguments):
        path = self.folder / "offender.json"
        path.write_text(json.dumps(document))
        return self.offender.ctl("run", path, "--input", f"data={self.folder}/{data}", *arguments)

    def beside(self, device, what, act):
        """Calls `act` beside a neighbour on `device`; the neighbour must not fail, and the offender's executor must serve on."""
        neighbour = Neighbour(self.quiet, device, self.folder)
        neighbour.once()  # The first compile and start are not measured.
        neighbour.start()
        try:
            time.sleep(1)
            said = act()
            time.sleep(1)
        finally:
            neighbour.stopping = True
            neighbour.join()
        print(f"tenants: {what}, neighbour on {device}: {neighbour.runs} runs, {neighbour.wrong} wrong, longest "
              f"{neighbour.longest:.3f} s; {said}", flush=True)
        self.assertEqual(neighbour.wrong, 0, neighbour.error)
        self.assertGreater(neighbour.runs, 2)
        self.assertLess(neighbour.longest, QUIET_SECONDS)
        self.serves(device)

    def serves(self, device):
        good = Neighbour(self.offender, device, self.folder)
        good.once()
        self.assertEqual(good.wrong, 0, good.error)

    def test_fault(self):
        """A wild write fails its own job, with its place; nothing else fails."""
        def fault():
            start = time.monotonic()
            done = self.submit(opencl_c("fault", "opencl:0"), "ones.npy")
            # A driver that runs in the process (PoCL) crashes the executor, too.
            self.assertIn(done.returncode, (FAILED, UNAVAILABLE), done.stdout + done.stderr)
            self.assertRegex(done.stderr, "opencl:0|signal 11")
            return f"failed after {time.monotonic() - start:.2f} s: {done.stderr.strip()[-200:]}"
        self.beside("opencl:0", "a wild write", fault)

    def hang(self, document, what, device):
        def act():
            start = time.monotonic()
            done = self.submit(document, "zeros.npy", "--deadline", "3s")
            took = time.monotonic() - start
            self.assertEqual(done.returncode, DEADLINE, done.stdout + done.stderr)
            self.assertLess(took, 3 + GONE_SECONDS + 1, "the client got the answer too late")
            return f"ended {took - 3:.2f} s after its deadline"
        self.beside(device, what, act)

    def test_hang_opencl_c(self):
        """An endless OpenCL kernel is gone soon after its deadline."""
        self.hang(opencl_c("hang", "opencl:0"), "an endless OpenCL kernel", "opencl:0")

    def test_hang_wasm(self):
        """Endless leaves on each interface are gone soon after their deadline."""
        for device in ("opencl:0", "vulkan:0"):
            with self.subTest(device=device):
                if f'"{device}"' not in self.devices:
                    self.skipTest(f"no {device}")
                self.hang(node("wasm", {"file": "kernels.wasm"}, "spin", device, 64), f"an endless leaf on {device}", device)

    def test_kill(self):
        """SIGKILL of the executor during a kernel: its memory is released, and a new executor serves."""
        def kill():
            before = sum(gpu_memory().values())
            job = threading.Thread(target=lambda: self.submit(opencl_c("hang", "opencl:0"), "zeros.npy", "--deadline", "30s"))
            job.start()
            time.sleep(2)
            during = gpu_memory()
            mine = [pid for pid in descendants(self.offender.process.pid)
                    if "hpvm-executor" in (pathlib.Path(f"/proc/{pid}/cmdline").read_text() or "")]
            self.assertTrue(mine)
            start = time.monotonic()
            for pid in mine:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            while any(pathlib.Path(f"/proc/{pid}").exists() for pid in mine) and time.monotonic() - start < 20:
                time.sleep(0.01)
            reaped = time.monotonic() - start
            job.join()
            after = sum(gpu_memory().values())
            self.assertLess(reaped, GONE_SECONDS)
            return f"device memory {before} MiB before, {sum(during.values())} during, {after} after; reaped in {reaped:.2f} s"
        self.beside("opencl:0", "a killed executor", kill)

    def test_memory(self):
        """Prints an executor's memory on the device."""
        self.serves("opencl:0")
        used = gpu_memory()
        mine = set(descendants(self.offender.process.pid))
        print(f"tenants: the offender's executor has {sum(v for k, v in used.items() if k in mine)} MiB on the device", flush=True)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
