# SPDX-License-Identifier: Apache-2.0
"""An executor that dies, hangs, or violates the protocol. Only its own tenant may notice."""

import os
import signal
import threading
import time

import calls
from attack import KILLED, REFUSED, TOOK, Attack, ATTACKS, Result, attack, eventually
from wire import encode, first

CRASHES = ("segv", "bus", "ill", "fpe", "abrt", "sys", "oom", "stop", "exit", "fd_close", "garbage", "device_lost", "assert", "double_free")
# Messages that must end the executor; the others may pass without effect.
BREACHES = ("bad_magic", "huge_head", "huge_body", "many_descriptors", "empty_frame", "bad_head", "send_descriptor", "unknown_id",
            "no_id", "twice", "wrong_kind", "second_ready", "daemons_message", "unasked_ack", "event_flood", "usage_too_many",
            "ring_ahead", "ring_behind", "ring_not_whole", "ring_bells", "ring_patient_bells", "ring_rewritten", "last_words",
            "status_unknown", "text_injection", "output_lies", "output_past_body", "many_records")
# An answer without outputs harms only the attacker.
LIES = ("output_missing", "usage_lies", "usage_flood", "time_lies", "devices_lost", "memory_lies")
DEADLINE_MS = 400


def from_outside(number):
    """Sends a signal from outside; as the first process of a namespace the executor cannot signal itself."""
    def run(session):
        pid = session.target.executor_of(session.tenant)
        timer = threading.Timer(0.05, lambda: os.kill(pid, number))
        timer.start()
        try:
            return session.strike("late", deadline_ms=DEADLINE_MS, ms=2000)
        finally:
            timer.join()
    return run


FROM_OUTSIDE = {"oom": from_outside(signal.SIGKILL), "stop": from_outside(signal.SIGSTOP)}


def crash(kind):
    def run(session):
        complaints, slowest = [], 0.0
        count = session.crashes()
        for _ in range(count):
            begin = time.monotonic()
            result = FROM_OUTSIDE[kind](session) if kind in FROM_OUTSIDE else session.strike(kind, deadline_ms=DEADLINE_MS)
            slowest = max(slowest, time.monotonic() - begin)
            if result.kind != KILLED:
                complaints.append(f"{kind}: {result.kind} {result.text}")
        session.note(f"crash {kind}: {count} times, the slowest {slowest:.2f} s")
        if slowest > 15:
            complaints.append(f"{kind} took {slowest:.1f} s to be noticed")
        return complaints
    return run


for kind in CRASHES:
    ATTACKS.append(Attack(f"crash {kind}", "T20", crash(kind), 0, "crash", True))


def breach(probe):
    def run(session):
        before = session.target.executor_of(session.tenant)
        result = session.strike(probe, deadline_ms=DEADLINE_MS * 3)
        if result.kind == KILLED:
            return result
        if eventually(lambda: session.target.executor_of(session.tenant) != before, 3):
            return Result(KILLED, result.text)
        return Result(TOOK, "the executor lives on: " + result.text)
    return run


for probe in BREACHES:
    ATTACKS.append(Attack(f"message {probe}", "T22", breach(probe), 0, "protocol", True))


def lie(probe):
    def run(session):
        result = session.strike(probe, deadline_ms=DEADLINE_MS * 3)
        return [] if result.kind != TOOK else [f"{probe}: {result.text}"]
    return run


for probe in LIES:
    ATTACKS.append(Attack(f"message {probe}", "T22", lie(probe), 0, "protocol", True))


@attack("T20", group="protocol")
def half_a_frame_and_silence(session):
    """A reader of half a frame waits no longer than the deadline."""
    return late(session, "half_frame")


@attack("T4", group="protocol")
def no_answer_at_all(session):
    return late(session, "silent")


def late(session, probe):
    begin = time.monotonic()
    result = session.strike(probe, deadline_ms=DEADLINE_MS)
    took = time.monotonic() - begin
    session.note(f"{probe}: over after {took:.2f} s of a deadline of {DEADLINE_MS / 1000} s")
    if result.kind == TOOK or took > 10:
        return [f"{probe}: {result.kind} after {took:.1f} s"]
    return []


@attack("T12", group="protocol")
def native_code_that_does_not_stop(session):
    begin = time.monotonic()
    result = session.strike("spin", deadline_ms=DEADLINE_MS, ms=20_000, threads=4)
    took = time.monotonic() - begin
    session.note(f"native spin: over after {took:.2f} s")
    return [] if result.kind == KILLED and took < 10 else [f"{result.kind} after {took:.1f} s: {result.text}"]


@attack("T22", group="protocol")
def answer_after_the_end(session):
    """The call is cancelled; the answer comes after that, or never."""
    api = session.target.api(session.tenant, timeout=20)
    try:
        session.call_strike(api, "late", {"ms": 600}, timeout=0.3, deadline_ms=5000)
    finally:
        api.close()
    time.sleep(0.7)
    return session.check_tenant_works()


@attack("T13", group="protocol")
def a_lost_device_is_believed_for_its_own_sake_only(session):
    """An executor reports every device as lost, again and again: the neighbour's work continues meanwhile."""
    before = len(session.target.neighbour.read())
    end = time.monotonic() + 2
    while time.monotonic() < end:
        session.strike("devices_lost", deadline_ms=DEADLINE_MS)
    runs = session.target.neighbour.read()[before:]
    bad = [run[2] for run in runs if run[2] != "ok"]
    if bad or len(runs) < 20:
        return [f"of the neighbour's {len(runs)} runs {len(bad)} failed: {bad[:1]}"]
    return []


@attack("T14", group="protocol")
def memory_without_end(session):
    """With control groups the kernel ends the executor; without them this is not promised."""
    result = session.strike("memory", deadline_ms=8000, bytes=3 << 29)
    session.note(f"1.5 GiB of memory of a limit of 1: {result.kind} {result.text[:80]}")
    if session.memory_is_limited and result.kind == TOOK:
        return [f"took {result.text} beyond its limit"]
    return []


@attack("T33", group="protocol")
def one_memfd_beyond_the_limit_of_files(session):
    result = session.strike("shared_memory", deadline_ms=8000, bytes=256 << 20)
    return [] if result.kind in (REFUSED, KILLED) else [result.text]


@attack("T20", group="protocol")
def nothing_is_left_of_the_dead(session):
    """No zombie and no process of a tenant outlives it."""
    for _ in range(3):
        session.strike("segv", deadline_ms=DEADLINE_MS)
    if not eventually(lambda: session.zombies() == 0, 3):
        return [f"{session.zombies()} zombies"]
    return session.check_tenant_works()


@attack("T21", group="protocol")
def memory_that_changes_while_it_is_read(session):
    """Outputs are modified after their run has answered, while the daemon reads, hashes and stores them: no other tenant notices,
    and bytes that were read once stay the same."""
    api, complaints = session.api, []
    text = b"probe=scribble\nms=1500\n".ljust(1 << 20, b"\n")
    identifier = first(first(api.call("CreateBuffer", encode(f2=len(text))).reply, 1), 1)
    api.call("WriteBuffer", encode(f1=encode(f2=identifier), f2=text))
    handle, _ = api.handle(calls.STRIKE)
    small = calls.tensor(calls.U8, text[:64 * 1024])
    answer = api.call("Run", encode(f2=handle, f3=[encode(f1="attack", f2=small)], f4=[encode(f1="report_out", f3=1)]))
    view = first(first(answer.reply, 1), 3)
    if not answer.ok or not view:
        return [f"the run: {answer}"]
    for _ in range(10):
        read = api.call("ReadBuffer", encode(f2=first(view, 1)))
        if not read.ok or sum(len(first(reply, 2)) for reply in read.replies) != 64 * 1024:
            complaints.append(f"a buffer that is written on: {read}")
    answer = api.call("Submit", encode(f2=handle, f4=[encode(f1="attack", f2=small)]))
    job = api.job_id(answer)
    if not eventually(lambda: api.job(job).get(3, [0])[0] >= 4, 10):
        complaints.append("the job does not end")
    stored = set()
    for _ in range(5):
        fetched = api.call("FetchOutput", encode(f2=job, f3="report_out"))
        stored.add(b"".join(first(reply, 2) for reply in fetched.replies))
        if fetched.code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE"):
            complaints.append(f"a job's output that is written on: {fetched}")
        time.sleep(0.2)
    if len(stored) != 1:
        complaints.append(f"a stored output came back in {len(stored)} ways")
    api.call("DeleteBuffer", encode(f2=identifier))
    api.call("DeleteBuffer", encode(f2=first(view, 1)))
    return complaints + session.check_tenant_works()
