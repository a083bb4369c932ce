#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kernels in groups up to a device's maximum, on every device, and compares the bits with a computation here.

    wide_groups.py BIN_FOLDER [--devices cpu,opencl:0] [--json FILE]

Bitonic sorts in groups of 512 and 1,024 with 4 KiB of group memory, a kernel in groups of all sizes (the last one partial),
and a group that is larger than any device's, whose refusal must name the reason. Without --devices: those of cpu, opencl:0 and
vulkan:0 that exist. Needs Python and the programs, no network.
"""

import argparse
import array
import json
import pathlib
import random
import shutil
import sys
import tempfile

from canaries import Daemon

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"u32": ("I", "<u4"), "u64": ("Q", "<u8")}


def save(path, kind, values):
    code, name = TYPES[kind]
    head = f"{{'descr': '{name}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + array.array(code, values).tobytes())


def load(path, kind):
    data = path.read_bytes()
    values = array.array(TYPES[kind][0])
    values.frombytes(data[10 + int.from_bytes(data[8:10], "little"):])
    return values.tolist()


def graph(entry, kind, instances, group, device, scalars=()):
    array_of = {"type": kind, "shape": ["n"]}
    node = {"ports": [{"name": "in", "access": "in", **array_of}, {"name": "out", "access": "out", **array_of}],
            "scalars": [{"name": name, "type": "i32", "value": value} for name, value in scalars],
            "instances": [instances], "group": [group], "variants": [{"module": "k", "entry": entry}], "devices": [device]}
    return {"hpvm": 1, "name": entry, "inputs": {"in": array_of}, "outputs": {"out": array_of},
            "modules": {"k": {"kind": "wasm", "source": {"file": "groups.wasm"}}}, "nodes": {"run": node},
            "edges": [{"from": "in", "to": "run.in"}, {"from": "run.out", "to": "out"}]}


def blocks(values, size, change):
    return [value for at in range(0, len(values), size) for value in change(values[at:at + size])]


def cases():
    numbers = random.Random(5)
    keys64 = [numbers.getrandbits(64) for _ in range(512 * 9)]
    keys32 = [numbers.getrandbits(32) for _ in range(1024 * 7)]
    yield "sort512", "u64", 512, "n", (), keys64, blocks(keys64, 512, sorted)
    yield "sort1024", "u32", 1024, "n", (), keys32, blocks(keys32, 1024, sorted)
    yield "sort_pairs", "u32", 512, "n/2", (), keys32, blocks(keys32, 1024, sorted)
    for group in (256, 257, 384, 512, 768, 1000, 1024):
        some = keys32[:group * 3 + group // 2 + 1]
        yield "turn", "u32", group, "n", (("n", "n"),), some, blocks(some, group, lambda block: block[::-1])


def run(daemon, folder, document, kind, values):
    (folder / "graph.json").write_text(json.dumps(document))
    save(folder / "in.npy", kind, values)
    out = folder / "out.npy"
    out.unlink(missing_ok=True)
    done = daemon.ctl("run", folder / "graph.json", "--input", f"in={folder}/in.npy", "--output", f"out={out}", timeout=300)
    return (load(out, kind) if done.returncode == 0 else None), done.stderr.strip()


def test(daemon, folder, device):
    faults = []
    for entry, kind, group, instances, scalars, values, want in cases():
        got, said = run(daemon, folder, graph(entry, kind, instances, group, device, scalars), kind, values)
        if got != want:
            wrong = said if got is None else f"{sum(a != b for a, b in zip(got, want))} of {len(want)} values are wrong"
            faults.append(f"{entry} in groups of {group}: {wrong}")
    if device != "cpu":
        got, said = run(daemon, folder, graph("turn", "u32", "n", 1 << 20, device, (("n", "n"),)), "u32", [1, 2, 3])
        if got is not None or "1048576" not in said or not ("allows" in said or "larger than the limit" in said):
            faults.append(f"a group of 1,048,576 is refused with: {said}")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--devices", default="")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-groups-"))
    shutil.copy(HERE / "groups.wasm", folder)
    asked = options.devices or "cpu,opencl:0,vulkan:0"
    daemon = Daemon(options.binaries.resolve(), folder / "daemon", asked)
    try:
        present = {"cpu" if device == "cpu:0" else device for device in daemon.devices()}
        wanted = [device for device in asked.split(",") if options.devices or device in present]
        found = {device: test(daemon, folder, device) if device in present else ["there is no such device"] for device in wanted}
    finally:
        code = daemon.stop()
        log = daemon.log.read_text()[-4000:]
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps({"faults": found, "daemon": code}, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if code != 0 or any(found.values()):
        print(log, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
