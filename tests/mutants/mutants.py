#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harness check: every seeded bug of the compiler must be caught by a test.

    tests/mutants/mutants.py --build FOLDER [--only NAME ...] [--jobs N] [--log FILE] [--table FILE]
    tests/mutants/mutants.py --list
    tests/mutants/mutants.py --count

The bugs are patches (patches/*.patch), never part of the product's text. The script copies the tree to FOLDER, applies
all of them there, each behind a switch that reads the environment variable HPVMD_MUTANT, and builds the tests
once. Then it tries each bug: the tests that its patch names, cheapest first, then all others, until one fails. A test that
fails has to pass without the bug. Exit 1 when a bug survives. A FOLDER that it made before is brought up to date.
"""
import argparse
import collections
import concurrent.futures
import datetime
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import patches
import seeded

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path("build/release")
SECONDS_MAX = 900
# Tests that are programs with arguments; any other name is a GoogleTest program.
CAMPAIGNS = {
    "spmd": ["hpvm-spmd", "--seeds", "0..999999", "--seconds", "120", "--no-shrink"],
    "spmd_found": ["hpvm-spmd", "--level", "x86-64-v2", "--level", "x86-64-v3", "--level", "x86-64-v4", "--replay",
                   "tests/spmd/found/*.ir"],
    "prove": ["hpvm-prove", "--seeds", "0..9999999", "--seconds", "120"],
    "diff": ["hpvm-diff", "--seeds", "0..1999"],
    "gpu_random_opencl": ["hpvm-gpu-random", "--device", "opencl:0", "--seeds", "0..999999", "--seconds", "120"],
    "gpu_random_vulkan": ["hpvm-gpu-random", "--device", "vulkan:0", "--seeds", "0..50", "--seconds", "120"],
}
# Tests that run, in this order, after the tests that a patch names have passed.
OTHERS = {
    "compiler/back/llvm": ["gang_assumed_test", "gang_control_test", "gang_memory_test", "gang_transpose_test", "group_test",
                           "golden_conformance_test", "spmd_found", "spmd", "diff"],
    "compiler/back/opencl": ["opencl_back_test", "opencl_run_test", "gpu_ops_test", "gpu_tiles_test",
                             "gpu_access_test", "gpu_conformance_test", "gpu_golden_conformance_test",
                             "gpu_random_opencl"],
    "compiler/back/vulkan": ["vulkan_back_test", "vulkan_fused_float_test", "gpu_spirv_random_test", "gpu_ops_test",
                             "gpu_tiles_test", "gpu_access_test", "gpu_conformance_test", "gpu_golden_conformance_test",
                             "gpu_random_vulkan"],
    "compiler/back/gpu": ["gpu_plan_test", "trap_route_test", "opencl_back_test", "gpu_spirv_random_test",
                          "gpu_ops_test", "gpu_sums_test", "gpu_access_test", "gpu_conformance_test",
                          "gpu_golden_conformance_test", "gpu_random_opencl", "gpu_random_vulkan"],
    "compiler/pass": ["pass_golden_test", "gang_plan_test", "coarsen_test", "spmd_coarsen_test", "split_barriers_test",
                      "find_bounds_test", "prove", "find_access_test", "group_test", "golden_conformance_test",
                      "gpu_tiles_test", "spmd_found", "spmd"],
    "backends/gpu": ["gpu_launch_test", "gpu_tiles_test", "gpu_conformance_test"],
    "compiler/ir": ["ir_interval_test", "ir_bounds_test", "find_bounds_test", "prove", "find_access_test", "spmd"],
}


def others_of(file):
    return next((tests for folder, tests in OTHERS.items() if file.startswith(folder + "/")), [])


def tests_of(patch):
    return list(dict.fromkeys([*patch.tests, *others_of(patch.file)]))


def build(folder, tests, jobs):
    targets = sorted({CAMPAIGNS[test][0] if test in CAMPAIGNS else test for test in tests})
    log = folder / "build/mutants.build.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as out:
        for command in (["cmake", "--preset", "release"],
                        ["cmake", "--build", BUILD, "-j", str(jobs), "--target", *targets]):
            if subprocess.run(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, check=False).returncode != 0:
                sys.exit(f"The copy with all seeded bugs does not build; see {log}.")


def command_of(folder, test):
    if test not in CAMPAIGNS:
        return [folder / BUILD / "tests" / test]
    program, *arguments = CAMPAIGNS[test]
    words = [folder / BUILD / "bin" / program]
    for word in arguments:
        words += sorted(folder.glob(word)) if "*" in word else [word]
    return words


def run(folder, test, mutant):
    """Returns how the test failed, or None."""
    environment = {**os.environ, "HPVMD_MUTANT": mutant, "GTEST_FAIL_FAST": "1", "GTEST_COLOR": "no"}
    with subprocess.Popen(command_of(folder, test), cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"it does not end within {SECONDS_MAX} s"
    return None if process.returncode == 0 else describe(output, process.returncode)


def describe(output, status):
    if found := re.search(r"(?:FOUND|DIFFERENCE) (seed \d+).*?: ([^.:\n]+)", output):
        return f"{found.group(1)}: {found.group(2).strip()}"
    if found := re.search(r"REFUTED (seed \d+)", output):
        return f"{found.group(1)}: a claim of the prover"
    if found := re.search(r"\[  FAILED  \] ([\w./]+)", output):
        return found.group(1)
    if found := re.search(r"FAILED (\S+): ([^.\n]+)", output):
        return f"{pathlib.Path(found.group(1)).name}: {found.group(2)}"
    begun = re.findall(r"\[ RUN      \] ([\w./]+)", output)
    return (f"{begun[-1]}: " if begun else "") + (f"signal {-status}" if status < 0 else f"exit status {status}")


class Trial:
    """Trial tries bugs, several at a time if asked. A test counts as catching a bug only if it passes without the bug."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.clean = {}  # For each test: why it fails without a bug, or None.

    def fails_anyway(self, test):
        with self.lock:
            if test not in self.clean:
                self.clean[test] = run(self.folder, test, "")
                if self.clean[test] is not None:
                    print(f"{test} fails without a seeded bug: {self.clean[test]}. The test is skipped.", flush=True)
            return self.clean[test] is not None

    def catch(self, patch):
        """Returns the test that failed, how, and after how many seconds of tests; or None."""
        start = time.monotonic()
        for test in tests_of(patch):
            how = run(self.folder, test, patch.name)
            took = time.monotonic() - start
            if how is not None and not self.fails_anyway(test):
                return test, how, took
        return None


def report(patch, caught):
    if caught is None:
        return f"{patch.name}: NOT CAUGHT"
    test, how, took = caught
    return f"{patch.name}: caught by {test} ({how}), {took:.1f} s"


def try_all(chosen, options):
    trial = Trial(options.build)
    results = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(trial.catch, patch): patch for patch in chosen}
        for future in concurrent.futures.as_completed(futures):
            patch = futures[future]
            results[patch.name] = future.result()
            print(report(patch, results[patch.name]), flush=True)
    return results


def write_log(path, chosen, results):
    commit = subprocess.run(["git", "-C", seeded.ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip()
    missed = sum(results[patch.name] is None for patch in chosen)
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{datetime.date.today()} commit {commit}: {len(chosen) - missed} of {len(chosen)} caught\n")
        for patch in chosen:
            file.write(f"  {report(patch, results[patch.name])}\n")


def print_counts(*folders):
    """Prints a line for each folder, and below it a line for each group (first word of the names) with its number of bugs."""
    for folder, names in folders:
        groups = collections.Counter(name.split("_")[0] for name in set(names))
        print(f"{folder}: {groups.total()}")
        for group, count in sorted(groups.items()):
            print(f"  {group + '_':<12}{count:4}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, help="folder for the copy and its build")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try only these bugs")
    parser.add_argument("--jobs", type=int, default=1, help="number of bugs to try, and of files to compile, at a time")
    parser.add_argument("--log", type=pathlib.Path, help="also add the results to this file")
    parser.add_argument("--table", help="also write a table in Markdown to this file")
    parser.add_argument("--list", action="store_true", help="list the bugs and exit")
    parser.add_argument("--count", action="store_true", help="print the number of bugs in each group, including system/, and exit")
    options = parser.parse_args()
    known = patches.read_all(HERE / "patches")
    if options.count:
        print_counts(("patches", (patch.bug for patch in known)), ("system", seeded.system_bugs()))
        return 0
    chosen = [patch for patch in known if options.only is None or patch.name in options.only]
    if options.list:
        print("".join(f"{patch.name} ({patch.file}): {patch.what}\n" for patch in chosen), end="")
        return 0
    if options.build is None or len(chosen) < len(options.only or []):
        parser.error("--build FOLDER is missing, or --only names an unknown bug.")
    options.build = options.build.resolve()
    if shutil.which("cmake") is None:
        parser.error("there is no cmake on the PATH.")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # Many of these programs crash.
    seeded.copy_tree(options.build, patches.apply_all(known, seeded.ROOT))
    build(options.build, {test for patch in chosen for test in tests_of(patch)}, options.jobs)
    results = try_all(chosen, options)
    rows = [(patch.name, patch.what, patch.file, *(caught[:2] if caught else ("NOT CAUGHT", "")))
            for patch in chosen for caught in [results[patch.name]]]
    if options.table:
        seeded.write_table(options.table, ("Seeded bug", "Effect", "File", "Caught by", "How"), rows)
    if options.log:
        write_log(options.log, chosen, results)
    return seeded.finish(len(chosen), sum(caught is None for caught in results.values()))


if __name__ == "__main__":
    sys.exit(main())
