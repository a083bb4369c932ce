# SPDX-License-Identifier: Apache-2.0
"""Measures how long the neighbour waits during an attack, compared to a valid load of equal intensity on the same machine."""

import re
import urllib.request

import calls
from attack import attack
from wire import decode, encode, first

ARRAY_ID = 24  # The field of a job.


def work_of(probe, **arguments):
    def work(session, api):
        session.call_strike(api, probe, arguments, deadline_ms=400)
    return work


@attack("T30", group="latency", brief=False)
def latency_while_the_protocol_is_broken(session):
    return session.compare_latency("broken protocol", work_of("unknown_id"))


@attack("T30", group="latency", brief=False)
def latency_while_metrics_are_scraped(session):
    """Clients scrape metrics of 300 tenants as fast as they can."""
    for number in range(300):
        api = session.target.api(f"crowd-{number}")
        api.sandbox()
        api.close()
    address = re.search(r"Serving metrics and health address=(\S+)", session.target.log.read_text()).group(1)
    def work(_, __):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            answer.read()
    return session.compare_latency("scrapes", work)


def make_jobs(session, arrays, elements):
    """Makes ended jobs of the attacker; returns None, or the error."""
    handle, refused = session.api.handle_soon(calls.ADD)
    if handle is None:
        return f"no graph: {refused}"
    request = encode(f2=handle, f4=[encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(1, 2, 3, 4)))], f10=encode(f1=0, f2=elements - 1))
    for _ in range(arrays):
        answer = session.api.call("Submit", request, timeout=60)
        array = first(first(answer.reply, 1), ARRAY_ID)
        if answer.ok:
            answer = session.api.call("CancelJob", encode(f2=array), timeout=60)
        if not answer.ok:
            return f"no array of jobs: {answer}"
    return None


@attack("T30", group="latency", brief=False)
def latency_while_100000_jobs_are_listed(session):
    """Lists all of one tenant's jobs page by page, and those with a label that no job has, which reads every row."""
    refused = make_jobs(session, 100, 1000)
    if refused is not None:
        return [refused]
    counts = {"threads": 0, "calls": 0, "jobs": 0, "ends of the list": 0, "failures": 0}

    def work(_, api):
        state = api.__dict__.setdefault("listing", {"token": b"", "label": None})
        if state["label"] is None:
            state["label"] = bool(counts["threads"] % 2)
            counts["threads"] += 1
        label = {"f5": encode(f1="none", f2="none")} if state["label"] else {}
        answer = api.call("ListJobs", encode(f2=1000, f3=state["token"], **label), timeout=60)
        page = decode(answer.reply) if answer.ok else {}
        state["token"] = page.get(2, [b""])[0]
        counts["calls"] += 1
        counts["jobs"] += len(page.get(1, []))
        counts["ends of the list"] += not state["token"]
        counts["failures"] += not answer.ok
    complaints = session.compare_latency("lists of 100,000 jobs", work)
    session.note(f"lists of 100,000 jobs: {counts}")
    return complaints + ([f"{counts['failures']} lists failed"] if counts["failures"] else [])


@attack("T30", group="latency")
def latency_while_native_code_spins(session):
    return session.compare_latency("native spin", work_of("spin", ms=20_000, threads=4))


@attack("T30", group="latency", brief=False)
def latency_while_threads_are_made(session):
    return session.compare_latency("threads", work_of("threads", count=3000))


@attack("T4", group="latency")
def latency_while_kernels_do_not_end(session):
    def work(_, api):
        api.run(calls.document("spin", (("out", "inout", "i32"),), instances="1"), {"out": calls.tensor(calls.I32, calls.ints(0))},
                deadline_ms=300)
    return session.compare_latency("endless kernels", work)


@attack("T30", group="latency")
def latency_while_executors_crash(session):
    """This attack comes last, since the breaker stays open afterwards, as in production; it limits the cost of crashes for others."""
    return session.compare_latency("crashes", work_of("segv"))
