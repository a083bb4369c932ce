#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests many times, first on the machine as it is and then beside a load, to find tests that fail occasionally.

    repeat.py BUILD [--times 50] [--at-once 1] [--load 0 --load 8] [--label fast] [--tests REGEX] [--except REGEX]
              [--seconds S] [--log FILE]

BUILD is a build folder with its tests built. Every chosen test runs once before any runs twice, and so on; a test that failed
is not run again. --at-once is the number of concurrent runs. After --seconds no run begins, and the summary
reports how often each test has run. --load is the number of load processes: most compute, every fourth walks through memory, every eighth
writes and syncs a file. A summary is added to FILE: the commit, the machine, omitted tests, each test with its
slowest repetition, the output of failures. Exits with 1 if anything failed, or nothing ran.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time

COMPUTE = "x = 1\nwhile True: x = x * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1"
MEMORY = "data = bytearray(256 << 20)\nwhile True: data = bytearray(data)"
DISK = ("import os, sys\nfd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)\n"
        "while True:\n    os.pwrite(fd, bytes(1 << 20), 0)\n    os.fsync(fd)")


class Load:
    """Load is a number of busy processes, until the block ends."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="repeat-")
        self.processes = []
        for i in range(self.count):
            code = DISK if i % 8 == 7 else MEMORY if i % 4 == 3 else COMPUTE
            file = os.path.join(self.folder.name, str(i))
            self.processes.append(subprocess.Popen([sys.executable, "-c", code, file]))

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.folder.cleanup()


class Test:
    """Test is one test as ctest knows it, with the results of its runs."""

    def __init__(self, known):
        properties = {item["name"]: item["value"] for item in known["properties"]}
        self.name = known["name"]
        self.command = known.get("command", [])
        self.folder = properties.get("WORKING_DIRECTORY")
        self.timeout = properties.get("TIMEOUT", 1500)
        self.skips = properties.get("SKIP_RETURN_CODE")
        self.environment = dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", []))
        self.passed, self.worst, self.failure = 0, 0.0, None

    def run(self, ends):
        if self.failure is not None or time.monotonic() > ends:
            return
        began = time.monotonic()
        try:
            done = subprocess.run(self.command, cwd=self.folder, env={**os.environ, **self.environment}, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=self.timeout)
            if done.returncode not in (0, self.skips):
                self.failure = f"exit status {done.returncode}\n{done.stdout}"
        except subprocess.TimeoutExpired as late:
            self.failure = f"not ended after {self.timeout} s\n{(late.output or b'').decode(errors='replace')}"
        except OSError as error:
            self.failure = str(error)
        self.worst = max(self.worst, time.monotonic() - began)
        self.passed += self.failure is None


def tests(build, arguments):
    """Returns the tests that ctest chooses, by name."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *arguments], stdout=subprocess.PIPE,
                           text=True, check=True).stdout
    return {known["name"]: Test(known) for known in json.loads(shown)["tests"]}


def commit(build):
    root = pathlib.Path(__file__).resolve().parent
    git = ["git", "-C", str(root)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True,
                             check=False)
    return name.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def repeat(options, chosen, load):
    """Returns lines about one way of running the tests, and whether all passed."""
    began = time.monotonic()
    ends = began + (options.seconds or float("inf"))
    known = sorted(tests(options.build, chosen).values(), key=lambda test: test.name)
    with Load(load), concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for _ in range(options.times):
            for test in known:
                pool.submit(test.run, ends)
    failed = [test for test in known if test.failure is not None]
    lines = [f"{options.at_once} at once beside a load of {load}: {len(known)} tests, {sum(test.passed for test in known)} passes, "
             f"{len(failed)} failures, {time.monotonic() - began:.0f} s"]
    lines += [f"  {test.name} passed {test.passed} times, at most {test.worst:.2f} s" for test in known]
    for test in failed:
        lines += [f"FAILED {test.name} after {test.passed} passes:", *("  " + line for line in test.failure.splitlines()[-400:])]
    return lines, bool(known) and not failed and all(test.passed for test in known)


def write(path, lines):
    """Appends at once, so that an interrupted run leaves its results."""
    if path:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as log:
            log.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--load", type=int, action="append", help="default: 0, then 8")
    parser.add_argument("--label", default="fast")
    parser.add_argument("--tests", default="")
    parser.add_argument("--except", dest="without", default="")
    parser.add_argument("--log")
    options = parser.parse_args()
    chosen = ["-L", f"^{options.label}$"]
    chosen += ["-R", options.tests] if options.tests else []
    chosen += ["-E", options.without] if options.without else []
    left_out = sorted(tests(options.build, []).keys() - tests(options.build, chosen).keys())
    lines = [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, commit {commit(options.build)}, "
             f"{platform.machine()}, {os.cpu_count()} processors, load average before {os.getloadavg()[0]:.1f}",
             "chosen: " + " ".join(chosen),
             f"left out ({len(left_out)}): " + (" ".join(left_out) if left_out else "nothing")]
    write(options.log, lines)
    is_good = True
    for load in options.load or [0, 8]:
        lines, passed = repeat(options, chosen, load)
        is_good = is_good and passed
        print("\n".join(lines), flush=True)
        write(options.log, lines)
    write(options.log, [""])
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
