#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every rule of history.py finds violations of it, and nothing else."""

import unittest

from history import History, expected_sha256, parse

WORK = dict(kind="add", amount="3", seed="5", count="16", elements="0", retry_of="", after="", condition="0",
            deadline_ms="0", attempts_max="10")


def line(op, **fields):
    return op + "\t" + "\t".join(f"{name}={value}" for name, value in fields.items()) + "\n"


def send(key, at, **work):
    return line("send", t0=at, key=key, **{**WORK, **work})


def ack(key, ids, at, existed=0):
    return line("ack", t0=at, t1=at + 1, key=key, ids=ids, array="", existed=existed)


def see(identifier, state, at, how="get", **more):
    fields = dict(attempt=1, attempts_max=10, lost=0, code=0, started=1000, ended=2000 if state in
                  ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "DEAD") else 0, cancel=0, index=0, key="", how=how, text="")
    fields.update(more)
    return line("see", t0=at, t1=at + 1, id=identifier, state="JOB_STATE_" + state, **fields)


def output(identifier, at, sha256):
    return line("output", t0=at, t1=at + 1, id=identifier, bytes=64, sha256=sha256)


def fail(method, code, about, at):
    return line("fail", t0=at, t1=at + 1, method=method, code=code, about=about, text="…")


ROUND = line("round", t0=900, unix_ns=1, keys=1, all=1)
RIGHT = expected_sha256("add", 3, 5, 16, 0)
TWICE = expected_sha256("add", 6, 5, 16, 0)   # The amount added twice.


def life(key="k", identifier="j", state="SUCCEEDED", out=RIGHT, at=10, work=None, **end):
    """Returns the lines of a job from its submission to its end, as a client sees them."""
    lines = [send(key, at, **(work or {})), ack(key, identifier, at + 1), see(identifier, "RUNNING", at + 4),
             see(identifier, state, at + 10, **end), see(identifier, state, at + 20, "final", **end)]
    return lines + ([output(identifier, at + 14, out)] if out else [])


def judge(lines, **options):
    history = History("ann", **options)
    for one in lines:
        history.feed(one)
    return history.problems


class CleanHistories(unittest.TestCase):
    def check(self, lines, **options):
        self.assertEqual(judge(lines + [ROUND], **options), [])

    def test_one_job(self):
        self.check(life())

    def test_known_key_gives_the_same_job(self):
        self.check(life() + [send("k", 40), ack("k", "j", 41, existed=1)])

    def test_answer_that_was_lost(self):
        self.check([send("k", 1), fail("Submit", 14, "k", 2), send("k", 5), ack("k", "j", 6, existed=1),
                    see("j", "SUCCEEDED", 9), see("j", "SUCCEEDED", 12, "final"), output("j", 10, RIGHT)])

    def test_a_call_that_was_under_way_sees_the_past(self):
        late = line("see", t0=12, t1=99, id="j", state="JOB_STATE_RUNNING", attempt=1, attempts_max=10, lost=0, code=0,
                    started=1, ended=0, cancel=0, index=0, key="", how="get", text="")
        early = see("j", "SUCCEEDED", 20)
        self.check(life() + [early, late])

    def test_a_watch_tells_the_past(self):
        self.check(life() + [see("j", "ACCEPTED", 50, "watch", attempt=0), see("j", "RUNNING", 50, "watch")])

    def test_each_kind_of_end(self):
        wanted = [line("want_cancel", t0=12, id="j")]
        self.check(wanted + life(state="CANCELLED", out=None, cancel=1))
        self.check(life(state="DEAD", out=None, attempt=10, lost=10))
        self.check(life(state="FAILED", out=None, code=10, work=dict(kind="trap")))
        self.check(life(state="FAILED", out=None, code=4, work=dict(kind="spin")))
        self.check([x for x in life(state="EXPIRED", out=None, attempt=0, work=dict(kind="spin")) if "RUNNING" not in x])

    def test_arrays(self):
        lines = [send("k", 1, kind="array", elements="2", count="1"), ack("k", "a,b", 2)]
        for identifier, index in (("a", 5), ("b", 6)):
            lines += [see(identifier, "SUCCEEDED", 9, index=index), see(identifier, "SUCCEEDED", 12, "final", index=index),
                      output(identifier, 10, expected_sha256("array", 3, 5, 1, index))]
        self.check(lines)

    def test_what_follows(self):
        self.check(life() + life("l", "m", at=40, work=dict(after="j"), started=2001, ended=3000))
        failed = [x for x in life("l", "m", "FAILED", None, 40, dict(after="j", condition="3"), code=9, attempt=0)
                  if "RUNNING" not in x]
        self.check(life() + failed)

    def test_half_a_line(self):
        self.assertIsNone(parse("send\tt0=1"))
        self.check(life() + ["see\tt0=", "\n"])

    def test_dropped_jobs(self):
        self.check(life() + [fail("GetJob", 5, "j", 60)], forgets=True)


class BrokenPromises(unittest.TestCase):
    def check(self, what, lines, **options):
        problems = judge(lines + [ROUND], **options)
        self.assertTrue(any(what in problem for problem in problems), f"{what!r} is not in {problems}")

    def test_loss(self):
        self.check("was not seen to end", [x for x in life(out=None) if "SUCCEEDED" not in x])
        self.check("is lost", life() + [fail("GetJob", 5, "j", 60)])
        self.check("is lost", [send("k", 1), ack("k", "j", 2), fail("GetJob", 5, "j", 6)], forgets=True)
        self.check("not in the list", [x for x in life() if "how=final" not in x])
        self.check("never answered", [send("k", 1)])
        self.check("in time", [ROUND.replace("all=1", "all=0")])

    def test_duplicates(self):
        self.check("has the jobs", life() + [ack("k", "i", 60, existed=1)])
        self.check("made its jobs 2 times", life() + [ack("k", "j", 60)])
        self.check("no key that was answered", life() + [see("ghost", "SUCCEEDED", 60, "final")])
        self.check("is the job of the keys", life() + [send("l", 50), ack("l", "j", 51, existed=1)])
        self.check("which nobody sent", life() + [ack("m", "n", 60)])
        self.check("two requests", life() + [send("k", 60, seed="6")])

    def test_ends(self):
        self.check("ended twice", life() + [see("j", "FAILED", 60)])
        self.check("ended twice", life() + [see("j", "SUCCEEDED", 60, ended=2001)])
        self.check("ended twice", life() + [see("j", "SUCCEEDED", 60, attempt=2)])
        self.check("ended twice", life() + [see("j", "CANCELLED", 60, "watch")])
        self.check("was seen as JOB_STATE_RUNNING later", life() + [see("j", "RUNNING", 60)])
        self.check("in attempt 1 later", life(attempt=1)[:3] + [see("j", "RUNNING", 20, attempt=2), see("j", "RUNNING", 30)])
        self.check("nobody had cancelled", life(state="CANCELLED", out=None))
        self.check("nobody had cancelled", life(state="CANCELLED", out=None) + [line("want_cancel", t0=500, id="j")])
        self.check("and nobody did", life(cancel=1))
        self.check("it had lost", life(state="DEAD", out=None, attempt=2, lost=2))
        self.check("divides by zero", life(work=dict(kind="trap"), out=None))
        self.check("never ends by itself", life(work=dict(kind="spin"), out=None))
        self.check("it had started", life(state="EXPIRED", out=None, work=dict(kind="spin")))
        self.check("nothing was wrong", life(state="FAILED", out=None, code=14))
        self.check("nothing was wrong", life(state="FAILED", out=None, code=9))   # The job has no predecessor.
        self.check("was refused", [send("k", 1), line("refused", t0=1, t1=2, key="k", code=3, text="…")])

    def test_effects(self):
        self.check("has the outputs", life(out=TWICE))
        self.check("has the outputs", life(out=None))
        self.check("has the outputs", life() + [output("j", 60, TWICE)])
        self.check("and has an output", life(state="DEAD", attempt=10, lost=10))
        self.check("gave another output", [line("run", t0=1, t1=2, key="", **WORK, sha256=TWICE)])

    def test_order(self):
        self.check("ns before the end", life() + life("l", "m", at=40, work=dict(after="j"), started=1999, ended=3000))
        self.check("started after", life() + life("l", "m", at=40, work=dict(after="j", condition="3"), started=2001, ended=3000))
        self.check("failed for", life() + [x for x in life("l", "m", "FAILED", None, 40, dict(after="j"), code=9, attempt=0)
                                           if "RUNNING" not in x])

    def test_arrays(self):
        work = dict(kind="array", elements="2", count="1")
        self.check("of 2 jobs was answered", [send("k", 1, **work), ack("k", "a", 2)])
        self.check("of 2 jobs was answered", [send("k", 1, **work), ack("k", "a,a", 2)])

    def test_unknown_event(self):
        self.check("unknown event", [line("whatever", t0=1)])


class Calls(unittest.TestCase):
    def test_failures_between(self):
        history = History("ann")
        for at in (10, 20, 30):
            history.feed(fail("Submit", 14, "k", at))
        self.assertEqual(len(history.failures_between(15, 25)), 1)
        self.assertEqual(len(history.failures_between(10, 31)), 3)
        self.assertEqual(history.failures_between(15, 25, {("Submit", 14)}), [])
        self.assertEqual(history.failures_between(21, 30), [])

    def test_acknowledged_between(self):
        history = History("ann")
        lines = [send("k", 9), ack("k", "j", 10), ack("k", "j", 12, existed=1)]
        self.assertEqual(history.acknowledged_between(lines, 5, 20), ["k"])
        self.assertEqual(history.acknowledged_between(lines, 10, 20), [])
        self.assertEqual(history.acknowledged_between(lines, 5, 11), [])


if __name__ == "__main__":
    unittest.main()
