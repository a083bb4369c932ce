#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares graphs that are split over real GPUs bit for bit, by OpenCL and by Vulkan: hpvm-gpu-many on two GPUs and on four.

    many.py BIN [--counts 2,4] [--size 1024] [--json FILE]

BIN holds hpvm-gpu-many, hpvm-compiler and gpu_many.wasm, as a build's bin/ or the bundle's. Counts that the machine does not have
are omitted and named. The devices are described as slow, so that every split pays off. Exits with 1 when a case has different bits or
fails, or when the program reports that fewer than half of them ran on all devices at once. Needs Python alone.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def run(program, family, count, size, cache):
    """Returns the lines that the program prints, and one more when it fails as a whole; None when the machine lacks a device."""
    command = [str(program), "--size", str(size), "--cache", cache, "--distinct"]
    for index in range(count):
        command += ["--device", f"{family}:{index}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
        code, text, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        code, text, errors = 124, (error.stdout or b"").decode(errors="replace"), "It took more than 300 s."
    if code == 3:
        return None
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if code not in (0, 1) or not lines or (code == 1 and all(line["ok"] for line in lines)):
        lines.append({"case": "the program", "ok": False, "message": f"exit code {code}: {errors[-2000:]}"})
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--counts", default="2,4")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.counts.split(",")]
    results, failed = [], 0
    with tempfile.TemporaryDirectory(prefix="many-") as cache:
        for family in ("opencl", "vulkan"):
            for count in counts:
                lines = run(arguments.bin / "hpvm-gpu-many", family, count, arguments.size, cache)
                if lines is None:
                    print(f"{family}: fewer than {count} devices")
                    continue
                results += [{"family": family, "devices": count, **line} for line in lines]
                failed += sum(not line["ok"] for line in lines)
                for line in lines:
                    outcome = ("ok" if line["ok"] else line["message"]) + ("" if line.get("on_all", True) else ", never on all devices at once")
                    print(f"{family} x {count}  {line['case']}: {outcome}  {line.get('best_ms', 0):.2f} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if not results:
        print("No case ran.")
    sys.exit(1 if failed or not results else 0)


if __name__ == "__main__":
    main()
