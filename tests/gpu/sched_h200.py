#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests boxes, offsets and lanes on a real GPU: the conformance suite for OpenCL and Vulkan, then the gain from lanes.

    sched_h200.py TESTS_FOLDER [--json FILE] [--only DEVICE,...] [--any] [--suite FILTER]

TESTS_FOLDER holds gpu_conformance_test and gpu_lanes_benchmark, as a build's tests/ or the bundle's. Devices that are the host's
processor are omitted, unless --any is given; then there are few pieces. Prints one JSON document. Takes about three minutes on an H200.
Needs Python alone, and no network.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import time


def run(command, seconds):
    """Returns (exit code, output); 124 when the command took too long."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                              errors="replace")
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        return 124, (error.stdout or b"").decode(errors="replace")


def devices(tests, with_processors):
    """Returns the suite's devices, as "opencl:0". Those that are the host's processor are also tested as "opencl:0_lanes"."""
    code, text = run([str(tests / "gpu_conformance_test"), "--gtest_list_tests"], 120)
    if code != 0:
        raise SystemExit(f"gpu_conformance_test cannot list its tests ({code}):\n{text[-2000:]}")
    names = {m[1] for m in re.finditer(r"^  ((?:opencl|vulkan)_\d+)/", text, re.M)}
    return sorted(name.replace("_", ":") for name in names if with_processors or f"  {name}_lanes/" not in text)


def suite(tests, device, what):
    name = device.replace(":", "_")
    begin = time.monotonic()
    code, text = run([str(tests / "gpu_conformance_test"), f"--gtest_filter=Conformance.{name}/{what}"], 300)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (Conformance\.\S+)", text, re.M)))
    result = {"exit_code": code, "passed": len(re.findall(r"^\[       OK \]", text, re.M)),
              "skipped": len(set(re.findall(r"^\[  SKIPPED \] (Conformance\.\S+)", text, re.M))), "failed": failed,
              "seconds": round(time.monotonic() - begin, 1)}
    if code != 0:
        result["output"] = text[-6000:]
    return result


def lanes(tests, device, sizes):
    code, text = run([str(tests / "gpu_lanes_benchmark"), device, *sizes], 200)
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                break
    return {"exit_code": code, "output": text[-4000:]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tests", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--any", action="store_true")
    parser.add_argument("--suite", default="*")
    options = parser.parse_args()
    options.tests = options.tests.resolve()
    wanted = [name for name in options.only.split(",") if name]
    document = {"devices": {}}
    for device in wanted or devices(options.tests, options.any):
        sizes = (("1", "4"),) if options.any else (("4", "128"), ("32", "16"))
        entry = {"lanes": [lanes(options.tests, device, size) for size in sizes]}
        entry["conformance"] = suite(options.tests, device, options.suite)
        document["devices"][device] = entry
    text = json.dumps(document, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0 if document["devices"] and all(entry["conformance"]["exit_code"] == 0
                                            for entry in document["devices"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
