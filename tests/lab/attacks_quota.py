# SPDX-License-Identifier: Apache-2.0
"""Takes as much of everything as the daemon allows; then the neighbour takes what it needs, and all of it is returned."""

import time

import calls
from attack import attack, eventually
from wire import encode, first

# The lab's limits are low, so that a tenant is soon at its limit.
LIMITS = {"limits.buffer_bytes_max": 48 << 20, "limits.buffers_bytes_max": 64 << 20, "limits.buffers_max": 200, "limits.stored_bytes_max": 16 << 20, "limits.module_bytes_max": 8 << 20,
          "limits.document_bytes_max": 8 << 20, "limits.prepared_graphs_max": 50, "jobs.queued_per_tenant_max": 50,
          "jobs.running_per_tenant_max": 4, "jobs.stored_bytes_max": 64 << 20, "jobs.kept_bytes_max": 32 << 20, "jobs.watchers_max": 100, "jobs.watchers_per_tenant_max": 50, "executor.memory_bytes_max": 1 << 30}


def neighbour_can(session):
    """Checks that another tenant's job, buffer and upload still work."""
    api, complaints = session.target.api("neighbour"), []
    answer = api.submit(calls.ADD, {"in": calls.tensor(calls.I32, calls.ints(1))})
    if not answer.ok:
        complaints.append(f"the neighbour cannot submit: {answer}")
    answer = api.call("CreateBuffer", encode(f2=1 << 20))
    if not answer.ok:
        complaints.append(f"the neighbour cannot make a buffer: {answer}")
    else:
        api.call("DeleteBuffer", encode(f2=first(first(answer.reply, 1), 1)))
    api.close()
    return complaints


def until_refused(session, what, call, most):
    """Calls until a call is refused; the refusal must be RESOURCE_EXHAUSTED, and come before `most` calls."""
    kept = []
    for _ in range(most + 1):
        answer = call(len(kept))
        if not answer.ok:
            complaints = [] if answer.code == "RESOURCE_EXHAUSTED" else [f"{what}: {answer} after {len(kept)}"]
            session.note(f"{what}: refused after {len(kept)}")
            return kept, complaints
        kept.append(answer)
    return kept, [f"{what}: {len(kept)} were taken"]


@attack("T33")
def buffers_without_end(session):
    api = session.api
    kept, complaints = until_refused(session, "buffers of 8 MiB", lambda _: api.call("CreateBuffer", encode(f2=8 << 20)), 8)
    more, again = until_refused(session, "small buffers", lambda _: api.call("CreateBuffer", encode(f2=1)), 200)
    complaints += again + neighbour_can(session)
    for answer in kept + more:
        api.call("DeleteBuffer", encode(f2=first(first(answer.reply, 1), 1)))
    answer = api.call("CreateBuffer", encode(f2=48 << 20))  # All of it was returned.
    if not answer.ok:
        complaints.append(f"deleted buffers are still counted: {answer}")
    else:
        api.call("DeleteBuffer", encode(f2=first(first(answer.reply, 1), 1)))
    return complaints


@attack("T33")
def uploads_without_end(session):
    """Unused modules make room for new ones, so none need be refused; the held memory is bounded."""
    before, complaints = session.target.resident_bytes(), []
    for index in range(64):
        answer = session.api.put_module(index.to_bytes(8, "little") * (1 << 18))[1]
        if not answer.ok and answer.code != "RESOURCE_EXHAUSTED":
            complaints.append(f"module {index}: {answer}")
    grown = session.target.resident_bytes() - before
    session.note(f"64 modules of 2 MiB: the daemon's memory {grown >> 20:+} MiB of a limit of 16")
    if grown > 64 << 20:
        complaints.append(f"the daemon's memory grew by {grown >> 20} MiB")
    answer = session.api.put_module(bytes(9 << 20))[1]
    if answer.ok:
        complaints.append("a module beyond the limit was accepted")
    return complaints + neighbour_can(session)


@attack("T33")
def graphs_without_end(session):
    # The same document again is the same preparation, yet a handle of its own.
    _, answer = session.api.put_graph(calls.ADD)
    digest = first(answer.reply, 1)
    modules = [encode(f1="k", f2=session.api.put_module(calls.KERNELS)[0])]
    kept, complaints = until_refused(session, "prepared graphs", lambda _: session.api.call("PrepareGraph", encode(f2=digest, f3=modules)), 50)
    for answer in kept:
        session.api.release(first(answer.reply, 1))
    return complaints + neighbour_can(session)


@attack("T30")
def jobs_without_end(session):
    busy = calls.document("busy", calls.IN_OUT, [("rounds", 400)])
    value = calls.tensor(calls.I32, calls.ints(1))
    kept, complaints = until_refused(session, "jobs", lambda _: session.api.submit(busy, {"in": value}), 60)
    complaints += neighbour_can(session)
    for answer in kept:
        session.api.call("CancelJob", encode(f2=session.api.job_id(answer)))
    if not eventually(lambda: session.api.submit(calls.ADD, {"in": value}).ok, 10):
        complaints.append("no job is accepted after all were cancelled")
    return complaints


@attack("T33")
def disk_without_end(session):
    """Jobs with large inputs: the store takes the tenant's limit, and no more."""
    api = session.api
    identifier = first(first(api.call("CreateBuffer", encode(f2=16 << 20)).reply, 1), 1)
    view = encode(f1="in", f3=encode(f1=identifier, f3=calls.I32, f4=[4 << 20]))
    handle, _ = api.handle_soon(calls.document("busy", calls.IN_OUT, [("rounds", 100)], instances="1"))
    ids = []

    def submit(index):
        # Different bytes each time: equal ones are stored once.
        api.call("WriteBuffer", encode(f1=encode(f2=identifier), f2=index.to_bytes(8, "little")))
        answer = api.call("Submit", encode(f2=handle, f4=[view]), timeout=60)
        if answer.ok:
            ids.append(api.job_id(answer))
        return answer
    _, complaints = until_refused(session, "jobs of 16 MiB", submit, 6)
    complaints += neighbour_can(session)
    for job in ids:
        api.call("CancelJob", encode(f2=job))
    api.call("DeleteBuffer", encode(f2=identifier))
    return complaints


@attack("T33")
def arrays_and_dependencies(session):
    """One call makes very many jobs, or one waits for very many."""
    api = session.api
    handle, _ = api.handle_soon(calls.ADD)
    value = [encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(1)))]
    complaints = []
    for first_index, last, step in ((0, 10 ** 6, 1), (0, 2 ** 64 - 1, 1), (2 ** 64 - 2, 2 ** 64 - 1, 2 ** 63), (5, 1, 1), (0, 2 ** 64 - 1, 2 ** 62)):
        answer = api.call("Submit", encode(f2=handle, f4=value, f10=encode(f1=first_index, f2=last, f3=step)))
        if answer.code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE") or answer.ok and last - first_index > 10 ** 5 and step == 1:
            complaints.append(f"an array from {first_index} to {last} by {step}: {answer}")
    answer = api.call("Submit", encode(f2=handle, f4=value, f9=[encode(f1=f"job-{i:032x}") for i in range(5000)]))
    if answer.ok:
        complaints.append("5,000 dependencies were accepted")
    return complaints


@attack("T30")
def watchers_without_end(session):
    """Streams that nobody reads, in many connections."""
    busy = calls.document("busy", calls.IN_OUT, [("rounds", 300)])
    answer = session.api.submit(busy, {"in": calls.tensor(calls.I32, calls.ints(1))})
    job, opened, complaints = session.api.job_id(answer), [], []
    import wire
    for _ in range(4):
        connection = wire.Connection(session.target.address)
        opened.append(connection)
        for _ in range(80):
            stream = connection.open(calls.SERVICE + "WatchJob", session.api.metadata)
            connection.write(stream, encode(f2=job), True)
    time.sleep(0.3)
    complaints += neighbour_can(session)
    for connection in opened:
        connection.close()
    session.api.call("CancelJob", encode(f2=job))
    watched = lambda: session.api.call("WatchJob", encode(f2=job), timeout=5).ok
    if not eventually(watched, 10):
        complaints.append("watchers of closed connections are still counted")
    return complaints


@attack("T27c")
def watches_that_nobody_reads(session):
    """Opens all watches that are allowed, in many connections, beside a flood of large changes."""
    import wire
    labels = [(f"label-{i}", "x" * 250) for i in range(30)]
    opened, complaints = [], []
    for _ in range(4):
        connection = wire.Connection(session.target.address)
        opened.append(connection)
        for method in ("WatchJobs", "WatchDevices") * 20:
            stream = connection.open(calls.SERVICE + method, session.api.metadata)
            connection.write(stream, b"", True)
    for _ in range(30):
        session.api.submit(calls.ADD, {"in": calls.tensor(calls.I32, calls.ints(1))}, labels=labels)
    complaints += neighbour_can(session)
    for connection in opened:
        connection.close()
    places = lambda: session.api.call("WatchJobs", encode(f2=b""), timeout=1).code != "RESOURCE_EXHAUSTED"
    if not eventually(places, 10):
        complaints.append("watches of closed connections are still counted")
    return complaints


@attack("T33")
def streams_that_hoard(session):
    """Sends items as far ahead as the window allows, in many streams whose results nobody reads: waiting items are charged."""
    import wire
    handle, refused = session.api.handle(calls.ADD)
    if handle is None:
        return [f"no handle: {refused}"]
    item = encode(f2=encode(f1=encode(f1="in", f2=calls.tensor(calls.I32, b"\1" * (1 << 18)))))
    before, opened, sent = session.target.resident_bytes(), [], 0
    for _ in range(16):
        connection = wire.Connection(session.target.address)
        opened.append(connection)
        for _ in range(8):
            stream = connection.open(calls.SERVICE + "Stream", session.api.metadata)
            connection.write(stream, encode(f1=encode(f2=handle, f4=64)))
            try:
                kind, which = None, None
                while (kind, which) != (wire.HEADERS, stream):  # The stream is open.
                    kind, flags, which, payload = connection.receive(time.monotonic() + 5)
                    if kind != wire.HEADERS:
                        connection.keep(kind, flags, which, payload)
                for _ in range(64):
                    if not connection.write(stream, item, deadline=time.monotonic() + 1):
                        break
                    sent += len(item)
            except wire.Refused:
                break  # The connection's window is full: the server reads no more of it.
    grown = session.target.resident_bytes() - before
    session.note(f"{sent >> 20} MiB were sent; the daemon grew by {grown >> 20} MiB")
    complaints = neighbour_can(session)
    if grown > 256 << 20:
        complaints.append(f"the daemon grew by {grown >> 20} MiB")
    for connection in opened:
        connection.close()
    answer = session.api.run(calls.ADD, {"in": calls.tensor(calls.I32, calls.ints(1))})
    if not eventually(lambda: session.api.run(calls.ADD, {"in": calls.tensor(calls.I32, calls.ints(1))}).ok, 10):
        complaints.append(f"the streams' connections are closed, and the tenant cannot run: {answer}")
    return complaints
