#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the Python client for `hpvm-bench clients`, in pairs with bare calls of grpcio that carry the same bytes.

    python_calls.py PACKAGE SERVER GRAPH [--quick]

The graph copies its input (u8) to its output. Prints one JSON object."""

import json
import statistics
import subprocess
import sys
import time

sys.path.insert(0, sys.argv[1])

import numpy as np  # noqa: E402

import hpvm  # noqa: E402
from hpvm import _copies  # noqa: E402
from hpvm.v1 import job_pb2  # noqa: E402

QUICK = "--quick" in sys.argv


def median_us(call, count, pause_s=0.0):
    """Returns the medians of the time until a call's answer and of this thread's processor time, in microseconds."""
    times, cpu = [], []
    for _ in range(count):
        if pause_s:
            time.sleep(pause_s)
        begin, cpu_begin = time.perf_counter_ns(), time.thread_time_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
        cpu.append(time.thread_time_ns() - cpu_begin)
    return statistics.median(times) / 1e3, statistics.median(cpu) / 1e3


def pairs(ours, bare, rounds, count, pause_s):
    """Returns medians of rounds that take turns: ours and bare, time and processor time."""
    times = [(*median_us(ours, count, pause_s), *median_us(bare, count, pause_s)) for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times)]


def small(client, prepared, names):
    """Measures one run of 64 bytes and a bare call that carries the same bytes: back to back, and with a pause of 1 ms before each. Without
    the pause the daemon's threads still look for work when a bare call comes, but sleep after the microseconds that our client spends on an
    answer, so that the difference would show the threads and not the client."""
    array = np.arange(64, dtype="u1")
    request = job_pb2.RunRequest(handle=prepared.handle, repeat=1)
    request.options.errors_in_body = True
    binding = request.inputs.add(name=names[0])
    binding.tensor.type, binding.tensor.data = 3, array.tobytes()
    binding.tensor.shape.append(64)
    data = request.SerializeToString()
    call = client._channel._begin().unary_unary("/hpvm.v1.Hpvm/Run")
    _, metadata = client._drive(client._core.sign())
    inputs = {names[0]: array}
    assert (prepared.run(inputs)[names[1]] == array).all()
    result = {}
    for name, pause_s, rounds, count in (("", 0.001, 15, 200), ("close_", 0.0, 15, 400)):
        ours, ours_cpu, bare, bare_cpu = pairs(lambda: prepared.run(inputs), lambda: call(data, metadata=metadata),
                                               2 if QUICK else rounds, 20 if QUICK else count, pause_s)
        result.update({name + "ours_us": ours, name + "bare_us": bare, name + "ratio": ours / bare,
                       name + "cpu_ratio": ours_cpu / bare_cpu})
    return result


def large(client, prepared, names, megabytes):
    """Returns the median milliseconds of a run that takes and returns so many bytes, and the bytes copied by the package for each byte that
    travels."""
    array = np.ones(megabytes << 20, "u1")
    inputs = {names[0]: array}
    for _ in range(3):
        result = prepared.run(inputs)
    assert (result[names[1]] == array).all()
    before = _copies.total()
    count = 2 if QUICK else 15
    ms = median_us(lambda: prepared.run(inputs), count)[0] / 1e3
    return {"ms": ms, "copies": (_copies.total() - before) / count / (2 * array.nbytes)}


def registered(client, prepared, names, megabytes):
    into, out = client.shared((megabytes << 20,), "u8"), client.shared((megabytes << 20,), "u8")
    into.array[:] = 3
    run = {"inputs": {names[0]: into}, "out": {names[1]: out}}
    for _ in range(3):
        prepared.run(**run)
    assert (out.array == 3).all()
    before = _copies.total()
    ms = median_us(lambda: prepared.run(**run), 2 if QUICK else 25)[0] / 1e3
    return {"ms": ms, "copies": float(_copies.total() - before)}


def imports():
    """Returns the seconds of importing hpvm, and of importing numpy and grpc alone, in separate processes, in pairs."""
    def once(what):
        text = f"import sys; sys.path.insert(0, {sys.argv[1]!r}); import time; t = time.perf_counter(); {what}; print(time.perf_counter() - t)"
        return float(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout)
    rounds = [(once("import hpvm"), once("import numpy, grpc")) for _ in range(2 if QUICK else 15)]
    ours, bare = statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds)
    return {"ours_ms": ours * 1e3, "bare_ms": bare * 1e3, "ratio": ours / bare}


def main():
    graph = hpvm.Graph.load(sys.argv[3])
    with hpvm.connect(sys.argv[2]) as client, hpvm.connect(sys.argv[2], local_memory=False) as by_grpc:
        prepared, remote = client.prepare(graph), by_grpc.prepare(graph)
        names = next(iter(prepared.inputs)), next(iter(prepared.outputs))
        mb = 4 if QUICK else 64
        print(json.dumps({
            "run": small(client, prepared, names), "large/shared": large(client, prepared, names, mb),
            "large/grpc": large(by_grpc, remote, names, mb), "large/registered": registered(client, prepared, names, mb),
            "import": imports()}))


if __name__ == "__main__":
    main()
