#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Canaries: tests whether data that one tenant leaves in memory reaches another.

    canaries.py BIN_FOLDER [--handovers 50] [--seconds S] [--devices cpu,opencl:0,vulkan:0] [--mib 8] [--json FILE]

Two tenants of one real daemon alternate. The writer fills buffers, the device memory of a plan and group memory with a
canary; the reader then looks at outputs that no kernel wrote, at fresh device memory, and at group memory before its first
use, in kernels that we compile and in kernels that the driver compiles as they are. Sizes change from one hand-over to
the next, so that memory is allocated anew; now and then the writer's executor is killed with its memory full, and the
reader is a tenant that nobody has seen. Anything other than zero is counted: 0 is the only good number.

Each device begins with controls, which must find canaries where there are some: in what the same graph wrote, and (where
drivers do not clear it, told and not demanded) in group memory that the same tenant left.
"""

import argparse
import array
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CANARY = 0xC0FFEE11 - (1 << 32)
GROUP, GROUPS, COUNTERS = 64, 128, 1024
KILL_PAUSE = 31.0  # Seconds; seldom enough not to open a breaker of three crashes a minute.


class Daemon:
    def __init__(self, binaries, folder, devices):
        self.binaries, self.folder = pathlib.Path(binaries), pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.server = f"unix:{self.folder}/hpvmd.sock"
        self.wanted = [d if ":" in d else f"{d}:0" for d in (devices or "").split(",") if d]
        self.log = self.folder / "hpvmd.log"
        arguments = [self.binaries / "hpvmd", "--dev", "--listen", self.server, "--state", self.folder / "state"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*arguments, "--devices", devices] if devices else arguments, stderr=log, stdout=log)

    def ctl(self, *arguments, tenant="writer", timeout=120):
        environment = {**os.environ, "HPVM_SERVER": self.server, "HPVM_TENANT": tenant,
                       "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run([self.binaries / "hpvmctl", *map(str, arguments)], capture_output=True, text=True,
                              timeout=timeout, env=environment)

    def devices(self):
        """Returns the devices by id, once drivers have been tried."""
        listed = None
        for attempt in range(300):
            if self.process.poll() is not None:
                break
            listed = self.ctl("--connect-timeout", "10", "-o", "json", "devices")
            if listed.returncode == 0:
                found = {d["id"]: d for d in json.loads(listed.stdout)}
                if all(wanted in found for wanted in self.wanted):
                    return found
                # Some machines have only one of a GPU's interfaces: after ten seconds the devices found so far are used.
                if attempt >= 100 and len(found) > 1:
                    return found
            time.sleep(0.1)
        raise RuntimeError(f"no devices: {listed and listed.stderr} {self.log.read_text()[-2000:]}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def children(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry.name)] + children(int(entry.name))
    return found


def executors(daemon):
    """Returns the processes of all executors that have opened what they serve."""
    found = []
    for pid in children(daemon.process.pid):
        try:
            if "hpvm-executor" in os.readlink(f"/proc/{pid}/exe"):
                found.append(pid)
        except OSError:
            pass
    return found


def port(name, access, shape, kind="u32"):
    return {"name": name, "access": access, "type": kind, "shape": [shape]}


def leaf(module, entry, device, ports, instances, scalars=(), **more):
    return {"ports": ports, "scalars": [{"name": n, "type": "i32", "value": v} for n, v in scalars], "instances": [instances],
            "devices": [device], "variants": [{"module": module, "entry": entry}], **more}


MODULES = {"wasm": {"kind": "wasm", "source": {"file": "canaries.wasm"}},
           "cl": {"kind": "opencl", "source": {"file": "canaries.cl"}},
           "fill": {"kind": "spirv", "source": {"file": "canaries_fill.spv"}},
           "scan": {"kind": "spirv", "source": {"file": "canaries_scan.spv"}}}


def document(nodes, edges, inputs, outputs):
    used = {variant["module"] for node in nodes.values() for variant in node["variants"]}
    return {"hpvm": 1, "inputs": inputs, "outputs": outputs, "modules": {k: v for k, v in MODULES.items() if k in used},
            "nodes": nodes, "edges": [{"from": a, "to": b} for a, b in edges]}


def group_nodes(device, what):
    """Returns nodes that fill or scan group memory, as (name, node)."""
    items = GROUP * GROUPS
    scalars = [("value", CANARY)] if what == "fill" else []
    nodes = {"group": leaf("wasm", f"{what}_group", device, [port("out", "out", items)], items, scalars, group=[GROUP])}
    if device.startswith("opencl"):
        nodes["native"] = leaf("cl", f"{what}_group", device, [port("out", "out", items)], items, scalars, group=[GROUP])
    if device.startswith("vulkan"):
        nodes["native"] = leaf(what, "main", device, [port("out", "out", items)], items, group=[GROUP])
    return nodes


def writer(device, words):
    nodes = {"make": leaf("wasm", "fill", device, [port("scratch", "out", words)], words, [("value", CANARY)]),
             "last": leaf("wasm", "last", device, [port("scratch", "in", words), port("out", "out", 1)], 1, [("words", words)]),
             **group_nodes(device, "fill")}
    outputs = {"last": {"type": "u32", "shape": [1]}}
    edges = [("make.scratch", "last.scratch"), ("last.out", "last")]
    for name in set(nodes) - {"make", "last"}:
        outputs[name] = {"type": "u32", "shape": [GROUP * GROUPS]}
        edges.append((f"{name}.out", name))
    return document(nodes, edges, {}, outputs)


def reader(device, words, maker="leave", what="scan"):
    """Returns a graph that counts the words that are not zero. `maker` "fill": the control, which finds every word."""
    seed = {"type": "u32", "shape": [1]}
    make = [port("scratch", "out", words)] if maker == "fill" else [port("seed", "in", 1), port("scratch", "out", words)]
    nodes = {"make": leaf("wasm", maker, device, make, words, [("value", CANARY)] if maker == "fill" else []),
             "scan": leaf("wasm", "scan", device, [port("scratch", "in", words), port("counts", "out", COUNTERS)], COUNTERS,
                          [("words", words), ("step", COUNTERS)]),
             **group_nodes(device, what)}
    edges = [("make.scratch", "scan.scratch"), ("scan.counts", "counts")]
    outputs = {"counts": {"type": "u32", "shape": [COUNTERS]}}
    inputs = {}
    if maker == "leave":
        inputs = {"seed": seed}
        small = words // 16
        nodes["bare"] = leaf("wasm", "leave", device, [port("seed", "in", 1), port("scratch", "out", small)], small)
        edges += [("seed", "make.seed"), ("seed", "bare.seed"), ("bare.scratch", "bare")]
        outputs["bare"] = {"type": "u32", "shape": [small]}
    for name in group_nodes(device, what):
        outputs[name] = {"type": "u32", "shape": [GROUP * GROUPS]}
        edges.append((f"{name}.out", name))
    return document(nodes, edges, inputs, outputs)


class Canaries:
    """Canaries makes the hand-overs of one device."""

    def __init__(self, daemon, folder, device, words):
        self.daemon, self.folder, self.device, self.words = daemon, pathlib.Path(folder), device, words
        for name in ("canaries.wasm", "canaries.cl", "canaries_fill.spv", "canaries_scan.spv"):
            shutil.copy(HERE / name, self.folder)
        (self.folder / "seed.bin").write_bytes(bytes(4))
        self.result = {"handovers": 0, "nonzero": {}, "kills": 0, "fresh_tenants": 0, "errors": []}
        self.killed_at = 0.0

    def run(self, graph, tenant, timeout=300):
        """Runs the graph; returns all outputs by name."""
        path = self.folder / "graph.json"
        path.write_text(json.dumps(graph))
        arguments = ["--input", f"seed={self.folder}/seed.bin"] if graph["inputs"] else []
        for name in graph["outputs"]:
            arguments += ["--output", f"{name}={self.folder}/{name}.bin"]
        done = self.daemon.ctl("run", path, *arguments, tenant=tenant, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(f"{tenant}: {done.returncode}: {done.stderr[-500:]}")
        return {name: array.array("I", (self.folder / f"{name}.bin").read_bytes()) for name in graph["outputs"]}

    def write(self, words):
        outputs = self.run(writer(self.device, words), "writer")
        for name, values in outputs.items():
            if values != array.array("I", [CANARY % (1 << 32)]) * len(values):
                raise RuntimeError(f"the writer's {name} is not the canary")

    def read(self, words, tenant):
        for name, values in self.run(reader(self.device, words), tenant).items():
            found = sum(values) if name != "bare" else len(values) - values.count(0)
            self.result["nonzero"][name] = self.result["nonzero"].get(name, 0) + found

    def control(self):
        counts = self.run(reader(self.device, self.words, "fill"), "writer")["counts"]
        if sum(counts) != self.words:
            raise RuntimeError("the control found too few canaries")
        # The same tenant scans immediately afterwards.
        left = 0
        for _ in range(3):
            self.write(self.words)
            outputs = self.run(reader(self.device, self.words), "writer")
            left += sum(sum(v) for k, v in outputs.items() if k == "native")
        self.result["control"] = {"own_words": self.words, "own_native_group_words": left}

    def kill_all(self):
        """Kills the writer's executor with its memory full, and the reader's, since both look alike: the next reader's is new."""
        if time.monotonic() - self.killed_at < KILL_PAUSE:
            return
        self.killed_at = time.monotonic()
        killed = executors(self.daemon)
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        # A run that comes before the daemon has noticed ends with its executor.
        end = time.monotonic() + 20
        while any(os.path.exists(f"/proc/{pid}") for pid in killed) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.3)
        self.result["kills"] += 1 if killed else 0

    def once(self, i):
        words = self.words >> (i % 3)
        tenant = "reader"
        if i % 50 == 49:
            tenant = f"reader-{i}"
            self.result["fresh_tenants"] += 1
        self.write(words)
        if i % 50 == 24:
            self.kill_all()
        self.read(words, tenant)
        self.result["handovers"] += 1

    def go(self, handovers, seconds):
        start = time.monotonic()
        try:
            self.control()
            for i in range(handovers):
                if time.monotonic() - start > seconds:
                    break
                self.once(i)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.result["errors"].append(str(error)[-800:])
        self.result["nonzero_total"] = sum(self.result["nonzero"].values())
        self.result["mib_each"] = self.words * 4 / (1 << 20)
        self.result["seconds"] = round(time.monotonic() - start, 1)
        return self.result


def hand_over(binaries, device, handovers, seconds, mib):
    """Returns the figures of one device, with a daemon of its own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-canaries-"))
    try:
        daemon = Daemon(binaries, folder / "daemon", device if device == "cpu" else f"cpu,{device}")
        try:
            name = daemon.devices()[device if ":" in device else f"{device}:0"]["name"]
            work = folder / "work"
            work.mkdir()
            return {"name": name, **Canaries(daemon, work, device, int(mib * (1 << 18))).go(handovers, seconds)}
        finally:
            daemon.stop()
    except Exception as error:  # The other devices are still measured.
        return {"handovers": 0, "nonzero_total": 0, "errors": [repr(error)[-800:]]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_good(result, handovers=1):
    return not result["errors"] and result["nonzero_total"] == 0 and result["handovers"] >= handovers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries")
    parser.add_argument("--handovers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--devices", default="cpu,opencl:0,vulkan:0")
    parser.add_argument("--mib", type=float, default=8)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    results = {}
    for device in arguments.devices.split(","):
        results[device] = hand_over(arguments.binaries, device, arguments.handovers, arguments.seconds, arguments.mib)
        print(f"canaries: {device}: {json.dumps(results[device])}", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))
    return 0 if all(is_good(result) for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
