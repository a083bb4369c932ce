#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills, drains and reloads a real daemon under load from several tenants, lets it recover, and judges the history.

    chaos.py BIN [--kills N] [--drains N] [--reloads N] [--soak MINUTES] [--seed S] [--log FILE]

Without any of the four options: 25 kills, 5 drains, 20 reloads, as ctest runs it. Exit code 0: no problem was found. The
folder of a run that found a problem stays, with journals, configuration, log and state.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import soak  # noqa: E402
from faults import FAULTS, Fault  # noqa: E402
from history import NOT_FOUND, UNAVAILABLE, History  # noqa: E402
from processes import Client, Daemon, read_process  # noqa: E402

ROOT = HERE.parent.parent
TENANTS = ("ann", "bob", "cy")
VERIFY_SECONDS = 90
# Time between SIGTERM and exit, beyond server.drain_ms.
DRAIN_EXTRA_SECONDS = 2.0
# Time after which a daemon that was told to stop refuses new work.
REFUSAL_SECONDS = 0.3
PROBLEMS_MAX = 60
BASE = {
    "server.drain_ms": 500, "tenants.from_metadata": True, "log.level": "info", "devices.backends": "cpu",
    "executor.cpu_threads": 1, "executor.crashes_max": 1000, "executor.crash_window_ms": 1000,
    "jobs.kept_max": 1_000_000, "jobs.queued_per_tenant_max": 1000, "jobs.running_per_tenant_max": 4,
}
BROKEN = (   # (what is added to the file, what the log must name)
    ("[jobs]\nqueued_max = 5\n", "jobs"),                     # The section appears twice.
    ("[nonsense]\n", "nonsense"),
    ("[watch]\ndog = 1\n", "watch"),
    ("[graph]\nnodes_max = -1\n", "graph.nodes_max"),
    ("[graph]\ndepth_max = 100000\n", "graph.depth_max: The value (100000) is larger than the limit"),
    ("[graph]\nnodes_max = \"many\"\n", "graph.nodes_max"),
    ("[limits]\nbuffer_bytes_max = 1000\nbuffers_bytes_max = 10\n", "limits.buffer_bytes_max"),
    ("not TOML at all", "line"),
)


def failpoints():
    """Returns the names of all failpoints, read from the sources."""
    names = set()
    for folder in ("server", "supervisor", "base", "proto"):
        for path in (ROOT / folder).rglob("*.cc"):
            if not path.name.endswith("_test.cc"):
                names |= set(re.findall(r'HPVMD_FAILPOINT\("([^"]+)"\)', path.read_text(errors="replace")))
    return sorted(names)


class Chaos:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-chaos-"))
        self.begin = time.monotonic()
        self.log_file = open(options.log, "a") if options.log else None
        self.daemon = Daemon(options.bin, self.folder / "d")
        self.values = {**BASE, "server.listen": f"unix:{self.daemon.socket}", "server.state_dir": str(self.daemon.state),
                       "executor.path": str(self.daemon.bin / "hpvm-executor")}
        self.histories = {tenant: History(tenant) for tenant in TENANTS}
        self.lines = {tenant: [] for tenant in TENANTS}   # Lines of the current round.
        self.clients = {}
        self.problems = []
        self.counts = {}
        self.failpoints = failpoints()
        self.fault = Fault(options.fault)
        if options.fault == "memory_store":
            self.values["jobs.store"] = "memory"
        self.drain_seconds = []

    # --- Reports ---

    def say(self, text):
        line = f"{time.monotonic() - self.begin:8.1f} {text}"
        print(line, flush=True)
        if self.log_file:
            self.log_file.write(line + "\n")
            self.log_file.flush()

    def problem(self, text):
        self.problems.append(text)
        self.say("PROBLEM " + text)
        if len(self.problems) == PROBLEMS_MAX:
            raise RuntimeError(f"the run stops after {PROBLEMS_MAX} problems")

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    # --- Building blocks ---

    def start_daemon(self, **more):
        self.fault.happen("down", self)
        self.daemon.write_config(self.values)
        self.daemon.start(mutant=self.options.mutant, **more)
        self.check_no_elders()

    def start_clients(self):
        program = pathlib.Path(self.options.bin) / "hpvm-chaos-client"
        for number, tenant in enumerate(TENANTS):
            self.clients[tenant] = Client(program, self.daemon, tenant, self.options.seed + 17 * number,
                                          self.options.threads, self.options.live, self.options.pause_us)

    def go(self):
        for client in self.clients.values():
            client.ask("go")

    def check_no_elders(self):
        """Checks that no process of an earlier daemon is still alive."""
        own = read_process(self.daemon.process.pid)
        for process in self.daemon.family():
            if process.start < own.start and process.state != "Z":
                self.problem(f"an earlier daemon's process lives on: {process}")

    def check_nothing_left(self, what):
        deadline = time.monotonic() + 1
        while [p for p in self.daemon.family() if p.state != "Z"] and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in self.daemon.family():
            if process.state != "Z":
                self.problem(f"{what}: a process is left: {process}")
                os.kill(process.pid, signal.SIGKILL)
        for path in self.daemon.leftover_files():
            self.problem(f"{what}: a file is left: {path}")

    def read_journals(self):
        for tenant, client in self.clients.items():
            for line in client.new_lines():
                self.lines[tenant].append(line)
                self.histories[tenant].feed(line)

    def verify(self, seconds=VERIFY_SECONDS):
        """Leaves the daemon alone, follows every job to its end, and judges the history."""
        if not self.daemon.is_alive():
            self.start_daemon()
        started = time.monotonic()
        for client in self.clients.values():
            client.tell(f"verify {seconds}")
        for tenant, client in self.clients.items():
            if client.answer(seconds + 60) != "verified 1":
                self.problem(f"{tenant}: not every job was followed to its end within {seconds} s")
        self.read_journals()
        for history in self.histories.values():
            for text in history.problems:
                self.problem(text)
            history.problems.clear()
        self.lines = {tenant: [] for tenant in TENANTS}
        self.count("rounds")
        jobs = sum(len(history.jobs) for history in self.histories.values())
        self.say(f"healed in {time.monotonic() - started:.1f} s; {jobs} jobs so far; {len(self.problems)} problems; {self.counts}")

    def check_jobs(self, what):
        done = self.daemon.command("--check-jobs")
        if done.returncode != 0:
            self.problem(f"{what}: --check-jobs ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")

    def drain(self, what, second_after=None):
        """Sends SIGTERM and expects exit code 0 in time and no remains. `second_after`: seconds until a second SIGTERM."""
        drain_ms = self.values["server.drain_ms"]
        limit = drain_ms / 1000 + DRAIN_EXTRA_SECONDS
        sent = time.monotonic_ns()
        if self.fault.name == "deaf":
            self.fault.happen("drain", self)
        self.daemon.signal(signal.SIGTERM)
        if second_after is not None:
            time.sleep(second_after)
            if self.daemon.is_alive():
                self.daemon.signal(signal.SIGTERM)
            limit = second_after + DRAIN_EXTRA_SECONDS
        try:
            code = self.daemon.process.wait(limit + 30)
        except subprocess.TimeoutExpired:
            self.problem(f"{what}: the daemon does not end within {limit + 30:.1f} s of SIGTERM")
            self.daemon.kill()
            return
        took = (time.monotonic_ns() - sent) / 1e9
        if self.fault.name == "leftover":
            self.fault.happen("drain", self)
        self.drain_seconds.append(took)
        if code != 0:
            self.problem(f"{what}: the daemon ended with {code}, not 0: {self.daemon.tail(800)}")
        if took > limit:
            self.problem(f"{what}: the daemon took {took:.2f} s to end; drain_ms is {drain_ms}")
        self.check_nothing_left(what)
        self.read_journals()
        for tenant, history in self.histories.items():
            for key in history.acknowledged_between(self.lines[tenant], sent + int(REFUSAL_SECONDS * 1e9), time.monotonic_ns()):
                self.problem(f"{what}: a stopping daemon took the new key {key} of {tenant}")

    # --- Kills ---

    def kill_daemon(self):
        time.sleep(self.random.uniform(0.02, 0.7))
        if self.random.random() < 0.3:
            self.stop_some(self.daemon.executors() + self.daemon.compilers())   # Stopped processes cannot notice the kill.
        self.daemon.kill()
        self.count("daemon")
        self.start_daemon()

    def stop_some(self, candidates):
        for process in candidates:
            if self.random.random() < 0.5:
                self.signal_process(process, signal.SIGSTOP)

    def kill_at_failpoint(self):
        """Kills the current daemon; the next one kills itself at a failpoint."""
        if not self.failpoints:
            self.kill_daemon()
            return
        self.daemon.kill()
        point = self.random.choice(self.failpoints)
        setting = f"{point}=kill@{int(self.random.expovariate(1 / 6)) + 1}"
        self.daemon.write_config(self.values)
        self.daemon.launch(failpoints=setting, mutant=self.options.mutant)
        deadline = time.monotonic() + 1.2
        if self.daemon.await_serving():
            self.check_no_elders()
            while self.daemon.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
        if self.daemon.is_alive():
            self.count("failpoints not reached")
            self.daemon.kill()
        elif self.daemon.process.returncode != -signal.SIGKILL:
            self.problem(f"at {setting} the daemon ended with {self.daemon.process.returncode}: {self.daemon.tail(800)}")
        else:
            self.count("failpoint " + point.split(".")[0])
        self.count("daemon")
        self.start_daemon()

    def signal_process(self, process, number):
        """Signals the process only if the PID still belongs to it."""
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return False
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill_child(self, candidates, what):
        time.sleep(self.random.uniform(0.01, 0.25))
        found = candidates()
        if not found:
            return
        process = self.random.choice(found)
        if self.random.random() < 0.25:
            self.signal_process(process, signal.SIGSTOP)
            self.count("stopped " + what)
            time.sleep(self.random.uniform(0.05, 0.4))
            if self.random.random() < 0.5:
                self.signal_process(process, signal.SIGCONT)
                return
        if self.signal_process(process, signal.SIGKILL):
            self.count(what)

    def kill_client(self):
        client = self.random.choice(list(self.clients.values()))
        client.kill()
        self.count("client")
        client.start()
        client.ask("go")

    def kills_done(self):
        return sum(self.counts.get(what, 0) for what in ("daemon", "executor", "compiler"))

    def kills(self, number):
        target = self.kills_done() + number
        next_round = self.kills_done() + self.options.round
        self.go()
        while self.kills_done() < target:
            roll = self.random.random()
            if roll < 0.42:
                self.kill_daemon()
            elif roll < 0.55:
                self.kill_at_failpoint()
            elif roll < 0.90:
                self.kill_child(self.daemon.executors, "executor")
            elif roll < 0.98:
                self.kill_child(self.daemon.compilers, "compiler")
            else:
                self.kill_client()
            if self.kills_done() >= min(next_round, target):
                next_round += self.options.round
                self.resume_stopped()
                self.verify()
                self.check_jobs("beside the daemon")
                self.drain("after healing")
                self.check_jobs("after healing")
                self.start_daemon()
                self.go()
        self.pause()

    def resume_stopped(self):
        """Resumes stopped executors, which only the deadlines of their jobs, minutes away, would detect."""
        for process in self.daemon.family():
            if process.state == "T":
                self.signal_process(process, signal.SIGCONT)

    def pause(self):
        for client in self.clients.values():
            client.ask("pause")

    # --- Drains ---

    def drains(self, number):
        at = self.daemon.log.stat().st_size
        self.go()
        for i in range(number):
            time.sleep(self.random.uniform(0.2, 0.8))
            self.drain(f"drain {i + 1}", self.random.uniform(0, 0.2) if self.random.random() < 0.2 else None)
            self.count("drains")
            self.values["server.drain_ms"] = self.random.choice((0, 200, 800))
            self.start_daemon()
            if (i + 1) % 10 == 0 or i + 1 == number:
                self.verify()
                self.go()
        self.values["server.drain_ms"] = BASE["server.drain_ms"]
        self.pause()
        self.verify()
        # Only the drains ended attempts, and those do not count. (A run that does not stop in time on a busy machine
        # costs its executor.)
        with self.daemon.log.open("rb") as log:
            log.seek(at)
            for line in log.read().decode(errors="replace").splitlines():
                if "attempt lost" in line and "did not stop within" not in line:
                    self.problem(f"an attempt counts as lost that only a drain can have ended: {line}")

    # --- Reloads ---

    def await_log(self, at, *texts):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            new = self.daemon.log.read_bytes()[at:].decode(errors="replace")
            for text in texts:
                if text in new and new.endswith("\n"):
                    return new
            time.sleep(0.005)
        return ""

    def reload(self, is_broken):
        at = self.daemon.log.stat().st_size
        good, bad = "The configuration was read again", "The new configuration was rejected"
        named = ""
        before = dict(self.values)
        self.values["jobs.queued_per_tenant_max"] = self.random.randint(500, 2000)
        self.values["jobs.running_per_tenant_max"] = self.random.randint(2, 6)
        self.values["log.level"] = self.random.choice(("info", "debug"))
        self.values["executor.idle_ms_max"] = self.random.randint(100_000, 900_000)
        broken = ""
        if is_broken:
            broken, named = self.random.choice(BROKEN)
        self.daemon.write_config(self.values, broken)
        self.fault.happen("reload", self)
        self.daemon.signal(signal.SIGHUP)
        new = self.await_log(at, good, bad)
        if is_broken:
            self.values = before
            self.daemon.write_config(self.values)
        if (bad if is_broken else good) not in new or (good if is_broken else bad) in new:
            self.problem(f"a {'broken' if is_broken else 'good'} configuration ({broken!r}) was answered by: {new[-600:]!r}")
        elif is_broken and named not in new:
            self.problem(f"the log does not name {named!r} for {broken!r}: {new[-600:]!r}")
        want = f"info {self.values['jobs.queued_per_tenant_max']}"
        got = self.clients[self.random.choice(TENANTS)].ask("info")
        if got != want:
            self.problem(f"after a {'broken' if is_broken else 'good'} configuration the daemon says {got!r}, not {want!r}")
        self.count("broken reloads" if is_broken else "good reloads")

    def reloads(self, number):
        for client in self.clients.values():   # The last restart ended the clients.
            client.ask("forget")
        self.go()
        time.sleep(2)
        begin = time.monotonic_ns()
        for i in range(number):
            self.reload(is_broken=i % 2 == 1)
            time.sleep(self.random.uniform(0, 0.03))
        end = time.monotonic_ns()
        self.pause()
        self.daemon.write_config(self.values)
        self.read_journals()
        allowed = {("Submit", NOT_FOUND), ("FetchOutput", 9)}   # A new document; a job without outputs.
        for history in self.histories.values():
            for failure in history.failures_between(begin, end, allowed):
                self.problem(f"a call failed while configurations were read again: {failure}")
        self.verify()

    # --- The whole run ---

    def run(self):
        options = self.options
        self.start_daemon()
        self.start_clients()
        if options.kills:
            self.kills(options.kills)
        if options.drains:
            self.drains(options.drains)
        if options.reloads:
            self.reloads(options.reloads)
        if options.soak:
            soak.run(self, options.soak)
        self.verify()
        self.check_jobs("at the end")
        for client in self.clients.values():
            client.quit()
        self.drain("at the end")
        self.check_jobs("after the end")

    def finish(self):
        for client in self.clients.values():
            client.kill()
        if self.daemon.is_alive():
            self.daemon.kill()
        for process in self.daemon.family():
            if process.state != "Z":
                os.kill(process.pid, signal.SIGKILL)
        total = {}
        for history in self.histories.values():
            for name, number in history.summary().items():
                total[name] = total.get(name, 0) + number
        total["problems"] = len(self.problems)
        starts, drains = sorted(self.daemon.start_seconds), sorted(self.drain_seconds)
        self.say("kills, drains, reloads: " + json.dumps(self.counts, sort_keys=True))
        self.say("history: " + json.dumps(total))
        if starts:
            self.say(f"starts: {len(starts)}, to serving p50 {starts[len(starts) // 2] * 1e3:.0f} ms, "
                     f"longest {starts[-1] * 1e3:.0f} ms")
        if drains:
            self.say(f"drains: {len(drains)}, p50 {drains[len(drains) // 2]:.2f} s, longest {drains[-1]:.2f} s")
        if self.problems:
            self.say(f"FAILED: {len(self.problems)} problems; {self.folder} is kept")
        else:
            if not self.options.keep:
                shutil.rmtree(self.folder)
            self.say(f"PASSED: 0 lost, 0 duplicated, 0 orphans in {time.monotonic() - self.begin:.0f} s")
        return 1 if self.problems else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder with hpvmd, hpvm-executor, hpvm-compiler, hpvm-chaos-client")
    parser.add_argument("--kills", type=int, default=0, help="kills of the daemon, executors and compilers")
    parser.add_argument("--drains", type=int, default=0)
    parser.add_argument("--reloads", type=int, default=0, help="reloads, half of them with broken files")
    parser.add_argument("--soak", type=float, default=0, metavar="MINUTES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", help="file to which the run is also recorded")
    parser.add_argument("--round", type=int, default=25, help="number of kills between two judgements")
    parser.add_argument("--threads", type=int, default=3, help="threads of each client")
    parser.add_argument("--live", type=int, default=40, help="maximal number of a tenant's jobs that have not ended")
    parser.add_argument("--pause-us", type=int, default=10_000, help="microseconds between two calls of a thread")
    parser.add_argument("--keep", action="store_true", help="keep the folder, whatever the result")
    parser.add_argument("--fault", default="", choices=["", *FAULTS], help="the fault to plant, which must be found")
    parser.add_argument("--mutant", default="", help="a seeded bug, for programs of a patched copy (tests/mutants/patched.py)")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    if not (options.kills or options.drains or options.reloads or options.soak):
        options.kills, options.drains, options.reloads = 25, 5, 20
    return options


def main():
    options = parse_arguments()
    chaos = Chaos(options)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    chaos.say(f"date {time.strftime('%Y-%m-%d %H:%M:%S')}, commit {commit.stdout.strip() or 'unknown'}, seed {options.seed}, "
              f"{os.cpu_count()} processors, {platform.system()} {platform.release()}")
    chaos.say("command chaos.py BIN " + " ".join(sys.argv[2:]))
    try:
        chaos.run()
    except Exception as error:  # Every exception is a finding; the daemon's log has the details.
        chaos.problem(f"the run broke off: {type(error).__name__}: {error}\n{chaos.daemon.tail()}")
        if os.environ.get("CHAOS_TRACEBACK"):
            raise
    finally:
        code = chaos.finish()
    sys.exit(code)


if __name__ == "__main__":
    main()
