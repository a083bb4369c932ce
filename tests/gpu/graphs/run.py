#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the corpus of whole graphs on GPUs, forces each variant of their kernels in turn, and compares with the processor's results.

    run.py BIN_FOLDER --short --device opencl:0        one process, small sizes, once; also the interpreter's results
    run.py BIN_FOLDER [--log FILE]                     the sitting: ten processes of ten runs on opencl:0 and vulkan:0

BIN_FOLDER holds hpvm-gpu-graphs, hpvm-compiler and gpu_graphs.wasm. Prints a table; exits with 1 after a loss, a difference, a
failure, a refusal that is not listed below, or a listed one that did not occur. Needs Python alone, and no network.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import corpus  # noqa: E402

# Known failures: text in the device's name and in the message, and the reason. A listed graph that succeeds counts as a failure.
KNOWN = [
    # (driver, device, graph, message, reason)
]
# Graphs that a driver compiles for minutes, and that are omitted there.
SLOW = [
    # (driver, device, graphs, reason)
    ("vulkan", "llvmpipe", {"bilateral", "black_scholes", "change_ways", "cholesky", "dft", "fft"},
     "lavapipe compiles its kernels for half a minute and longer"),
]
TURN = 7  # Each process begins this many graphs later, so that the processes fill the compilers' caches for each other.


class Tally:
    """Tally counts the results of one graph on one device."""

    def __init__(self):
        self.wishes, self.counts, self.messages = set(), collections.Counter(), []
        self.variants = None

    def take(self, line):
        if "wish" in line:
            self.wishes.add(line["wish"])
            for key in ("runs", "losses", "differences", "failures", "obeyed", "others"):
                self.counts[key] += line[key]
        elif "variants" in line:
            self.variants = line["variants"]
        for kind in ("refused", "broken", "crashed"):
            if kind in line:
                self.counts[kind] += 1
        message = line.get("message") or line.get("refused") or line.get("broken") or line.get("crashed")
        if message and message not in self.messages and len(self.messages) < 4:
            self.messages.append(message)

    def faults(self):
        return sum(self.counts[key] for key in ("losses", "differences", "failures", "refused", "broken", "crashed"))


class Sitting:
    def __init__(self, options, graphs, folder):
        self.options, self.graphs, self.folder = options, graphs, folder
        self.end = time.monotonic() + options.seconds
        self.lock = threading.Lock()
        self.tallies = {device: collections.defaultdict(Tally) for device in options.device}
        self.names, self.incomplete, self.seconds = {}, [], {}
        self.slots = threading.Semaphore(options.parallel)
        self.corpus = folder / "corpus.json"
        self.corpus.write_text(json.dumps({"graphs": graphs}))

    def environment(self):
        """Returns an environment in which every process of the sitting finds the drivers' caches."""
        names = {"POCL_CACHE_DIR": "pocl", "MESA_SHADER_CACHE_DIR": "mesa", "CUDA_CACHE_PATH": "cuda",
                 "__GL_SHADER_DISK_CACHE_PATH": "gl"}
        for name in names.values():
            (self.folder / name).mkdir(exist_ok=True)
        return {**os.environ, **{key: str(self.folder / name) for key, name in names.items()},
                "CUDA_CACHE_MAXSIZE": str(1 << 31), "__GL_SHADER_DISK_CACHE_SKIP_CLEANUP": "1"}

    def command(self, device, order):
        (self.folder / "kernels").mkdir(exist_ok=True)
        command = [str(self.options.bin / "hpvm-gpu-graphs"), "--corpus", str(self.corpus), "--device", device,
                   "--runs", str(self.options.runs), "--cache", str(self.folder / "kernels"),
                   *(["--graphs", ",".join(map(str, order))] if order else [])]
        return command + (["--interpret"] if self.options.short else [])

    def one_process(self, device, number):
        """Runs the corpus once, from a different start; a process that ends early is followed by another for the remaining graphs."""
        graphs = [i for i, graph in enumerate(self.graphs)
                  if not slow_for(device, self.names[device], graph["name"])]
        start = number * TURN % max(len(graphs), 1)
        left = graphs[start:] + graphs[:start]
        with self.slots:
            begin = time.monotonic()
            while left and time.monotonic() < self.end:
                left = self.run_some(device, left)
            with self.lock:
                if left:
                    self.incomplete.append(f"{device}, process {number}: {len(left)} graphs are left")
                self.seconds[device, number] = time.monotonic() - begin

    def run_some(self, device, left):
        present, is_done, problem = None, False, ""
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(self.command(device, left), stdout=subprocess.PIPE, stderr=errors, text=True,
                                     env=self.environment())
            heard = [time.monotonic()]
            threading.Thread(target=self.watch, args=(child, heard), daemon=True).start()
            for text in child.stdout:
                heard[0] = time.monotonic()
                if not text.startswith("{"):  # Drivers print, too.
                    errors.write(text)
                    continue
                line = json.loads(text)
                with self.lock:
                    if "begin" in line:
                        present = line["begin"]
                        left = left[left.index(present) + 1:]
                    elif "graph" in line:
                        self.tallies[device][line["graph"]].take(line)
                    is_done |= "end" in line
            code = child.wait()
            errors.seek(0)
            problem = errors.read()[-600:].strip()
        if present is None:
            with self.lock:
                self.incomplete.append(f"{device}: the program ended with {code} before the first graph: {problem}")
            return []
        if not is_done and code != 3:
            name = self.graphs[present]["name"]
            how = signal.Signals(-code).name if code < 0 else str(code)
            late = time.monotonic() >= self.end
            with self.lock:
                if late:
                    self.incomplete.append(f"{device}: the time ended during {name}")
                else:
                    self.tallies[device][name].take({"crashed": f"the process ended with {how}: {problem}"})
            return [present, *left] if late else left
        return left

    def watch(self, child, heard):
        """Ends the process when time is up, or when it has been silent for too long: a kernel does not return."""
        while child.poll() is None:
            if time.monotonic() > min(self.end, heard[0] + self.options.silence):
                child.kill()
            time.sleep(0.2)

    def run(self):
        threads = [threading.Thread(target=self.one_process, args=(device, number))
                   for number in range(self.options.processes) for device in self.options.device]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def device_name(sitting, device):
    """Returns the name of the device as the program prints it."""
    done = subprocess.run(sitting.command(device, []), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=sitting.environment())
    for text in done.stdout.splitlines():
        if "device" in json.loads(text):
            return json.loads(text)["device"]
    raise SystemExit(f"{device} is not available: {done.stderr[-600:]}")


def slow_for(device, name, graph):
    return next((reason for driver, part, graphs, reason in SLOW
                 if device.startswith(driver) and part in name and graph in graphs), None)


def known_for(device, name, graph):
    for driver, part, known, message, reason in KNOWN:
        if device.startswith(driver) and part in name and known == graph:
            return message, reason
    return None


def judge(sitting, device, graph, say):
    """Returns true when the results of one graph on one device are as expected."""
    tally = sitting.tallies[device][graph]
    counts = tally.counts
    slow = slow_for(device, sitting.names[device], graph)
    if slow:
        say(f"{graph:18} {device:9} {'-':>8} left out: {slow}")
        return True
    known = known_for(device, sitting.names[device], graph)
    wanted_runs = sitting.options.runs * sitting.options.processes * (1 + (tally.variants or 0))
    if known:
        is_good = tally.faults() > 0 and all(known[0] in message for message in tally.messages)
        note = f"known: {known[1]}" if is_good else f"listed as known ({known[1]}), which it no longer is"
    else:
        is_good = tally.faults() == 0 and counts["runs"] == wanted_runs
        note = "" if is_good else f"of {wanted_runs} runs" if tally.faults() == 0 else "; ".join(tally.messages)
    bad = sum(counts[key] for key in ("failures", "refused", "broken", "crashed"))
    say(f"{graph:18} {device:9} {tally.variants or 0:8} {counts['runs']:6} {counts['obeyed']:9} {counts['others']:8} "
        f"{counts['losses']:6} {counts['differences']:5} {bad:6}  {note}".rstrip())
    return is_good


def report(sitting, say):
    options = sitting.options
    say(f"{time.strftime('%d %B %Y, %H:%M')}, {os.cpu_count()} processors")
    say(f"{len(sitting.graphs)} graphs, {'short' if options.short else 'long'} sizes, {options.processes} processes of "
        f"{options.runs} runs of each variant and of the device's own choice.")
    for device in options.device:
        say(f"{device}: {sitting.names[device]}")
    say(f"{'graph':18} {'device':9} {'variants':>8} {'runs':>6} {'launches':>9} {'(others)':>8} {'losses':>6} {'diffs':>5} {'faults':>6}")
    is_good = not sitting.incomplete
    for graph in sitting.graphs:
        for device in options.device:
            is_good &= judge(sitting, device, graph["name"], say)
    for line in sitting.incomplete:
        say("incomplete: " + line)
    for device in options.device:
        total = sum((tally.counts for tally in sitting.tallies[device].values()), collections.Counter())
        took = [seconds for (of, _), seconds in sitting.seconds.items() if of == device] or [0]
        say(f"{device}: {total['runs']} runs, {total['obeyed']} launches of the wanted variant ({total['others']} of another), "
            f"{total['losses']} losses, {total['differences']} differences, "
            f"{sum(total[key] for key in ('failures', 'refused', 'broken', 'crashed'))} other faults; "
            f"processes took {min(took):.0f} to {max(took):.0f} s.")
    return is_good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--device", action="append")
    parser.add_argument("--only", action="append", help="graphs, by name")
    parser.add_argument("--half", type=int, choices=(0, 1), help="every other graph, from the first or the second on")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--parallel", type=int, default=20, help="processes at a time")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--silence", type=float, help="seconds without a line after which a process counts as hanging")
    parser.add_argument("--log", type=pathlib.Path)
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    options.device = options.device or ["opencl:0", "vulkan:0"]
    options.processes = options.processes or (1 if options.short else 10)
    options.runs = options.runs or (1 if options.short else 10)
    options.seconds = options.seconds or (1100 if options.short else 480)
    options.silence = options.silence or (400 if options.short else 120)
    graphs = corpus.read("short" if options.short else "long")
    graphs = [graph for graph in graphs if not options.only or graph["name"] in options.only]
    if options.half is not None:
        graphs = graphs[options.half::2]
    lines = []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hpvm-graphs-") as folder:
        sitting = Sitting(options, graphs, pathlib.Path(folder))
        sitting.names = {device: device_name(sitting, device) for device in options.device}
        sitting.run()
        is_good = report(sitting, say)
    say(f"{'passed' if is_good else 'FAILED'} after {time.monotonic() - begin:.0f} s")
    if options.log:
        options.log.write_text("\n".join(lines) + "\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
