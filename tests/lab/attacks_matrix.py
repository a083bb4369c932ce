# SPDX-License-Identifier: Apache-2.0
"""Makes every call at its documented maximum, repeatedly, beside a neighbour: it waits no longer for them than for valid work.

The neighbour's 99th percentile beside each call must stay under the larger of 20 ms and three times its value beside a tenant that keeps
every processor busy with valid work. Slow items in the daemon's log about its threads and its lock are noted: one of 50 ms is a finding."""

import json
import re
import statistics
import struct
import time

import calls
from attacks_latency import ARRAY_ID
from attack import Attack, ATTACKS
from session import Measured, good_work, percentile
import wire
from wire import encode, first

P99_MS, TIMES, SLOW_MS_MAX = 20, 3, 50
MIB = 1 << 20
# Refusals are valid answers: requests at the maximum meet limits.
ANSWERS = ("OK", "RESOURCE_EXHAUSTED", "NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE")
SLOW = re.compile(r'was busy with one item for long tenant=(\S+) thread="?([\w ]+)"? item=(\S+) ms=(\d+)')

VALUES = calls.tensor(calls.I32, calls.ints(*range(64)))
LARGEST = calls.tensor(calls.I32, bytes(256 << 10))
LABELS = [encode(f1=f"label-{i}", f2="x" * 250) for i in range(32)]


def kept(api, name, make):
    """Returns a value that one of the threads has made once."""
    things = api.__dict__.setdefault("things", {})
    if name not in things:
        things[name] = make()
    return things[name]


def handle_of(api):
    handle, _ = api.handle(calls.ADD)
    return handle or b""


def bound(value=VALUES):
    return [encode(f1="in", f2=value)]


def ids_of(api):
    """Returns the ids of some ended jobs with many labels."""
    def make():
        answers = [api.call("Submit", encode(f1=encode(f4=LABELS), f2=handle_of(api), f4=bound())) for _ in range(100)]
        return [api.job_id(answer) for answer in answers if answer.ok]
    return kept(api, "ids", make)


def buffer_of(api, size):
    def make():
        return first(first(api.call("CreateBuffer", encode(f2=size)).reply, 1), 1)
    return kept(api, f"buffer {size}", make)


def fresh(api):
    api.__dict__["number"] = api.__dict__.get("number", 0) + 1
    return f"{id(api)}-{api.number}".encode()


def call(method, message=b""):
    return lambda session, api: api.call(method, message(api) if callable(message) else message)


def put_module(session, api):
    return api.put_module(b"\0asm\1\0\0\0\0\x20" + fresh(api).rjust(31, b" ") + bytes(64 * MIB - 100))[1]


def put_graph(session, api):
    return api.put_graph(b" " * (16 * MIB) + fresh(api))[1]


def chain(api, count):
    """Returns a document of `count` nodes, each of which reads the output of the one before it."""
    def make():
        text = calls.document("add", calls.IN_OUT, [("amount", 7)])
        node = text["nodes"]["node"]
        text["nodes"] = {f"n{i}": node for i in range(count)}
        text["edges"] = [{"from": "in", "to": "n0.in"}, *({"from": f"n{i}.out", "to": f"n{i + 1}.in"} for i in range(count - 1)),
                         {"from": f"n{count - 1}.out", "to": "out_out"}]
        return json.dumps(text)
    return kept(api, f"chain {count}", make)


def prepare_large(session, api):
    """Prepares a document of thousands of nodes, a different one each time."""
    text = chain(api, 5000)
    answer = api.prepare('{"description": "' + fresh(api).decode() + '", ' + text[1:], timeout=60)
    api.release(first(answer.reply, 1))
    return answer


def prepare_again(session, api):
    """Prepares and releases repeatedly."""
    answer = api.prepare(json.dumps({**calls.ADD, "name": fresh(api).decode()}))
    api.release(first(answer.reply, 1))
    return answer


def run_buffers(session, api):
    size = 128 * MIB
    inputs = [encode(f1="in", f3=encode(f1=buffer_of(api, size), f3=calls.I32, f4=[size // 4]))]
    return api.call("Run", encode(f2=handle_of(api), f3=inputs, f4=[encode(f1="out", f4=True)]), timeout=60)


def stream(session, api):
    """Sends all items before it reads a result."""
    item, handle = encode(f2=encode(f1=bound(LARGEST))), handle_of(api)
    connection, deadline = wire.Connection(api.address), time.monotonic() + 60
    try:
        opened = connection.open(calls.SERVICE + "Stream", api.metadata)
        connection.write(opened, encode(f1=encode(f2=handle, f4=64)), deadline=deadline)
        kind, which = None, None
        while (kind, which) != (wire.HEADERS, opened):
            kind, flags, which, payload = connection.receive(deadline)
            if kind != wire.HEADERS:
                connection.keep(kind, flags, which, payload)
        for message in [item] * 64:
            connection.write(opened, message, deadline=deadline)
        connection.write(opened, encode(f3=b""), True, deadline)
        return connection.finish(opened, deadline)
    finally:
        connection.close()


def submit_arrays(session, api):
    """Submits the maximal number of elements of an array, with labels; then cancels them."""
    answer = api.call("Submit", encode(f1=encode(f4=LABELS), f2=handle_of(api), f4=bound(), f10=encode(f1=0, f2=999)), timeout=60)
    array = first(first(answer.reply, 1), ARRAY_ID)
    if array:
        api.call("CancelJob", encode(f2=array), timeout=60)
    return answer


def submit_after_many(session, api):
    """Submits elements that depend on the maximal number of jobs."""
    after = [encode(f1=job, f2=1) for job in ids_of(api)[:64]]
    answer = api.call("Submit", encode(f2=handle_of(api), f4=bound(), f9=after, f10=encode(f1=0, f2=999)), timeout=60)
    array = first(first(answer.reply, 1), ARRAY_ID)
    if array:
        api.call("CancelJob", encode(f2=array), timeout=60)
    return answer


def submit_large(session, api):
    return api.call("Submit", encode(f1=encode(f4=LABELS), f2=handle_of(api), f4=bound(LARGEST)), timeout=60)


def watch(session, api):
    """Opens as many watches at once as a connection has streams."""
    ids = ids_of(api)
    request, deadline = encode(f2=ids[-1] if ids else "none"), time.monotonic() + 60
    connection, statuses = wire.Connection(api.address), []
    try:
        streams = {connection.open(calls.SERVICE + "WatchJob", api.metadata) for _ in range(STREAMS)}
        for opened in streams:
            connection.write(opened, request, True, deadline)
        while streams:
            kind, flags, which, payload = connection.receive(deadline)
            if kind == wire.DATA:
                connection.send(wire.frame(wire.WINDOW, 0, 0, struct.pack(">I", max(1, len(payload)))))
            elif kind == wire.HEADERS and flags & wire.END_STREAM:
                statuses.append(int(wire.parse_headers(payload).get("grpc-status", "2")))
            else:
                connection.keep(kind, flags, which, payload)
            if kind == wire.RST or flags & wire.END_STREAM:
                streams.discard(which)
        return wire.Answer(wire.CODES[max(statuses, default=2)], "", [])
    finally:
        connection.close()


def watch_all(session, api):
    """Watches all jobs as often: each watch gets a list, then an array's changes, of which only the first answer is read."""
    deadline, connection = time.monotonic() + 60, wire.Connection(api.address)
    try:
        streams = {connection.open(calls.SERVICE + "WatchJobs", api.metadata) for _ in range(STREAMS)}
        for opened in streams:
            connection.write(opened, b"", True, deadline)
        while streams:
            kind, flags, which, payload = connection.receive(deadline)
            if kind == wire.DATA:
                connection.send(wire.frame(wire.WINDOW, 0, 0, struct.pack(">I", max(1, len(payload)))))
            elif kind != wire.HEADERS:
                connection.keep(kind, flags, which, payload)
            if kind in (wire.DATA, wire.RST) or flags & wire.END_STREAM:
                streams.discard(which)
        return submit_arrays(session, api)
    finally:
        connection.close()


def write_buffer(session, api):
    header, piece = encode(f2=buffer_of(api, 64 * MIB)), bytes(MIB)
    return api.call("WriteBuffer", encode(f1=header, f2=piece), *[encode(f2=piece)] * 63, timeout=60)


def make_buffers(session, api):
    """Makes and deletes buffers, which returns large memory to the system."""
    answer = api.call("CreateBuffer", encode(f2=512 * MIB))
    buffer = first(first(answer.reply, 1), 1)
    if buffer:
        api.call("DeleteBuffer", encode(f2=buffer))
    return answer


def small_buffers(session, api):
    return api.call("CreateBuffer", encode(f2=1))


def as_admin(api, method, message=b""):
    """Calls as an administrator: without credentials every tenant has its operator's rights, once it is in the directory."""
    kept(api, "tenant", lambda: api.call("CreateTenant", encode(f2=encode(f1=dict(api.metadata)["hpvm-tenant"])), service=calls.ADMIN))
    return api.call(method, message, service=calls.ADMIN)


def admin(method, message=b""):
    return lambda session, api: as_admin(api, method, message)


def tokens(session, api):
    """Makes and revokes tokens, each on disk and in the audit before the answer."""
    answer = as_admin(api, "CreateToken")
    token = first(first(answer.reply, 1), 1)
    if token:
        api.call("RevokeToken", encode(f2=token), service=calls.ADMIN)
    return answer


def update_tenant(session, api):
    """Sets the maximal number of device names; on disk and in the audit before the answer."""
    devices = encode(f1=["cpu", *(f"vulkan:{i}" for i in range(63))])
    return as_admin(api, "UpdateTenant", encode(f2=dict(api.metadata)["hpvm-tenant"], f4="x" * 200, f9=devices))


def submit_again(session, api):
    """Submits with a known key, repeatedly."""
    return api.call("Submit", encode(f1=encode(f1="again", f4=LABELS), f2=handle_of(api), f4=bound()))


def cancel_ended(session, api):
    ids = ids_of(api)
    return api.call("CancelJob", encode(f2=ids[0] if ids else "none"))


def retry(session, api):
    ids = ids_of(api)
    return api.call("RetryJob", encode(f2=ids[0] if ids else "none"))


STREAMS = 100  # The default of limits.streams_per_connection_max.
WORKS = {
    "ServerInfo": call("ServerInfo"), "ListDevices": call("ListDevices"), "ListCosts": call("ListCosts"),
    "PutModule of 64 MiB": put_module, "PutGraph of 16 MiB": put_graph, "PrepareGraph of 5,000 nodes": prepare_large,
    "PrepareGraph and ReleaseGraph": prepare_again, "ListGraphs": call("ListGraphs", encode(f2=1000)),
    "Run with 256 KiB inline": lambda session, api: api.run(calls.ADD, {"in": LARGEST}), "Run with 128 MiB in buffers": run_buffers,
    "Stream of 64 items": stream, "Submit with 256 KiB and labels": submit_large, "Submit and CancelJob of arrays": submit_arrays,
    "Submit after 64 jobs": submit_after_many, "GetJob": call("GetJob", lambda api: encode(f2=(ids_of(api) or ["none"])[0])),
    "WatchJob on 100 streams": watch, "WatchJobs on 100 streams": watch_all, "ListJobs of 1000": call("ListJobs", lambda api: (ids_of(api), encode(f2=1000))[1]),
    "ListJobs by label": call("ListJobs", lambda api: (ids_of(api), encode(f2=1000, f5=encode(f1="label-1", f2="none")))[1]),
    "ListJobs that live": call("ListJobs", encode(f2=1000, f4=1)), "RetryJob": retry,
    "Submit with a known key": submit_again, "CancelJob of an ended job": cancel_ended, "UpdateTenant with 64 devices": update_tenant,
    "FetchOutput": call("FetchOutput", lambda api: encode(f2=(ids_of(api) or ["none"])[0], f3="out_out")),
    "CreateBuffer and DeleteBuffer of 512 MiB": make_buffers, "WriteBuffer of 64 MiB": write_buffer,
    "ReadBuffer of 64 MiB": call("ReadBuffer", lambda api: encode(f2=buffer_of(api, 64 * MIB))),
    "CreateBuffer of 1 byte": small_buffers, "ListBuffers": call("ListBuffers", encode(f2=1000)),
    "CreateToken and RevokeToken": tokens, "ListTokens": admin("ListTokens"), "GetUsage": admin("GetUsage"),
    "GetOverview of 1000": lambda session, api: api.call("GetOverview", encode(f2=1000), service=calls.OPERATIONS),
    "GetTenant": admin("GetTenant"),
    "ListTenants of 1000": admin("ListTenants", encode(f2=1000)), "ReadAudit": admin("ReadAudit"),
}
BRIEF = ("Submit and CancelJob of arrays", "ListJobs of 1000", "CreateBuffer and DeleteBuffer of 512 MiB", "Stream of 64 items")


def slow_items(session, since):
    """Returns the attacker's slow items in the log after byte `since`: (thread, item, ms)."""
    with session.target.log.open("rb") as log:
        log.seek(since)
        text = log.read().decode(errors="replace")
    return [(thread, item, int(ms)) for tenant, thread, item, ms in SLOW.findall(text) if tenant == session.tenant]


def beside(name, work):
    def execute(session):
        codes, said = {}, {}

        def counted(inner, api):
            answer = work(inner, api)
            codes[answer.code] = codes.get(answer.code, 0) + 1
            said.setdefault(answer.code, answer.message)
        seconds, turns = 3.0 if session.full else 0.5, 1 if session.times > 1 else 3
        for tries in range(1, 4):  # A slow result is measured again, since the machine may have other load.
            since = session.target.log.stat().st_size
            good, bad = [], []
            for _ in range(turns):
                good.append(percentile(session.while_doing(good_work, seconds), 0.99))
                bad.append(percentile(session.while_doing(counted, seconds), 0.99))
            limit = max(P99_MS, TIMES * statistics.median(good))
            slow = slow_items(session, since)
            if statistics.median(bad) <= limit and not [item for item in slow if item[2] >= SLOW_MS_MAX]:
                break
        worst = max(slow, key=lambda item: item[2], default=None)
        held = statistics.median(bad) <= limit and (worst is None or worst[2] < SLOW_MS_MAX)
        session.measured.setdefault(name, []).append(
            Measured(held, statistics.median(bad), statistics.median(good), tries, len(slow), worst[2] if worst else 0))
        text = (f"{name}: the neighbour's p99 {statistics.median(bad):.1f} ms, {statistics.median(good):.1f} beside good work (limit {limit:.0f}); "
                f"{len(slow)} slow items" + (f", the worst {worst[0]} {worst[1]} {worst[2]} ms" if worst else "") + f"; {codes}")
        if "OK" not in codes:
            text += f": {said}"
        if session.times == 1:
            session.note(text)
        complaints = [] if statistics.median(bad) <= limit else [text]
        complaints += [f"{thread} was busy with {item} for {ms} ms" for thread, item, ms in slow if ms >= SLOW_MS_MAX][:3]
        complaints += [f"{code} of {name}" for code in codes if code not in ANSWERS]
        return complaints
    return execute


for work_name, work_of_it in WORKS.items():
    ATTACKS.append(Attack(f"neighbour beside {work_name}", "T30", beside(work_name, work_of_it), 0, "matrix", work_name in BRIEF))
