#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests many times, first on the machine as it is and then beside a load, to find those that fail now and then.

    repeat.py BUILD [--times 50] [--load 0 --load 8] [--label fast] [--tests REGEX] [--except REGEX] [--log FILE]

BUILD is a build folder with its tests built. A test ends with its first failure (ctest --repeat until-fail). The load is so
many processes: most compute, every fourth walks through memory, every eighth writes and syncs a file. A summary is added to
FILE: the commit, the machine, what was left out, each test with its slowest repetition, the output of what failed.
Exit 1 if anything failed.
"""

import argparse
import datetime
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
RESULT = re.compile(r"^\s*(?:\d+/\d+ )?Test\s+#\d+: (\S+) \.+\s*(\S.*?)\s+([0-9.]+) sec$", re.MULTILINE)


class Load:
    """So many busy processes, until the block ends."""

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


def ctest(build, arguments):
    """The output of ctest; whether it succeeded."""
    done = subprocess.run(["ctest", "--test-dir", build, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return done.stdout, done.returncode == 0


def names(build, arguments):
    return set(re.findall(r"Test\s+#\d+: (\S+)", ctest(build, ["-N", *arguments])[0]))


def commit(build):
    root = pathlib.Path(__file__).resolve().parent
    git = ["git", "-C", str(root)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True,
                             check=False)
    return name.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def repeat(options, chosen, load):
    """Lines about one way of running them; whether all passed."""
    began = time.monotonic()
    with Load(load):
        output, is_good = ctest(options.build, [*chosen, "--repeat", f"until-fail:{options.times}", "--no-tests=error",
                                                "--output-on-failure"])
    worst, failed = {}, set()
    for name, verdict, seconds in RESULT.findall(output):
        worst[name] = max(worst.get(name, 0.0), float(seconds))
        if "Passed" not in verdict and "Skipped" not in verdict:
            failed.add(name)
    lines = [f"{options.times} times beside a load of {load}: {len(worst)} tests, {len(failed)} failed, "
             f"{time.monotonic() - began:.0f} s"]
    lines += [f"  {name} {'FAILED' if name in failed else 'passed'}, at most {seconds:.2f} s"
              for name, seconds in sorted(worst.items())]
    if not is_good:
        lines += ["  " + line for line in output.splitlines() if not re.search(r"Passed| OK |RUN  |^ *Start ", line)][-400:]
    return lines, is_good and not failed and bool(worst)


def write(path, lines):
    """At once, so that a form that is broken off leaves what was done."""
    if path:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as log:
            log.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--load", type=int, action="append", help="default: 0, then 8")
    parser.add_argument("--label", default="fast")
    parser.add_argument("--tests", default="")
    parser.add_argument("--except", dest="without", default="")
    parser.add_argument("--log")
    options = parser.parse_args()
    chosen = ["-L", f"^{options.label}$"]
    chosen += ["-R", options.tests] if options.tests else []
    chosen += ["-E", options.without] if options.without else []
    left_out = sorted(names(options.build, []) - names(options.build, chosen))
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
