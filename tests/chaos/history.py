# SPDX-License-Identifier: Apache-2.0
"""Judges what clients saw of a daemon that was killed, drained and reloaded meanwhile.

A History reads the lines of one tenant's journals (journal.h) and reports violations of these rules:

  keys     one key, one job (or array), made once; every job belongs to a key
  loss     an acknowledged job is found again, and ends
  ends     one terminal state, final and never rewritten; only jobs whose cancellation was requested are CANCELLED, only
           jobs that lost all of their attempts are DEAD; a job that depends on another follows its end
  effects  the output equals one application of the kernel to the input
  calls    only expected calls fail, at expected times
"""

import array
import functools
import hashlib

UNAVAILABLE, NOT_FOUND, DEADLINE, FAILED_PRECONDITION, ABORTED = 14, 5, 4, 9, 10
TERMINAL = {"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_EXPIRED", "JOB_STATE_DEAD"}
SUCCEEDED, FAILED, CANCELLED, EXPIRED, DEAD = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED",
                                               "JOB_STATE_EXPIRED", "JOB_STATE_DEAD")
PROBLEMS_MAX = 1000
# Conditions of a dependency (JobDependency.Condition): the ends that satisfy each.
SATISFIES = {0: lambda s: s == SUCCEEDED, 1: lambda s: s == SUCCEEDED, 2: lambda s: True, 3: lambda s: s != SUCCEEDED}


def parse(line):
    """Returns (op, fields) of one line of a journal; None for a line that a killed client did not finish."""
    op, *rest = line.rstrip("\n").split("\t")
    if not op or not rest or not line.endswith("\n"):
        return None
    return op, dict(field.split("=", 1) for field in rest if "=" in field)


@functools.lru_cache(maxsize=4096)
def expected_sha256(kind, amount, seed, count, index):
    """Returns the SHA-256 of the output's bytes."""
    if kind == "array":
        values = [index + amount]
    else:
        values = [(seed + 7 * i) % 1000 + 1 + amount for i in range(count)]
    return hashlib.sha256(array.array("i", values).tobytes()).hexdigest()


class Job:
    def __init__(self, identifier):
        self.id = identifier
        self.key = None          # The key of the request that received this id.
        self.end = None          # (state, attempt, code, ended), once seen.
        self.end_seen = None     # Time at which the first call that saw the end returned.
        self.top = (0, 0)        # The highest attempt seen, and the time of that.
        self.index = None
        self.started = 0
        self.lost = 0
        self.attempts_max = 0
        self.text = ""
        self.outputs = set()
        self.cancel_wanted = None
        self.is_listed = False


class Key:
    def __init__(self, work):
        self.work = work
        self.ids = None
        self.created = 0         # Number of answers that reported a new job.
        self.is_refused = False
        self.is_judged = False


class History:
    def __init__(self, name, forgets=False):
        self.name = name
        self.forgets = forgets   # The daemon drops finished jobs while the test runs.
        self.keys = {}
        self.jobs = {}
        self.failures = []       # (t0, t1, method, code, about, text)
        self.problems = []
        self.told = set()
        self.rounds = 0
        self.counts = {}

    def problem(self, text):
        """Reports each problem once."""
        if text not in self.told and len(self.told) < PROBLEMS_MAX:
            self.told.add(text)
            self.problems.append(f"{self.name}: {text}")

    def job(self, identifier):
        if identifier not in self.jobs:
            self.jobs[identifier] = Job(identifier)
        return self.jobs[identifier]

    def feed(self, line):
        event = parse(line)
        if event is None:
            return
        op, fields = event
        self.counts[op] = self.counts.get(op, 0) + 1
        handler = getattr(self, "on_" + op, None)
        if handler is None:
            self.problem(f"the journal has an unknown event {op!r}")
            return
        handler(fields)

    # --- Events ---

    def on_send(self, fields):
        known = self.keys.get(fields["key"])
        work = {name: fields[name] for name in ("kind", "amount", "seed", "count", "elements", "after", "condition",
                                                "deadline_ms", "attempts_max", "retry_of")}
        if known is None:
            self.keys[fields["key"]] = Key(work)
        elif known.work != work:
            self.problem(f"the client sent two requests with the key {fields['key']}")

    def on_ack(self, fields):
        key = self.keys.get(fields["key"])
        if key is None:
            self.problem(f"an answer to the key {fields['key']}, which nobody sent")
            return
        ids = fields["ids"].split(",")
        if key.ids is None:
            key.ids = ids
            elements = int(key.work["elements"])
            if len(ids) != max(elements, 1) or len(set(ids)) != len(ids) or "" in ids:
                self.problem(f"the key {fields['key']} of {max(elements, 1)} jobs was answered with {ids}")
        elif key.ids != ids:
            self.problem(f"the key {fields['key']} has the jobs {key.ids} and {ids}")
        key.created += fields["existed"] == "0"
        if key.created > 1:
            self.problem(f"the key {fields['key']} made its jobs {key.created} times")
        for identifier in ids:
            job = self.job(identifier)
            if job.key not in (None, fields["key"]):
                self.problem(f"{identifier} is the job of the keys {job.key} and {fields['key']}")
            job.key = fields["key"]

    def on_refused(self, fields):
        key = self.keys.get(fields["key"])
        if key is None or key.ids is not None:
            self.problem(f"the key {fields['key']} was refused after it was accepted: {fields['text']}")
            return
        key.is_refused = True
        # Requests are valid, so none may be refused permanently.
        self.problem(f"the key {fields['key']} was refused: code {fields['code']}, {fields['text']}")

    def on_want_cancel(self, fields):
        job = self.job(fields["id"])
        at = int(fields["t0"])
        job.cancel_wanted = at if job.cancel_wanted is None else min(at, job.cancel_wanted)

    def on_cancel(self, fields):
        pass

    def on_see(self, fields):
        job = self.job(fields["id"])
        t0, t1, state, attempt = int(fields["t0"]), int(fields["t1"]), fields["state"], int(fields["attempt"])
        if fields["how"] == "final":
            job.is_listed = True
        job.index = int(fields["index"])
        if fields["cancel"] == "1" and job.cancel_wanted is None:
            self.problem(f"{job.id} says cancel_requested, and nobody did")
        # A watch also reports earlier states.
        if fields["how"] != "watch":
            if state not in TERMINAL and job.end_seen is not None and t0 > job.end_seen:
                self.problem(f"{job.id} had ended as {job.end[0]} and was seen as {state} later ({fields['how']})")
            if attempt < job.top[0] and t0 > job.top[1]:
                self.problem(f"{job.id} was in attempt {job.top[0]} and in attempt {attempt} later ({fields['how']})")
        if attempt > job.top[0]:
            job.top = (attempt, t1)
        if state in TERMINAL:
            end = (state, attempt, int(fields["code"]), int(fields["ended"]))
            if job.end is not None and job.end != end:
                self.problem(f"{job.id} ended twice: as {job.end} and as {end} ({fields['how']})")
            if job.end is None:
                job.end, job.end_seen = end, t1
                job.started, job.lost = int(fields["started"]), int(fields["lost"])
                job.attempts_max, job.text = int(fields["attempts_max"]), fields["text"]
            job.end_seen = min(job.end_seen, t1)

    def on_output(self, fields):
        self.job(fields["id"]).outputs.add(fields["sha256"])

    def on_run(self, fields):
        want = expected_sha256(fields["kind"], int(fields["amount"]), int(fields["seed"]), int(fields["count"]), 0)
        if fields["sha256"] != want:
            self.problem(f"a Run of {fields['kind']} gave another output: {fields}")

    def on_fail(self, fields):
        failure = (int(fields["t0"]), int(fields["t1"]), fields["method"], int(fields["code"]), fields["about"], fields["text"])
        self.failures.append(failure)
        # The client asks only for jobs whose ids it has received.
        if failure[2] in ("GetJob", "CancelJob", "WatchJob") and failure[3] == NOT_FOUND:
            job = self.jobs.get(failure[4])
            if not (self.forgets and job is not None and job.end is not None):
                self.problem(f"{failure[4]} is lost: {failure[2]} says {failure[5]}")

    # --- Judgement ---

    def on_round(self, fields):
        """The client has followed every job that it knew; a violation that remains now is permanent."""
        self.rounds += 1
        if fields["all"] != "1":
            self.problem(f"round {self.rounds}: not every key was answered, or not every job ended, in time")
        for name, key in self.keys.items():
            if not key.is_judged:
                key.is_judged = True
                self.judge(name, key)
        for job in self.jobs.values():
            if job.key is None and job.is_listed:
                self.problem(f"{job.id} exists, and no key that was answered stands for it")

    def judge(self, name, key):
        if key.ids is None:
            if not key.is_refused:
                self.problem(f"the key {name} was never answered")
            return
        for identifier in key.ids:
            job = self.jobs[identifier]
            if job.end is None:
                self.problem(f"{identifier} ({key.work['kind']}) was acknowledged and was not seen to end")
                continue
            if not job.is_listed:
                self.problem(f"{identifier} was acknowledged and is not in the list of jobs")
            self.judge_end(job, key.work)
            self.judge_order(job, key.work)
            self.judge_output(job, key.work)

    def judge_end(self, job, work):
        state, attempt, code, _ = job.end
        kind, has_dependency = work["kind"], work["after"] != ""
        what = f"{job.id} ({kind}) ended as {state}, code {code}, attempt {attempt}: {job.text}"
        if state == CANCELLED:
            if job.cancel_wanted is None or job.cancel_wanted > job.end_seen:
                self.problem(f"{what}; nobody had cancelled it")
        elif state == DEAD:
            if attempt < job.attempts_max or job.lost == 0:
                self.problem(f"{what}; it had lost {job.lost} of {job.attempts_max} attempts")
        elif state == FAILED and has_dependency and code == FAILED_PRECONDITION:
            if attempt != 0:
                self.problem(f"{what}; it had started")
        elif kind == "trap":
            if (state, code) != (FAILED, ABORTED):
                self.problem(f"{what}; it divides by zero")
        elif kind == "spin":
            if not (state == EXPIRED or (state, code) == (FAILED, DEADLINE)):
                self.problem(f"{what}; it never ends by itself")
            if state == EXPIRED and attempt != 0:
                self.problem(f"{what}; it had started")
        elif state != SUCCEEDED:
            self.problem(f"{what}; nothing was wrong with it")

    def judge_order(self, job, work):
        before = self.jobs.get(work["after"])
        if before is None or work["after"] == "":
            return
        if before.end is None:
            return   # Reported as a problem of its own.
        is_satisfied = SATISFIES[int(work["condition"])](before.end[0])
        has_started = job.end[1] > 0
        if has_started and not is_satisfied:
            self.problem(f"{job.id} started after {before.id}, which ended as {before.end[0]} (condition {work['condition']})")
        if job.end[0] == FAILED and job.end[2] == FAILED_PRECONDITION and is_satisfied:
            self.problem(f"{job.id} failed for {before.id}, which ended as {before.end[0]} (condition {work['condition']})")
        if has_started and job.started < before.end[3]:
            self.problem(f"{job.id} started {before.end[3] - job.started} ns before the end of {before.id}")

    def judge_output(self, job, work):
        if job.end[0] != SUCCEEDED:
            if job.outputs:
                self.problem(f"{job.id} ended as {job.end[0]} and has an output")
            return
        want = expected_sha256(work["kind"], int(work["amount"]), int(work["seed"]), int(work["count"]), job.index)
        if job.outputs != {want}:
            self.problem(f"{job.id} ({work['kind']}) has the outputs {job.outputs or 'none'}, not {want}")

    def failures_between(self, start, end, expected=()):
        """Returns failed calls that were in progress in that time, except the expected (method, code) pairs."""
        return [f for f in self.failures if f[0] < end and f[1] > start and (f[2], f[3]) not in expected]

    def acknowledged_between(self, lines, start, end):
        """Returns the keys among `lines` whose jobs were made by calls that began after `start` and ended before `end`."""
        made = []
        for line in lines:
            event = parse(line)
            if event and event[0] == "ack" and event[1]["existed"] == "0":
                if int(event[1]["t0"]) > start and int(event[1]["t1"]) < end:
                    made.append(event[1]["key"])
        return made

    def summary(self):
        ends = {}
        for job in self.jobs.values():
            if job.end is not None:
                name = job.end[0].removeprefix("JOB_STATE_").lower()
                ends[name] = ends.get(name, 0) + 1
        return {"keys": len(self.keys), "jobs": sum(j.key is not None for j in self.jobs.values()), **ends,
                "attempts": sum(j.top[0] for j in self.jobs.values()),
                "attempts lost": sum(j.lost for j in self.jobs.values()), "rounds": self.rounds,
                "calls failed": len(self.failures), "problems": len(self.problems)}
