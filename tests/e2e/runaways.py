#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures kernels and compiles that do not end: how long after its deadline the last one is gone, and the effect on neighbours.

    runaways.py BIN_FOLDER [--each 30] [--deadline-ms 300] [--p99-ms 100] [--json FILE]

Jobs of one tenant run away in seven ways on the CPU, one after the other, each until its deadline; a module is also still being
compiled at its deadline, by the clock of the client, including the client's start. The other figures are the server's own:
the time from the job's deadline to its end, as stored. Meanwhile another tenant runs and checks a small graph. The script fails
when a runaway ends otherwise than by its deadline, when the neighbour has a failure, or beyond --p99-ms (0: only printed).
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from wasm_module import HARD_STATEMENT, module_of

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {"tight": {}, "vectors": {}, "host_calls": {"instances": 1}, "memory_fill": {"instances": 1, "words": 4 << 20},
         "atomics": {}, "barrier": {"group": [64]}, "recursion": {"instances": 2}, "compile": {"module": "compile.wasm"}}
# The compiler takes seconds on these statements and never finishes here, so that no cache keeps the result.
HARD_STATEMENTS = 20_000


class Daemon:
    def __init__(self, binaries, folder):
        self.binaries, self.folder = binaries, folder
        self.server, self.log = f"unix:{folder}/hpvmd.sock", folder / "hpvmd.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([binaries / "hpvmd", "--dev", "--devices", "cpu", "--listen", self.server, "--state",
                                             folder / "state"], stdout=log, stderr=log)

    def ctl(self, *arguments, tenant, timeout=120):
        environment = {**os.environ, "HPVM_SERVER": self.server, "HPVM_TENANT": tenant}
        return subprocess.run([self.binaries / "hpvmctl", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                              env=environment)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def document(entry, inputs=1, words=256, instances=256, module="runaways.wasm", **more):
    given, made = {"type": "i32", "shape": [inputs]}, {"type": "i32", "shape": [words]}
    node = {"ports": [{"name": "in", "access": "in", **given}, {"name": "out", "access": "out", **made}], "instances": [instances],
            "devices": ["cpu"], "variants": [{"module": "k", "entry": entry}], **more}
    return {"hpvm": 1, "inputs": {"in": given}, "outputs": {"out": made}, "nodes": {"node": node},
            "modules": {"k": {"kind": "wasm", "source": {"file": module}}},
            "edges": [{"from": "in", "to": "node.in"}, {"from": "node.out", "to": "out"}]}


def percentile(values, share):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(share * len(values)))], 2) if values else None


class Neighbour(threading.Thread):
    def __init__(self, daemon, folder):
        super().__init__(daemon=True)
        self.server, self.folder, self.stopping = daemon, folder, False
        self.wrong, self.ms, self.error = 0, [], ""
        (folder / "neighbour.json").write_text(json.dumps(document("add", 256)))
        (folder / "neighbour.bin").write_bytes(bytes(1024))

    def run(self):
        while not self.stopping:
            start = time.monotonic()
            done = self.server.ctl("run", self.folder / "neighbour.json", "--input", f"in={self.folder}/neighbour.bin", "--output",
                                   f"out={self.folder}/neighbour.out", tenant="neighbour")
            self.ms.append((time.monotonic() - start) * 1000)
            if done.returncode != 0 or (self.folder / "neighbour.out").read_bytes() != b"\1\0\0\0" * 256:
                self.wrong += 1
                self.error = self.error or done.stderr[-300:]


def run_away(daemon, folder, kind, deadline_ms):
    """Returns milliseconds from the deadline to the job's end; a sentence when it ended otherwise."""
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(document("f" if kind == "compile" else kind, **KINDS[kind])))
    if kind == "compile":
        # Submitting compiles first, and the job's deadline begins after that; the deadline of `run` includes compiling. The clock is the client's.
        start = time.monotonic()
        done = daemon.ctl("run", path, "--input", f"in={folder}/go.bin", "--deadline", f"{deadline_ms}ms", tenant="runaway")
        late = (time.monotonic() - start) * 1000 - deadline_ms
        return late if "DEADLINE_EXCEEDED" in done.stderr else f"ended as {done.returncode}: {done.stderr[-300:]}"
    done = daemon.ctl("submit", path, "--input", f"in={folder}/go.bin", "--deadline", f"{deadline_ms}ms", "--detach", tenant="runaway")
    if done.returncode != 0:
        return f"not submitted: {done.stderr[-300:]}"
    daemon.ctl("wait", done.stdout.strip(), tenant="runaway")
    job = json.loads(daemon.ctl("get", done.stdout.strip(), "-o", "json", tenant="runaway").stdout)
    job = job[0] if isinstance(job, list) else job
    if job.get("error", {}).get("code") != 4:  # DEADLINE_EXCEEDED.
        return f"ended as {job.get('state')}: {job.get('error')}"
    return stamp(job, "ended") - stamp(job, "deadline")


def stamp(job, name):
    """Returns the time in milliseconds."""
    value = job.get(f"{name}_unix_ns", job.get(f"{name}UnixNs", job.get(name)))
    if isinstance(value, str) and not value.isdigit():
        import datetime
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp() * 1000
    return int(value) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--each", type=int, default=30)
    parser.add_argument("--deadline-ms", type=int, default=300)
    parser.add_argument("--p99-ms", type=float, default=100)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-runaways-"))
    daemon = Daemon(arguments.binaries.resolve(), folder)
    try:
        shutil.copy(HERE / "runaways.wasm", folder)
        (folder / "compile.wasm").write_bytes(module_of([HARD_STATEMENT * HARD_STATEMENTS]))
        (folder / "go.bin").write_bytes(bytes(4))
        ready = daemon.ctl("devices", "--connect-timeout", "30", tenant="neighbour")
        assert ready.returncode == 0, ready.stderr + daemon.log.read_text()
        for kind in KINDS:  # Each kernel is compiled before anything is measured.
            if kind != "compile":
                run_away(daemon, folder, kind, arguments.deadline_ms + 2000)
        neighbour = Neighbour(daemon, folder)
        neighbour.start()
        over, faults = {kind: [] for kind in KINDS}, []
        for _ in range(arguments.each):
            for kind in KINDS:
                ended = run_away(daemon, folder, kind, arguments.deadline_ms)
                if isinstance(ended, str):
                    faults.append(f"{kind}: {ended}")
                else:
                    over[kind].append(ended)
        neighbour.stopping = True
        neighbour.join()
        log = daemon.log.read_text()
    finally:
        daemon.stop()
        shutil.rmtree(folder)
    everything = [ms for values in over.values() for ms in values]
    result = {"runaways": len(everything), "p50_ms": percentile(everything, 0.5), "p99_ms": percentile(everything, 0.99),
              "max_ms": percentile(everything, 1), "killed_executors": log.count("Executor killed"), "faults": faults[:10],
              "kinds": {k: {"p50_ms": percentile(v, 0.5), "p99_ms": percentile(v, 0.99), "max_ms": percentile(v, 1)} for k, v in over.items()},
              "neighbour": {"runs": len(neighbour.ms), "wrong": neighbour.wrong, "error": neighbour.error,
                            "p50_ms": percentile(neighbour.ms, 0.5), "p99_ms": percentile(neighbour.ms, 0.99)}}
    print(f"runaways: {json.dumps(result)}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1))
    good = not faults and neighbour.wrong == 0 and len(neighbour.ms) > 2
    return 0 if good and (arguments.p99_ms == 0 or result["p99_ms"] <= arguments.p99_ms) else 1


if __name__ == "__main__":
    sys.exit(main())
