# SPDX-License-Identifier: Apache-2.0
"""One daemon, its neighbour, and the attacks on it: the result of each, and the conditions that must hold after every attack."""

import dataclasses
import os
import pathlib
import socket
import statistics
import threading
import time
import traceback

import calls
import target as targets
from attack import KNOWN, ODD, TOOK, Result, verdict

QUANTUM_MS = 5
BRIEF_GROWTH_MS = 40
# Time that other load adds to a single 99th percentile, however it is measured; reported figures do not include it.
NOISE_MS = 3


# Additional rights of an executor with drivers: it loads libraries, asks device nodes, and sees itself.
FOR_DRIVERS = ("read its environment", "read its memory's map", "mbind", "mmap_twice", "ioctl 0x5412 on 0", "ioctl 0x5412 on 2", "ioctl 0x541b on 3",
               "ioctl 0x8912 on 3", "ioctl 0xc020462a on 1")


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


@dataclasses.dataclass
class Measured:
    """Measured is the neighbour's 99th percentile beside one call of the matrix and beside valid work, in ms, after `tries` tries."""
    held: bool
    bad: float
    good: float
    tries: int
    slow: int
    slow_ms: int


class Facts(dict):
    """Facts are known to attackers; changing values are looked up."""

    def __init__(self, session):
        super().__init__()
        self.session = session

    def __missing__(self, name):
        if name == "victim":  # The file is restored wherever an attack may have removed it.
            victim = self.session.target.folder / "victim"
            victim.write_text("a file")
            os.chown(victim, *[self.session.target.uid] * 2)
            return victim
        if name != "compiler":
            raise KeyError(name)
        own = self.session.target.executor_of(self.session.tenant)
        return self.session.target.compiler_of(own) or 0


class Session:
    def __init__(self, target, say, mutant="", full=False, times=1):
        self.target, self.say, self.mutant, self.full, self.times = target, say, mutant, full, times
        self.tenant = self.thief = targets.ATTACKER  # The tenant that strikes, and the one that tries the neighbour's ids.
        self.api = target.api(self.tenant)
        self.findings, self.outcomes, self.notes = [], {}, []
        self.measured = {}  # Measurements beside each call of the matrix, one for each time that it was tried.
        self.memory_is_limited = False
        self.secret = target.secret.encode()
        self.leaks = []
        self.start_listeners()
        answer = self.call_strike(self.api, "none", {})
        if "unknown: none" not in answer.message.replace("%20", " "):
            raise RuntimeError(f"the payload does not run: {answer} {target.tail()}")
        self.level, self.detail = self.reached_level()
        self.memory_is_limited = "control group" in self.detail and "executor.memory_bytes_max" in target.setting.more
        self.pid = target.process.pid
        self.gather_facts()

    # Level and its parts, from the daemon; parts that the daemon does not report come from the process itself.
    def reached_level(self):
        level, detail = self.api.sandbox()
        if level is None:
            status = pathlib.Path(f"/proc/{self.target.executor_of(self.tenant)}/status").read_text()
            level = 2 if "Seccomp:\t2" in status else 0
            detail = "as its process shows"
        return level, detail

    def start_listeners(self):
        """Starts services that a process outside of a sandbox could reach."""
        self.abstract_name = f"hpvm-lab-{os.getpid()}"
        self.listeners = [socket.socket(socket.AF_INET), socket.socket(socket.AF_UNIX)]
        self.listeners[0].bind(("127.0.0.1", 0))
        self.listeners[1].bind("\0" + self.abstract_name)
        for listener in self.listeners:
            listener.listen(8)

    def gather_facts(self):
        target = self.target
        own, neighbour = target.executor_of(self.tenant), target.executor_of(targets.NEIGHBOUR)
        if own is None or neighbour is None:
            raise RuntimeError("the executors cannot be told apart: " + target.tail())
        cache = target.state / "cache" / targets.NEIGHBOUR
        kernels = [path for path in cache.rglob("*") if path.is_file()] or [cache / "none"]
        blobs = [path for path in (target.state / "blobs").rglob("*") if path.is_file()] or [target.state / "blobs/none"]
        # Files of the state folder by kind; for a missing file the attack fails as not tried.
        def state(pattern):
            return next(iter(sorted(target.state.rglob(pattern))), target.state / pattern)
        address = {pid: self.heap_of(pid) for pid in (neighbour, self.pid)}
        self.facts = Facts(self)
        self.facts.update({"store": state("jobs*"), "key": state("*.key"), "identity": state("identity*"), "audit": state("audit-*.jsonl")})
        self.facts.update({"n_pid": neighbour, "d_pid": self.pid, "n_client": target.neighbour.process.pid,
                      "n_compiler": target.compiler_of(neighbour), "state": target.state,
                      "folder": target.folder, "socket": target.socket, "log": target.log,
                      "n_cache": kernels[0], "n_cache_folder": cache, "n_blob": blobs[0],
                      "n_address": address[neighbour], "d_address": address[self.pid],
                      "n_address_hex": hex(address[neighbour]), "d_address_hex": hex(address[self.pid]),
                      "n_uid": os.stat(f"/proc/{neighbour}").st_uid or 65533,
                      "abstract": self.abstract_name, "port": self.listeners[0].getsockname()[1]})
        self.neighbour_pid = neighbour

    @staticmethod
    def heap_of(pid):
        try:
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                if "[heap]" in line:
                    return int(line.split("-")[0], 16)
        except OSError:
            pass
        return 0x10000

    def note(self, text):
        self.notes.append(text)

    def sums(self):
        """Returns one line for each call that was tried several times."""
        return [f"{name}: held {sum(m.held for m in all_of)} of {len(all_of)}; the neighbour's p99 {statistics.median(m.bad for m in all_of):.1f} ms as "
                f"the median, {max(m.bad for m in all_of):.1f} at most; beside good work {statistics.median(m.good for m in all_of):.1f} and "
                f"{max(m.good for m in all_of):.1f}; measured again {sum(m.tries - 1 for m in all_of)} times; "
                f"{sum(m.slow for m in all_of)} slow items, {max(m.slow_ms for m in all_of)} ms at most"
                for name, all_of in self.measured.items() if self.times > 1]

    def crashes(self):
        return 1000 if self.full else 3

    @staticmethod
    def call_strike(api, probe, arguments, timeout=None, deadline_ms=5000):
        return calls.strike(api, probe, arguments, timeout, deadline_ms)

    def strike(self, probe, deadline_ms=5000, **arguments):
        answer = self.call_strike(self.api, probe, arguments, deadline_ms=deadline_ms)
        self.look_for_secret(answer.message.encode() + b"".join(answer.replies), probe)
        return verdict(answer)

    def look_for_secret(self, data, where):
        if self.secret in data:
            self.leaks.append(where)

    def zombies(self):
        return targets.zombies(self.target.process.pid)

    def check_tenant_works(self):
        """Checks that the attacker's own valid work still runs, in an executor of its own."""
        for _ in range(20):
            answer = self.api.run(calls.ADD, {"in": calls.tensor(calls.I32, calls.ints(1, 2, 3, 4))})
            if answer.ok and self.api.output(answer) == calls.ints(8, 9, 10, 11):
                return []
            time.sleep(0.1)
        return [f"the attacker's valid work fails: {answer}"]

    # Conditions that must hold after each attack.
    def check_after(self, attack):
        found = []
        neighbour = self.target.neighbour
        bad = neighbour.failures(self.seen)
        if bad:
            found.append(f"the neighbour failed {len(bad)} times: {bad[0][2][:300]}")
        self.seen = len(neighbour.runs)
        if neighbour.process.poll() is not None:
            found.append("the neighbour's client ended")
        if not self.target.is_alive() or self.target.process.pid != self.pid:
            found.append("the daemon ended: " + self.target.tail(3000))
        elif not targets.lives(self.neighbour_pid):
            found.append("the neighbour's executor ended")
            self.neighbour_pid = self.target.executor_of(targets.NEIGHBOUR)
        if self.leaks:
            found.append(f"the neighbour's secret was read by {self.leaks}")
            self.leaks = []
        return found

    def finish(self):
        """Reports problems that appear only a little later."""
        time.sleep(0.2)
        for complaint in self.check_after(None):
            self.findings.append((None, complaint))
            self.say(f"  FAILED after the last attack: {complaint}")

    seen = 0

    def execute(self, attack):
        begin = time.monotonic()
        complaints = []
        try:
            outcome = attack.run(self)
        except Exception:  # pylint: disable=broad-except  An attack that cannot be tried is a finding; the others continue.
            outcome = Result(ODD, traceback.format_exc(limit=-3))
        if isinstance(outcome, Result):
            self.outcomes[attack.name] = outcome.kind
            may = self.target.setting.drivers and attack.name in FOR_DRIVERS
            if outcome.kind == TOOK and self.level >= attack.level and not may:
                complaints.append(f"succeeded: {outcome.text[:300]}")
            elif outcome.kind == ODD:
                complaints.append(f"not tried: {outcome.text[:1000]}")
        else:
            complaints += outcome or []
            self.outcomes[attack.name] = "broken" if outcome else "held"
        after = self.check_after(attack)
        if attack.name in KNOWN:
            if complaints:
                self.say(f"  KNOWN {attack.threat} {attack.name} ({KNOWN[attack.name]}): {complaints[0]}")
            complaints = [] if complaints or not self.full else ["it is closed: its line in attack.KNOWN may go"]
        complaints += after
        for complaint in complaints:
            self.findings.append((attack, complaint))
            self.say(f"  FAILED {attack.threat} {attack.name}: {complaint}")
        if self.full or complaints or time.monotonic() - begin > 5:
            self.say(f"  {attack.threat:4} {attack.name}: {self.outcomes[attack.name]} ({time.monotonic() - begin:.2f} s)")
        return not complaints

    # --- Latency

    def while_doing(self, work, seconds):
        """Returns the neighbour's latencies while threads call work(api) without a pause."""
        ends = threading.Event()

        def loop():
            api = self.target.api(targets.WORKER if work is good_work else self.tenant)
            try:
                while not ends.is_set():
                    work(self, api)
            finally:
                api.close()

        threads = [threading.Thread(target=loop, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        time.sleep(seconds)
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        ends.set()
        for thread in threads:
            thread.join(30)
        return self.target.neighbour.latencies_ms(begin, end)

    def compare_latency(self, name, work, rounds=3):
        """Alternates valid and hostile load, and compares the medians of their 99th percentiles. A failure is tried twice more before it counts."""
        seconds = 3.0 if self.full else 0.7
        # The brief form runs wherever the tests do, beside other load: it detects costs of many slices, not of half a slice.
        allowed = QUANTUM_MS if self.full else BRIEF_GROWTH_MS
        for attempt in range(3):
            good, bad = [], []
            for _ in range(rounds):
                good.append(percentile(self.while_doing(good_work, seconds), 0.99))
                bad.append(percentile(self.while_doing(work, seconds), 0.99))
            growth = statistics.median(bad) - statistics.median(good)
            text = (f"{name}: the neighbour's p99 {statistics.median(good):.2f} ms under good load, "
                    f"{statistics.median(bad):.2f} ms under attack (growth {growth:+.2f} ms, allowed {allowed})")
            if growth <= allowed + NOISE_MS * attempt:
                self.note(text)
                return []
        return [text]

    def close(self):
        self.api.close()
        for listener in self.listeners:
            listener.close()


def good_work(session, api):
    """Runs as a tenant that keeps every processor busy."""
    api.run(BUSY, {"in": calls.tensor(calls.I32, calls.ints(*range(8)))}, deadline_ms=10_000)


BUSY = calls.document("busy", calls.IN_OUT, [("rounds", 2)])
