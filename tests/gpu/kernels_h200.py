#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the code that drivers' compilers make of our kernels, on a real GPU: addresses that wrap around, wide groups, random records.

    kernels_h200.py BUNDLE [--seconds 40] [--json FILE] [--only PART,...]

BUNDLE is an unpacked archive of deploy/bundle.sh --tests (or a build's folder: bin/ and tests/). Prints one JSON document; the exit status
is 0 if every part passed. Takes about four minutes on an H200. Needs Python alone, and no network.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def parts(root, seconds):
    tests, programs = root / "tests", root / "bin"
    yield "wrap", [tests / "gpu_wrap_test"], 200
    # The emitter's text, without a daemon or our device code around it.
    yield "opencl_text", [tests / "opencl_run_test"], 200
    yield "opencl_device", [tests / "opencl_device_test", "--gtest_filter=*Groups*"], 200
    for family in ("opencl", "vulkan"):
        for kind in ("records", "any"):
            more = ["--records"] if kind == "records" else []
            yield f"random_{kind}_{family}", [programs / "hpvm-gpu-random", "--device", f"{family}:0", "--seeds", "0..999999",
                                              "--seconds", str(seconds), *more], seconds + 150
    yield "wide_groups", [sys.executable, HERE / "wide_groups.py", programs], 400


def run(command, seconds):
    begin = time.monotonic()
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=seconds, env={**os.environ, "POCL_WORK_GROUP_SPECIALIZATION": "0"})
        code, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, text = 124, (error.stdout or b"").decode(errors="replace")
    result = {"exit_code": code, "seconds": round(time.monotonic() - begin, 1),
              "passed": len(re.findall(r"^\[       OK \]", text, re.M)),
              "skipped": len(set(re.findall(r"^\[  SKIPPED \] (\S+)", text, re.M)))}
    if code != 0:
        result["output"] = text[-6000:]
    elif not result["passed"]:
        result["output"] = text[-400:]
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name]
    document = {name: run(command, seconds) for name, command, seconds in parts(options.bundle.resolve(), options.seconds)
                if not wanted or name in wanted}
    text = json.dumps(document, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0 if document and all(part["exit_code"] == 0 for part in document.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
