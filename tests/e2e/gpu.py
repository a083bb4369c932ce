#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests devices behind OpenCL and Vulkan drivers end to end: module kinds, graphs over several devices, bad input, and
the effects of faults, endless kernels and killed processes, which must stay with the tenant who caused them.

    gpu.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import pathlib
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

from e2e import (CANCELLED, CANNOT_PLACE, DEADLINE, FAILED, HERE, OK, UNREACHABLE, USAGE, Daemon, children, one_node,
                 port)

IN_OUT = (port("in", "in"), port("out", "out"))
REFUSED = (FAILED, USAGE, CANNOT_PLACE)


def module(kind, file, **more):
    return {"kind": kind, "source": {"file": file}, **more}


def native(kind, file, entry, scalars=(), **more):
    document = one_node(entry, IN_OUT, scalars, **more)
    document["modules"]["k"] = module(kind, file)
    return document


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-gpu-"))
        for name in ("kernels.wasm", "gpu_kernels.cl", "twice.spv"):
            shutil.copy(HERE / name, cls.folder)
        cls.daemon = Daemon(cls.folder / "daemon", "--devices", "auto")
        assert cls.daemon.ctl("devices", "--connect-timeout", "30").returncode == OK, cls.daemon.log.read_text()
        cls.devices = cls.wait_for_devices()
        print("devices:", ", ".join(f"{d['id']} ({d['name']})" for d in cls.devices.values()), file=sys.stderr)

    @classmethod
    def wait_for_devices(cls):
        """Returns the devices by id, once discovery has ended: families report one after the other."""
        cls.submit_once()
        return {d["id"]: d for d in json.loads(cls.daemon.ctl("devices", "-o", "json").stdout)}

    @classmethod
    def submit_once(cls):
        """Submits a job: an executor starts only when every family of drivers has answered."""
        np.save(cls.folder / "in.npy", np.arange(4, dtype=np.int32))
        (cls.folder / "first.json").write_text(json.dumps(one_node("add", IN_OUT, [("amount", 1)])))
        done = cls.daemon.ctl("run", cls.folder / "first.json", "--input", f"in={cls.folder}/in.npy")
        assert done.returncode == OK, done.stderr + cls.daemon.log.read_text()

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.stop()
        leftover = children(cls.daemon.process.pid)
        log = cls.daemon.log.read_text()
        shutil.rmtree(cls.folder)
        assert code == 0, f"hpvmd ended with {code}:\n{log}"
        assert not leftover, leftover

    def need(self, *families):
        for family in families:
            if f"{family}:0" not in self.devices:
                self.skipTest(f"there is no {family} device here")

    def run_graph(self, document, values=(1, 2, 3, 40, -5), *arguments, code=OK, tenant="ann", command="run",
                  name="in", timeout=120):
        """Returns the output and the messages of hpvmctl."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for file in self.folder.iterdir():
            if file.is_file():
                os.link(file, folder / file.name)
        graph = folder / "graph.json"
        graph.write_text(json.dumps(document))
        np.save(folder / "x.npy", np.asarray(values, np.int32))
        outputs = [argument for output in document["outputs"] for argument in ("-O", f"{output}={folder}/{output}.npy")]
        done = self.daemon.ctl("--tenant", tenant, command, graph, "--input", f"{name}={folder}/x.npy",
                               *(outputs if code == OK else ()), *arguments, timeout=timeout)
        wanted = code if isinstance(code, tuple) else (code,)
        self.assertIn(done.returncode, wanted, f"stdout: {done.stdout}\nstderr: {done.stderr}\n"
                                               f"log: {self.daemon.log.read_text()[-3000:]}")
        result = {o: np.load(folder / f"{o}.npy") for o in document["outputs"]} if code == OK else {}
        shutil.rmtree(folder)
        return result, done

    def device_states(self):
        return {d["id"]: d["state"] for d in json.loads(self.daemon.ctl("devices", "-o", "json").stdout)}

    def wait_until_ready(self, device):
        for _ in range(200):
            if self.device_states()[device] in ("READY", "STATE_READY"):
                return
            time.sleep(0.05)
        self.fail(f"{device} did not become available again: {self.daemon.ctl('devices').stdout}")

    # --- Working cases ---

    def test_devices_are_listed(self):
        table = self.daemon.ctl("devices").stdout
        for device in self.devices.values():
            self.assertIn(device["id"], table)
        self.assertIn("CPU", self.devices["cpu:0"]["kind"])

    def test_wasm_on_every_device(self):
        for device in self.devices:
            with self.subTest(device):
                document = one_node("add", IN_OUT, [("amount", 7)], devices=[device])
                result, done = self.run_graph(document)
                self.assertEqual(result["out_out"].tolist(), [8, 9, 10, 47, 2])
                self.assertIn(device, done.stdout)

    def test_wasm_traps_on_every_device(self):
        for device in self.devices:
            with self.subTest(device):
                _, done = self.run_graph(one_node("divide", IN_OUT, devices=[device]), [1, 2, 3, 0, 5], code=FAILED)
                for want in ("node", "(3, 0, 0)", "divi"):
                    self.assertIn(want, done.stderr)

    def test_opencl_c(self):
        self.need("opencl")
        result, done = self.run_graph(native("opencl", "gpu_kernels.cl", "twice"))
        self.assertEqual(result["out_out"].tolist(), [2, 4, 6, 80, -10])
        self.assertIn("opencl:0", done.stdout)
        result, _ = self.run_graph(native("opencl", "gpu_kernels.cl", "scaled", [("factor", 3)]))
        self.assertEqual(result["out_out"].tolist(), [3, 6, 9, 120, -15])

    def test_shader(self):
        self.need("vulkan")
        result, done = self.run_graph(native("spirv", "twice.spv", "twice"))
        self.assertEqual(result["out_out"].tolist(), [2, 4, 6, 80, -10])
        self.assertIn("vulkan:0", done.stdout)

    def test_one_graph_over_all_devices(self):
        self.need("opencl", "vulkan")
        document = one_node("add", IN_OUT, [("amount", 1)], devices=["cpu"])
        document["modules"] |= {"c": module("opencl", "gpu_kernels.cl"), "s": module("spirv", "twice.spv")}
        leaf = {"ports": list(IN_OUT), "instances": ["n"]}
        document["nodes"] |= {
            "second": {**leaf, "variants": [{"module": "c", "entry": "twice"}]},
            "third": {**leaf, "variants": [{"module": "s", "entry": "twice"}]},
            "fourth": {**document["nodes"]["node"], "devices": ["opencl:0"]},
            "fifth": {**document["nodes"]["node"], "devices": ["vulkan:0"]},
        }
        order = ["node", "second", "third", "fourth", "fifth"]
        document["edges"] = [{"from": "in", "to": "node.in"}, {"from": "fifth.out", "to": "out_out"}]
        document["edges"] += [{"from": f"{a}.out", "to": f"{b}.in"} for a, b in zip(order, order[1:])]
        for size in (5, 50_000):  # twice.spv has groups of one work item, of which Mesa accepts 65,535.
            values = np.arange(size, dtype=np.int32)
            result, done = self.run_graph(document, values)
            np.testing.assert_array_equal(result["out_out"], (values + 1) * 4 + 2)
            for device in ("cpu:0", "opencl:0", "vulkan:0"):
                self.assertIn(device, done.stdout)

    def test_second_start_builds_nothing(self):
        """A driver's binaries are kept: another executor of the tenant reuses them."""
        self.need("opencl")
        document = native("opencl", "gpu_kernels.cl", "twice")
        self.run_graph(document, tenant="keeper")
        kept = list((self.folder / "daemon/state/cache/keeper").glob("*.hpvd"))
        self.assertTrue(kept)
        before = {file.name: file.stat().st_size for file in kept}
        self.kill_executors()
        self.run_graph(document, tenant="keeper")
        after = {file.name: file.stat().st_size
                 for file in (self.folder / "daemon/state/cache/keeper").glob("*.hpvd")}
        self.assertEqual(before, after)

    # --- Bad input ---

    def test_bad_opencl_c(self):
        self.need("opencl")
        (self.folder / "include.cl").write_text('#include "/etc/passwd"\n__kernel void twice(__global const int* in, '
                                                "__global int* out) { out[0] = in[0]; }\n")
        (self.folder / "syntax.cl").write_text("__kernel void twice(__global const int* in, __global int* out) {\n"
                                               "  out[0] = nonsense;\n}\n")
        (self.folder / "binary.cl").write_bytes(b"\x00asm\x01\x00\x00\x00" + bytes(range(256)))
        options = native("opencl", "gpu_kernels.cl", "twice")
        options["modules"]["k"]["options"] = "-I/etc"
        cases = [
            ("an absent entry", native("opencl", "gpu_kernels.cl", "missing"), ["missing"]),
            ("too few arguments", native("opencl", "gpu_kernels.cl", "scaled"), ["scaled"]),
            ("too many arguments", native("opencl", "gpu_kernels.cl", "twice", [("factor", 3)]), ["twice"]),
            ("a file of the host", native("opencl", "include.cl", "twice"), ["include"]),
            ("a syntax error", native("opencl", "syntax.cl", "twice"), ["nonsense", "Line 2, column 12"]),
            ("no text", native("opencl", "binary.cl", "twice"), ["k"]),
            ("a path of the host", options, ["-I"]),
            ("WebAssembly", native("opencl", "kernels.wasm", "add"), ["k"]),
            ("a device that does not run it", native("opencl", "gpu_kernels.cl", "twice", devices=["cpu"]),
             ["cpu:0 does not run OpenCL C modules"]),
        ]
        self.refuse(cases)

    def test_bad_shaders(self):
        self.need("vulkan")
        good = (HERE / "twice.spv").read_bytes()
        words = list(struct.unpack(f"<{len(good) // 4}I", good))
        physical = struct.pack(f"<{len(words) + 2}I", *words[:7], (2 << 16) | 17, 5347, *words[7:])
        for name, data in (("cut.spv", good[:-10]), ("half.spv", good[:len(good) // 2 // 4 * 4]),
                           ("physical.spv", physical), ("text.spv", b"not SPIR-V at all")):
            (self.folder / name).write_bytes(data)
        self.refuse([
            ("cut inside a word", native("spirv", "cut.spv", "twice"), ["k"]),
            ("cut in half", native("spirv", "half.spv", "twice"), ["k"]),
            ("physical pointers", native("spirv", "physical.spv", "twice"), ["PhysicalStorageBufferAddresses"]),
            ("no SPIR-V", native("spirv", "text.spv", "twice"), ["k"]),
            ("an absent entry", native("spirv", "twice.spv", "thrice"), ["thrice"]),
            ("too many arguments", native("spirv", "twice.spv", "twice", [("factor", 3)]), ["twice"]),
            ("a device that does not run it", native("spirv", "twice.spv", "twice", devices=["cpu"]),
             ["cpu:0 does not run shader SPIR-V modules"]),
        ])

    def refuse(self, cases):
        for name, document, wants in cases:
            with self.subTest(name):
                _, done = self.run_graph(document, code=REFUSED)
                for want in wants:
                    self.assertIn(want, done.stderr)
                self.assertNotIn("root:", done.stderr)
        self.run_graph(one_node("add", IN_OUT, [("amount", 1)]))

    def test_bad_groups(self):
        self.need("opencl")
        for group, want in (("1048576", "group"), ("3", "group")):
            with self.subTest(group):
                document = native("opencl", "gpu_kernels.cl", "twice", group=[group])
                _, done = self.run_graph(document, [1, 2, 3, 4], code=REFUSED)
                self.assertIn(want, done.stderr.lower())
                self.assertIn("node", done.stderr)

    def test_buffers_beyond_one_allocation(self):
        for device in [d for d in self.devices.values() if d["id"] != "cpu:0" and d.get("allocation_bytes_max")]:
            with self.subTest(device["id"]):
                count = int(device["allocation_bytes_max"]) // 4 + 1024
                if count * 4 > 3 << 30:
                    continue  # Larger than a test should request from the host.
                document = one_node("add_in_place", [port("data", "inout")], [("amount", 1)], instances="1",
                                    devices=[device["id"]])
                big = {"ports": [port("out", "out", str(count))], "instances": ["1"], "devices": [device["id"]],
                       "variants": [{"module": "k", "entry": "spin"}]}
                document["nodes"]["big"] = big
                document["outputs"]["big"] = {"type": "i32", "shape": [count]}
                document["edges"].append({"from": "big.out", "to": "big"})
                _, done = self.run_graph(document, name="data", code=REFUSED)
                for want in ("big", "out", device["id"], "limit"):
                    self.assertIn(want, done.stderr)

    # --- Faults ---

    def stats(self):
        """Returns the fields behind the name in /proc/PID/stat, by executor; an executor may end during the call."""
        found = {}
        for pid in children(self.daemon.process.pid):
            try:
                name, fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if name.endswith("(hpvm-executor"):
                found[pid] = fields.split()
        return found

    def executors(self):
        return list(self.stats())

    def busiest_executor(self):
        """Returns the executor that used the most processor time in the last second."""
        def used():
            return {pid: int(words[11]) + int(words[12]) for pid, words in self.stats().items()}
        before = used()
        time.sleep(1)
        return max(used().items(), key=lambda item: item[1] - before.get(item[0], item[1]))[0]

    def kill_executors(self):
        """Kills all executors, and waits until the daemon has noticed: a run that comes earlier ends with them."""
        killed = self.executors()
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        end = time.monotonic() + 20
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in killed):
            self.assertLess(time.monotonic(), end, "The daemon did not reap the killed executors.")
            time.sleep(0.01)
        time.sleep(0.2)

    def with_neighbour(self, device, act):
        """Runs `act` while another tenant computes on the same device; every run of that tenant must be right."""
        document = one_node("add", IN_OUT, [("amount", 5)], devices=[device])
        self.run_graph(document, tenant="neighbour")
        stop, failures, runs = threading.Event(), [], []

        def work():
            values = np.arange(1000, dtype=np.int32)
            while not stop.is_set():
                try:
                    result, _ = self.run_graph(document, values, tenant="neighbour")
                    np.testing.assert_array_equal(result["out_out"], values + 5)
                    runs.append(time.monotonic())
                except (AssertionError, OSError) as error:
                    failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            result = act()
        finally:
            stop.set()
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue(runs)
        return result

    def test_fault(self):
        self.need("opencl")
        document = native("opencl", "gpu_kernels.cl", "astray")
        _, done = self.with_neighbour("opencl:0", lambda: self.run_graph(document, tenant="wild", code=(FAILED, UNREACHABLE)))
        for want in ("opencl:0", 'node "node"'):
            self.assertIn(want, done.stderr)
        self.wait_until_ready("opencl:0")
        self.run_graph(native("opencl", "gpu_kernels.cl", "twice"), tenant="wild")

    def test_crashes_stay_with_their_module(self):
        """After three crashes of a tenant's OpenCL C module, that module is paused by name; everything else continues at once."""
        self.need("opencl")
        if not self.devices["opencl:0"].get("emulated"):
            self.skipTest("on this device a wild write ends the context, not the process")
        (self.folder / "crash.cl").write_text(
            "__kernel void crash(__global const int* in, __global int* out) { out[(size_t)1 << 40] = in[0]; }")
        document = native("opencl", "crash.cl", "crash")
        for _ in range(3):
            _, done = self.run_graph(document, tenant="crashing", code=UNREACHABLE)
            self.assertNotIn("not run on", done.stderr)
            self.wait_until_ready("opencl:0")
        for device in ("cpu:0", "opencl:0"):
            result, _ = self.run_graph(one_node("add", IN_OUT, [("amount", 7)], devices=[device]), tenant="crashing")
            self.assertEqual(result["out_out"].tolist(), [8, 9, 10, 47, 2])
        self.run_graph(native("opencl", "gpu_kernels.cl", "twice"), tenant="crashing")
        _, done = self.run_graph(document, tenant="crashing", code=UNREACHABLE)
        for want in ('Module "k" is not run on opencl:0', "3 executors", "may run there again in"):
            self.assertIn(want, done.stderr)

    def test_known_defects_are_said(self):
        """Devices, reports and jobs name the known miscomputations of a driver in modules written for it."""
        self.need("opencl")
        defects = self.devices["opencl:0"].get("defects", [])
        if "Portable Computing Language, driver 3.1" in self.devices["opencl:0"]["name"]:
            self.assertEqual([d["name"] for d in defects], ["barriers-in-branches"])
        for device in self.devices.values():
            self.assertFalse([d for d in device.get("defects", []) if d.get("in_generated_code")], device["id"])
        table = self.daemon.ctl("devices").stdout
        for defect in defects:
            self.assertIn(f"({defect['name']}): {defect['reason']}", table)
        _, done = self.run_graph(native("opencl", "gpu_kernels.cl", "twice"), (1, 2, 3), "-o", "json")
        notes = json.loads(done.stdout)["defects"]
        self.assertEqual(len(notes), 1 if defects else 0)
        for note in notes:
            self.assertIn("The driver of opencl:0", note)
            self.assertIn('node "node"', note)
        _, done = self.run_graph(native("opencl", "gpu_kernels.cl", "twice"))
        self.assertEqual("note: The driver of opencl:0" in done.stdout, bool(defects))
        for own in (one_node("add", IN_OUT, [("amount", 7)], devices=["opencl:0"]), one_node("add", IN_OUT, [("amount", 7)])):
            _, done = self.run_graph(own, (1, 2, 3), "-o", "json")
            self.assertEqual(json.loads(done.stdout)["defects"], [])

    def test_hang(self):
        for device in [d for d in self.devices if d != "cpu:0"]:
            with self.subTest(device):
                # Mesa's lavapipe ends a loop after 65,535 iterations, so many instances keep it busy instead.
                document = one_node("spin", [port("out", "inout")], devices=[device])
                values = np.zeros(4_000_000, dtype=np.int32)

                def hang():
                    start = time.monotonic()
                    _, done = self.run_graph(document, values, "--deadline", "4s", name="out", tenant="hung",
                                             code=DEADLINE)
                    return time.monotonic() - start, done

                self.run_graph(one_node("add", IN_OUT, [("amount", 1)], devices=[device]), tenant="hung")
                # It ends at once on ones. The deadline counts the compilation, which on a busy machine takes all of it.
                self.run_graph(document, np.ones_like(values), name="out", tenant="hung")
                took, done = self.with_neighbour(device, hang)
                self.assertIn(device, done.stderr)
                self.assertLess(took, 10)
                log = self.daemon.log.read_text()
                self.assertIn("Executor killed tenant=hung", log)
                self.wait_until_ready(device)
                self.run_graph(one_node("add", IN_OUT, [("amount", 1)], devices=[device]), tenant="hung")

    def test_loops_that_the_driver_ends(self):
        """Mesa's llvmpipe ends loops after 65,535 iterations: the node fails with a message that names this, and blames no instance."""
        self.need("vulkan")
        if "llvmpipe" not in self.devices["vulkan:0"]["name"]:
            self.skipTest("the driver does not end loops")
        few = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0], dtype=np.int32)
        for entry, scalars, values in (("busy", [("amount", 1), ("rounds", 1)], few), ("spin_some", [], few)):
            with self.subTest(entry):
                document = one_node(entry, IN_OUT, scalars, devices=["vulkan:0"])
                _, done = self.run_graph(document, values, "--deadline", "60s", code=CANNOT_PLACE)
                self.assertIn('Node "node" cannot run on device vulkan:0: its driver ends the loops', done.stderr)
                for wrong in ("instance (", "unreachable", "trapped"):
                    self.assertNotIn(wrong, done.stderr)
        result, _ = self.run_graph(one_node("spin_some", IN_OUT, devices=["vulkan:0"]), 0 * few)
        self.assertEqual(result["out_out"].tolist(), list(range(10)))

    def test_kill(self):
        self.need("opencl")
        document = native("opencl", "gpu_kernels.cl", "endless")
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.run_graph(native("opencl", "gpu_kernels.cl", "twice"), tenant="killed")

        def kill():
            outcome = []
            thread = threading.Thread(target=lambda: outcome.append(
                self.run_graph(document, tenant="killed", code=(FAILED, UNREACHABLE))))
            thread.start()
            time.sleep(2)
            # A spare executor may have become the tenant's, so a new PID proves nothing.
            os.kill(self.busiest_executor(), signal.SIGKILL)
            thread.join()
            return outcome[0]

        _, done = self.with_neighbour("opencl:0", kill)
        self.assertIn("opencl:0", done.stderr)
        self.wait_until_ready("opencl:0")
        shutil.rmtree(folder)
        self.run_graph(native("opencl", "gpu_kernels.cl", "twice"), tenant="killed")

    def test_cancel_of_what_looks_at_nothing(self):
        """A tenant's native code never checks whether to stop: its executor ends, and no run of another tenant does."""
        self.need("opencl")
        graph = self.folder / "endless.json"
        graph.write_text(json.dumps(native("opencl", "gpu_kernels.cl", "endless")))
        np.save(self.folder / "endless.npy", np.arange(5, dtype=np.int32))

        def cancel():
            done = self.daemon.ctl("--tenant", "cancels", "submit", graph, "--input", f"in={self.folder}/endless.npy",
                                   "--detach")
            self.assertEqual(done.returncode, OK, done.stderr)
            time.sleep(2)
            start = time.monotonic()
            self.daemon.ctl("--tenant", "cancels", "jobs", "cancel", done.stdout.strip())
            waited = self.daemon.ctl("--tenant", "cancels", "jobs", "wait", done.stdout.strip(), timeout=60)
            self.assertEqual(waited.returncode, CANCELLED, waited.stderr)
            return time.monotonic() - start

        self.assertLess(self.with_neighbour("opencl:0", cancel), 10)
        self.wait_until_ready("opencl:0")
        self.run_graph(native("opencl", "gpu_kernels.cl", "twice"), tenant="cancels")

    def test_reload_keeps_serving(self):
        self.daemon.process.send_signal(signal.SIGHUP)
        for _ in range(100):
            if self.daemon.log.read_text().count("Device found device=cpu:0") >= 2:
                break
            time.sleep(0.1)
        else:
            self.fail("the daemon did not search for devices again")
        self.run_graph(one_node("add", IN_OUT, [("amount", 1)]))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
