#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The attack lab (docs/TESTING.md): real daemons, a neighbour that works, and tenants that attack.

    lab.py BUILD_FOLDER [--full] [--every] [--times N] [--only TEXT] [--settings NAME,...] [--groups NAME,...] [--mutant NAME] [--log FILE]
    lab.py BUILD_FOLDER --list

BUILD_FOLDER has bin/ and tests/. --full tries everything at every level; without it the lab runs for a minute and a half. --every tries
everything, too, as briefly as without --full. --times repeats all of it that often, in the same daemon.
A mutant breaks one promise on purpose, to check that the lab notices: it must fail.
"""

import argparse
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import target as targets
from attack import ATTACKS
from mutants import MUTANTS
from session import Session
import attacks_native, attacks_executor, attacks_latency  # noqa: F401, E401  They register themselves.
import attacks_api, attacks_documents, attacks_modules, attacks_memory, attacks_rings, attacks_quota, attacks_clients, attacks_credentials, attacks_matrix  # noqa: F401, E401

# Everything once at the highest level; native code also at each lower level, with drivers, and as in a plain container.
ONCE = ("native", "crash", "protocol", "api", "clients")
SETTINGS = {"top": ONCE, "latency": ("latency",), "matrix": ("matrix",), "credentials": ("credentials",), "tcp": ("clients",), "tls": ("clients",), "drivers": ("native", "sources"), "dropped": ("native", "protocol"), "level-3": ("native",), "level-2": ("native",), "level-1": ("native",),
            "level-0": ("native",)}

WIRES = ("tcp", "tls")

# Files that attacks create outside of the lab's folder, when nothing prevents it.
PLANTED = ("/tmp/hpvm-lab-planted", "/dev/shm/hpvm-lab-planted")


def setting_of(name):
    if name == "dropped":
        return targets.Setting(name, dropped=True)
    if name == "drivers":
        return targets.Setting(name, devices="cpu,opencl", drivers=True)
    if name == "latency":
        return targets.Setting(name, more={"executor.crashes_max": 3, "executor.crash_window_ms": 60000, "jobs.kept_max": 200_000})
    if name in WIRES:
        return targets.Setting(name, wire=name)
    if name == "credentials":
        return targets.Setting(name, credentials=True)
    more = attacks_quota.LIMITS if name == "top" else {}
    return targets.Setting(name, sandbox_max=int(name[6:]) if name.startswith("level-") else 4, more=dict(more))


class Lab:
    def __init__(self, options):
        self.options, self.begin = options, time.monotonic()
        if options.log:
            pathlib.Path(options.log).parent.mkdir(parents=True, exist_ok=True)
        self.log = open(options.log, "a", encoding="utf-8") if options.log else None
        self.failed, self.tried = [], 0

    def say(self, text):
        line = f"[{time.monotonic() - self.begin:6.1f}] {text}"
        print(line, flush=True)
        if self.log:
            self.log.write(line + "\n")
            self.log.flush()

    def chosen(self, name, groups):
        def is_due(attack):
            is_whole = name == "top" or (attack.group != "native" and name not in WIRES)
            return self.options.full or self.options.every or (attack.brief if is_whole else attack.core)
        return [a for a in ATTACKS if a.group in groups and is_due(a) and self.options.only in a.name]

    def run_setting(self, name, folder):
        groups = SETTINGS[name] if not self.options.groups else self.options.groups.split(",")
        attacks = self.chosen(name, groups)
        if not attacks:
            return
        mutant = MUTANTS.get(self.options.mutant)
        setting = setting_of(name)
        if mutant:
            mutant.prepare(setting)
        target = targets.Target(self.options.build, folder, setting)
        session = None
        try:
            session = Session(target, self.say, self.options.mutant, self.options.full, self.options.times)
            if mutant:
                mutant.corrupt(session)
            self.say(f"{name}: level {session.level} ({session.detail}), {len(attacks)} attacks")
            for attack in attacks * self.options.times:
                session.execute(attack)
                self.tried += 1
            session.finish()
        finally:
            if session:
                session.close()
            code, left = target.stop()
        latencies = [run[1] / 1e6 for run in target.neighbour.runs]
        self.say(f"{name}: neighbour {len(latencies)} runs, {len(target.neighbour.failures())} failures, "
                 f"{len(session.findings)} findings; outcomes {self.count(session.outcomes)}")
        for note in session.notes + session.sums():
            self.say(f"  {note}")
        if code != 0 or left:
            session.findings.append((attacks[-1], f"the daemon ended with {code} and left {left}"))
            self.say(f"  FAILED the daemon ended with {code} and left {left}: {target.tail()}")
        self.failed += session.findings

    @staticmethod
    def count(outcomes):
        kinds = {}
        for kind in outcomes.values():
            kinds[kind] = kinds.get(kind, 0) + 1
        return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))

    def run(self):
        names = self.options.settings.split(",") if self.options.settings else list(SETTINGS)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-lab-"))
        folder.chmod(0o755)  # Various users start programs from there; the state folder is closed.
        try:
            for name in names:
                if name == "tls" and shutil.which("openssl") is None:
                    self.say("tls: skipped, it needs openssl")
                    continue
                if name == "dropped" and not self.can_drop():
                    self.say("dropped: skipped, it needs root")
                    continue
                self.run_setting(name, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            for planted in PLANTED:
                pathlib.Path(planted).unlink(missing_ok=True)
        self.say(f"{self.tried} attacks, {len(self.failed)} findings")
        for attack, what in self.failed:  # Failures are repeated at the end, so that a truncated log still has them.
            self.say(f"  FAILED {getattr(attack, 'name', attack)}: {what}"[:1000])
        return 1 if self.failed else 0

    @staticmethod
    def can_drop():
        return os.geteuid() == 0 and shutil.which("setpriv") is not None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--settings", default="")
    parser.add_argument("--groups", default="")
    parser.add_argument("--mutant", default="", choices=["", *MUTANTS])
    parser.add_argument("--log", default="")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for attack in ATTACKS:
            print(f"{attack.threat:4} {attack.group:9} level {attack.level}  {'brief' if attack.brief else 'full '}  {attack.name}")
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65536, hard))
    return Lab(options).run()


if __name__ == "__main__":
    sys.exit(main())
