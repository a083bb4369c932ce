#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the isolation of tenants on a real GPU, in one call of at most eight minutes.

    tenants_h200.py BIN_FOLDER [--json FILE] [--only PART,...] [--any] [--quick]

Parts: sandbox, memory, hang, fault, leftovers, reclaim, canaries. Each runs even when another fails. Prints one JSON document with
all figures. --any also runs on processors behind OpenCL and Vulkan drivers, with sizes that fit them. Needs Python alone, and no
network.
"""

import argparse
import array
import base64
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import canaries  # noqa: E402

CANARY = 0xC0FFEE11
OK, FAILED, DEADLINE, UNAVAILABLE = 0, 1, 6, 7
GONE_SECONDS = 2.0

NATIVE = """
kernel void fault(global int* data) { data[get_global_id(0) + ((long)(data[0] + 1) << 40)] = 1; }
kernel void hang(global volatile int* data) {
  while (data[get_global_id(0)] != 12345) {
  }
  data[0] = 1;
}
kernel void plus(global int* data) { data[get_global_id(0)] += 1; }
"""


def update(module, entry, device, n):
    """Returns a document with one node that updates `data`, n i32."""
    data = {"type": "i32", "shape": [n]}
    return {"hpvm": 1, "inputs": {"data": data}, "outputs": {"out": data}, "modules": {"m": module},
            "nodes": {"node": {"ports": [{"name": "data", "access": "inout", **data}], "instances": [n], "devices": [device],
                               "variants": [{"module": "m", "entry": entry}]}},
            "edges": [{"from": "data", "to": "node.data"}, {"from": "node.data", "to": "out"}]}


WASM = {"kind": "wasm", "source": {"file": "canaries.wasm"}}
OPENCL = {"kind": "opencl", "source": {"inline": base64.b64encode(NATIVE.encode()).decode()}}


def smi(query):
    try:
        return subprocess.run(["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def memory_used():
    """Returns the MiB in use on the first GPU, and by process."""
    total = re.match(r"\s*(\d+)", smi("--query-gpu=memory.used"))
    by_process = {int(m[1]): int(m[2]) for m in re.finditer(r"^(\d+), (\d+)$", smi("--query-compute-apps=pid,used_memory"), re.M)}
    return int(total[1]) if total else None, by_process


def percentile(values, share):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(share * len(values)))], 4) if values else None


class Bench:
    """Bench has one daemon with every device, and the state that the parts share."""

    def __init__(self, binaries, any_device, quick):
        self.binaries, self.any, self.quick = binaries, any_device, quick
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-tenants-"))
        shutil.copy(HERE / "canaries.wasm", self.folder)
        (self.folder / "zeros.bin").write_bytes(bytes(256))
        self.daemon = canaries.Daemon(binaries, self.folder / "daemon", "cpu,opencl:0,vulkan:0")
        self.devices = self.daemon.devices()
        self.names = {k: v["name"] for k, v in self.devices.items()}
        if not any_device and "NVIDIA" not in str(self.names):
            raise RuntimeError(f"no NVIDIA GPU here: {self.names}")

    def close(self):
        self.daemon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def submit(self, document, tenant, data="zeros.bin", out=None, *arguments, timeout=120):
        path = self.folder / f"{tenant}.json"
        path.write_text(json.dumps(document))
        inputs = ["--input", f"data={self.folder}/{data}"] if document["inputs"] else []
        outputs = ["--output", f"out={out}"] if out else []
        return self.daemon.ctl("run", path, *inputs, *outputs, *arguments, tenant=tenant, timeout=timeout)

    def executors(self):
        return set(canaries.executors(self.daemon))


class Neighbour(threading.Thread):
    """Neighbour runs a small graph and checks every result until it is told to stop."""

    def __init__(self, bench, device):
        super().__init__(daemon=True)
        self.bench, self.device, self.stopping = bench, device, False
        self.times, self.wrong, self.error = [], 0, ""
        n = 1 << 14
        self.values = array.array("i", range(n))
        self.document = update(WASM, "increment", device, n)
        (bench.folder / "neighbour.bin").write_bytes(self.values.tobytes())
        self.want = array.array("i", range(1, n + 1)).tobytes()

    def once(self):
        start = time.monotonic()
        out = self.bench.folder / "neighbour.out"
        done = self.bench.submit(self.document, "neighbour", "neighbour.bin", out)
        if done.returncode != OK or out.read_bytes() != self.want:
            self.wrong += 1
            self.error = self.error or done.stderr[-400:]
        self.times.append(time.monotonic() - start)

    def run(self):
        while not self.stopping:
            self.once()

    def __enter__(self):
        self.once()  # The first start is not measured.
        self.times.clear()
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.join()

    def figures(self):
        return {"runs": len(self.times), "wrong": self.wrong, "error": self.error, "p50_s": percentile(self.times, 0.5),
                "p99_s": percentile(self.times, 0.99), "max_s": percentile(self.times, 1)}


def part_sandbox(bench):
    """Checks the level that executors with drivers reach, and that every kind of kernel runs there."""
    (bench.folder / "data.bin").write_bytes(bytes(256))
    one = array.array("i", [1] * 64).tobytes()
    ran = {}
    for name, document in {"wasm on opencl": update(WASM, "increment", "opencl:0", 64),
                           "wasm on vulkan": update(WASM, "increment", "vulkan:0", 64),
                           "wasm on cpu": update(WASM, "increment", "cpu", 64),
                           "opencl c": update(OPENCL, "plus", "opencl:0", 64)}.items():
        out = bench.folder / "plus.out"
        out.unlink(missing_ok=True)
        done = bench.submit(document, "sandboxed", "data.bin", out)
        ran[name] = "ok" if done.returncode == OK and out.read_bytes() == one else done.stderr[-400:]
    log = bench.daemon.log.read_text()
    levels = sorted(set(re.findall(r"sandbox_level[\"=:\s]+(\d)", log)))
    details = sorted(set(re.findall(r"sandbox[\"=:\s]+\"?([^\"\n]{3,200})", log)))[:4]
    seccomp = {}
    for pid in bench.executors():
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            mode, privileges = re.search(r"^Seccomp:\s*(\d)", status, re.M), re.search(r"^NoNewPrivs:\s*(\d)", status, re.M)
            seccomp[f"{mode[1]}/{privileges[1]}"] = seccomp.get(f"{mode[1]}/{privileges[1]}", 0) + 1
        except (OSError, TypeError):
            pass
    killed = re.findall(r"signal 31[^\n]{0,200}", log)
    return {"ok": all(v == "ok" for v in ran.values()) and not killed, "ran": ran, "levels": levels, "details": details,
            "processes_by_seccomp_mode_and_no_new_privs": seccomp, "killed_for_system_calls": killed[:5]}


def part_memory(bench):
    """Measures the memory of a tenant's executor on the device."""
    costs = []
    total, _ = memory_used()
    for i, device in enumerate(("opencl:0", "vulkan:0", "opencl:0")):
        before, _ = memory_used()
        known = bench.executors()
        start = time.monotonic()
        done = bench.submit(update(WASM, "increment", device, 64), f"cost{i}")
        took = time.monotonic() - start
        after, by_process = memory_used()
        new = bench.executors() - known
        costs.append({"device": device, "code": done.returncode, "first_run_s": round(took, 3),
                      "mib": None if before is None else after - before,
                      "mib_by_process": sum(v for k, v in by_process.items() if k in new), "processes": len(new)})
    return {"ok": all(c["code"] == OK for c in costs), "used_before_mib": total, "tenants": costs}


class Watcher(threading.Thread):
    """Watcher measures when the first of some processes was gone."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.stopping, self.gone_at = pids, False, None

    def run(self):
        while not self.stopping and self.gone_at is None:
            if any(not pathlib.Path(f"/proc/{pid}").exists() for pid in self.pids):
                self.gone_at = time.monotonic()
            time.sleep(0.005)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.join()


def part_hang(bench):
    """Endless kernels are gone soon after their deadlines, and the neighbour continues."""
    results = []
    for i, (what, document, device) in enumerate([
            ("opencl c", update(OPENCL, "hang", "opencl:0", 64), "opencl:0"),
            ("wasm on opencl", update(WASM, "spin", "opencl:0", 64), "opencl:0"),
            ("wasm on vulkan", update(WASM, "spin", "vulkan:0", 64), "vulkan:0")]):
        tenant = f"hang{i}"
        # The module is compiled and the executor started before, so that the deadline applies to the kernel alone.
        known = bench.executors()
        bench.submit(update(WASM, "increment", device, 64), tenant)
        mine = bench.executors() - known
        with Neighbour(bench, device) as neighbour, Watcher(mine) as watcher:
            time.sleep(1)
            start = time.monotonic()
            done = bench.submit(document, tenant, "zeros.bin", None, "--deadline", "3s")
            over = time.monotonic() - start - 3
            time.sleep(3)
        results.append({"kernel": what, "code": done.returncode, "after_deadline_s": round(over, 3),
                        "executor_gone_after_s": watcher.gone_at and round(watcher.gone_at - start - 3, 3), "said": done.stderr.strip()[-200:],
                        "neighbour": neighbour.figures()})
    # On processors behind drivers, llvmpipe ends loops by itself, and the machine's load decides how soon a process is gone.
    gone = [bench.any or (r["code"] == DEADLINE and r["after_deadline_s"] <= GONE_SECONDS) for r in results]
    return {"ok": all(gone) and all(r["code"] != OK and r["neighbour"]["wrong"] == 0 for r in results),
            "hangs": results}


def part_fault(bench):
    """Wild writes end their own tenant's run; the neighbour has no failure."""
    codes = []
    count = 3 if bench.quick else 10
    with Neighbour(bench, "opencl:0") as neighbour:
        time.sleep(3)
        benign = neighbour.figures()
        for i in range(count):
            done = bench.submit(update(OPENCL, "fault", "opencl:0", 64), f"fault{i}", "zeros.bin", None, "--deadline", "20s")
            codes.append(done.returncode)
        time.sleep(2)
    figures = neighbour.figures()
    # A tenant that faulted is served again.
    again = bench.submit(update(WASM, "increment", "opencl:0", 64), "fault0")
    return {"ok": figures["wrong"] == 0 and again.returncode == OK and OK not in codes, "faults": count, "codes": codes,
            "benign": benign, "neighbour": figures, "served_again": again.returncode, "said": again.stderr[-300:]}


def filled(device, words):
    """Returns a graph that holds eight buffers of `words` words at once."""
    nodes, edges = {}, []
    for name in "abcdefgh":
        nodes[name] = canaries.leaf("wasm", "fill", device, [canaries.port("scratch", "out", words)], words,
                                    [("value", canaries.CANARY)])
        edges.append((f"{name}.scratch", f"gather.{name}"))
    nodes["gather"] = canaries.leaf("wasm", "gather", device, [canaries.port(n, "in", words) for n in "abcdefgh"] +
                                    [canaries.port("out", "out", 1)], 1, [("last", words - 1)])
    edges.append(("gather.out", "out"))
    return canaries.document(nodes, edges, {}, {"out": {"type": "u32", "shape": [1]}})


def raw_words(bench, bytes_each, count):
    """Returns how many words of fresh, uncleared driver memory equal the canary; None without OpenCL."""
    try:
        cl = ctypes.CDLL(next(str(p) for p in [bench.binaries.parent / "lib/libOpenCL.so.1", "libOpenCL.so.1"]
                              if not isinstance(p, pathlib.Path) or p.exists()))
    except OSError:
        return None
    pointer, code = ctypes.c_void_p, ctypes.c_int()
    for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
        getattr(cl, name).restype = pointer
    platform, device = pointer(), pointer()
    if cl.clGetPlatformIDs(1, ctypes.byref(platform), None) or cl.clGetDeviceIDs(platform, ctypes.c_ulong(0xFFFFFFFF), 1,
                                                                               ctypes.byref(device), None):
        return None
    context = pointer(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(code)))
    queue = pointer(cl.clCreateCommandQueue(context, device, ctypes.c_ulong(0), ctypes.byref(code)))
    seen, other, scanned, held = 0, 0, 0, []
    for _ in range(count):
        buffer = cl.clCreateBuffer(context, ctypes.c_ulong(1), ctypes.c_size_t(bytes_each), None, ctypes.byref(code))
        if code.value != 0:
            break
        held.append(pointer(buffer))
        # Every 16th MiB is read, since leftovers come in large pieces.
        piece = 1 << 20
        host = ctypes.create_string_buffer(piece)
        for offset in range(0, bytes_each - piece + 1, 16 * piece):
            if cl.clEnqueueReadBuffer(queue, held[-1], 1, ctypes.c_size_t(offset), ctypes.c_size_t(piece), host, 0, None, None):
                break
            words = array.array("I", host.raw)
            found = words.count(CANARY)
            seen += found
            other += len(words) - words.count(0) - found
            scanned += len(words)
    return {"canary_words": seen, "other_words": other, "words_scanned": scanned, "buffers": len(held)}


def part_leftovers(bench):
    """Looks for the memory of a killed executor from a process that asks the driver directly."""
    words = (1 << 18) if bench.any else (1 << 29)
    known = bench.executors()
    done = bench.submit(filled("opencl:0", words), "full", "zeros.bin", bench.folder / "full.out")
    mine = bench.executors() - known
    held = memory_used()[0]
    start = time.monotonic()
    for pid in mine:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in mine) and time.monotonic() - start < 20:
        time.sleep(0.01)
    gone = time.monotonic() - start
    # A separate process is used, so that no driver state is shared with this one.
    raw = subprocess.run([sys.executable, __file__, str(bench.binaries), "--raw", f"{words * 4},8"], capture_output=True, text=True,
                         timeout=150)
    found = json.loads(raw.stdout) if raw.returncode == 0 and raw.stdout.strip() else raw.stderr[-400:]
    return {"ok": done.returncode == OK and isinstance(found, dict) and found["words_scanned"] > 0 and found["canary_words"] == 0, "code": done.returncode,
            "said": done.stderr[-300:], "used_mib": held, "used_after_mib": memory_used()[0], "killed": len(mine),
            "reaped_s": round(gone, 3), "raw": found}


def part_reclaim(bench):
    """Tenants fill the device one after the other; idle tenants give way."""
    words = (1 << 16) if bench.any else (1 << 29)
    size = 8 * 4 * words
    memory = int(bench.devices["opencl:0"].get("memory_bytes", 0) or bench.devices["opencl:0"].get("memoryBytes", 0) or 0)
    tenants = 3 if bench.any else max(3, memory // size + 2)
    runs = []
    for i in range(tenants):
        start = time.monotonic()
        done = bench.submit(filled("opencl:0", words), f"large{i}", "zeros.bin", bench.folder / "large.out")
        runs.append({"tenant": f"large{i}", "code": done.returncode, "s": round(time.monotonic() - start, 3),
                     "used_mib": memory_used()[0], "said": done.stderr.strip()[-200:]})
    # The first tenant again, whose memory was given to others.
    start = time.monotonic()
    again = bench.submit(filled("opencl:0", words), "large0", "zeros.bin", bench.folder / "large.out")
    asked = bench.daemon.log.read_text().count("An executor is asked to free device memory")
    return {"ok": all(r["code"] == OK for r in runs) and again.returncode == OK and (bench.any or asked > 0), "gib_each": round(size / 2**30, 1),
            "memory_gib": round(memory / 2**30, 1), "runs": runs, "again_code": again.returncode,
            "again_s": round(time.monotonic() - start, 3), "asked_back": asked}


PARTS = {"sandbox": part_sandbox, "memory": part_memory, "hang": part_hang, "fault": part_fault, "leftovers": part_leftovers,
         "reclaim": part_reclaim}


def run_part(name, binaries, any_device, quick):
    start = time.monotonic()
    try:
        bench = Bench(binaries, any_device, quick)
        try:
            result = {"devices": bench.names, **PARTS[name](bench)}
        finally:
            log = bench.daemon.log.read_text()
            bench.close()
        if not result["ok"]:
            result["log"] = [line[:300] for line in log.splitlines() if re.search("warn|error|killed|ended", line, re.I)][-15:]
    except Exception:  # The other parts still run.
        result = {"ok": False, "error": traceback.format_exc()[-1500:]}
    result["seconds"] = round(time.monotonic() - start, 1)
    print(f"tenants_h200: {name}: {'ok' if result['ok'] else 'FAILED'}, {result['seconds']} s", file=sys.stderr, flush=True)
    return result


def part_canaries(binaries, quick, seconds, mib):
    results = {}
    for device in ("opencl:0", "vulkan:0"):
        results[device] = canaries.hand_over(binaries, device, 3 if quick else 1000, seconds / 2, mib)
    return {"ok": all(canaries.is_good(r) for r in results.values()), **results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--json")
    parser.add_argument("--only", default=",".join([*PARTS, "canaries"]))
    parser.add_argument("--any", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--total", type=float, default=470, help="seconds for everything; canaries get what is left")
    parser.add_argument("--raw", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.binaries = arguments.binaries.resolve()
    if arguments.raw:
        size, count = map(int, arguments.raw.split(","))
        bench = argparse.Namespace(binaries=arguments.binaries)
        print(json.dumps(raw_words(bench, size, count)))
        return 0
    start = time.monotonic()
    results = {"date": time.strftime("%Y-%m-%d"), "gpu": smi("--query-gpu=name,driver_version,ecc.mode.current").strip()}
    wanted = arguments.only.split(",")
    for name in PARTS:
        if name in wanted:
            results[name] = run_part(name, arguments.binaries, arguments.any, arguments.quick)
            if arguments.json:  # Writes the results so far, in case the time ends.
                pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))
    if "canaries" in wanted:
        left = max(60.0, arguments.total - (time.monotonic() - start) - 15)
        results["canaries"] = part_canaries(arguments.binaries, arguments.quick, min(left, 240), 1 if arguments.any else 64)
    results["seconds"] = round(time.monotonic() - start, 1)
    results["ok"] = all(results[name]["ok"] for name in [*PARTS, "canaries"] if name in results)
    text = json.dumps(results, indent=1)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(text)
    print(text)
    return 0 if results["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
