# SPDX-License-Identifier: Apache-2.0
"""How long the neighbour waits while it is attacked, against the same machine with good load of equal intensity."""

import re
import urllib.request

import calls
from attack import attack


def work_of(probe, **arguments):
    def work(session, api):
        session.call_strike(api, probe, arguments, deadline_ms=400)
    return work


@attack("T30", group="latency", brief=False)
def latency_while_the_protocol_is_broken(session):
    return session.compare_latency("broken protocol", work_of("unknown_id"))


@attack("T30", group="latency", brief=False)
def latency_while_metrics_are_scraped(session):
    """With 300 tenants to be looked at, by clients that ask as fast as they can."""
    for number in range(300):
        api = session.target.api(f"crowd-{number}")
        api.sandbox()
        api.close()
    address = re.search(r"Serving metrics and health address=(\S+)", session.target.log.read_text()).group(1)
    def work(_, __):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            answer.read()
    return session.compare_latency("scrapes", work)


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
    """Last, as the breaker stays open afterwards: it is as in production here, and is what keeps crashes from costing others."""
    return session.compare_latency("crashes", work_of("segv"))
