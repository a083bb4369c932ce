# SPDX-License-Identifier: Apache-2.0
"""Kernels that read and write beyond their buffers, that do not end, and that look for what others left."""

import concurrent.futures
import threading
import time

import calls
from attack import attack
from wire import decode, encode, first

FAR = (calls.HERE / "far.wasm").read_bytes()
COUNT = 16
VALUES = calls.tensor(calls.I32, calls.ints(*range(COUNT)))
GIB = 1 << 30
DISTANCES = (4, -4, 1, -1, 64, -64, 4096, -4096, 65536, -65536, 1 << 24, -(1 << 24), GIB, -GIB, 2 * GIB - 4, -2 * GIB)


@attack("T7")
def accesses_beyond_the_buffers(session):
    """By a byte, an element, a page and gibibytes, on both sides: a trap each time, and the executor lives."""
    complaints, before = [], session.target.executor_of(session.tenant)
    for kernel in ("peek", "poke", "poke_atomic"):
        for distance in DISTANCES:
            if kernel == "poke_atomic" and distance % 4:
                continue
            answer = session.api.run(calls.document(kernel, calls.IN_OUT, [("distance", distance)]), {"in": VALUES})
            if answer.code != "ABORTED":
                complaints.append(f"{kernel} {distance:+}: {answer}")
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints


@attack("T7")
def addresses_beyond_32_bits(session):
    """Offsets in the instruction itself, and addresses that are no buffer's: a trap, or refused as a module."""
    complaints, before = [], session.target.executor_of(session.tenant)
    for entry in ("far_load", "far_store", "far_load_2g", "absolute_load", "absolute_store", "pointer_from_data"):
        answer = session.api.prepare(calls.document(entry, calls.IN_OUT), {"k": FAR})
        if answer.ok:
            far = calls.tensor(calls.I32, calls.ints(*(0x10000000 * i + 0x20000 for i in range(COUNT))))
            handle = first(answer.reply, 1)
            answer = session.api.call("Run", encode(f2=handle, f3=[encode(f1="in", f2=far)]))
            session.api.release(handle)
            # The module's own page may be read: it is zeros, of the executor's own making.
            own = entry in ("absolute_load", "absolute_store") and answer.ok and not session.api.output(answer).strip(b"\0")
            if answer.code != "ABORTED" and not own:
                complaints.append(f"{entry}: {answer} {session.api.output(answer)[:64]!r}")
        elif answer.code != "INVALID_ARGUMENT" and answer.code != "FAILED_PRECONDITION":
            complaints.append(f"{entry}: {answer}")
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints


@attack("T7")
def an_index_that_changes_meanwhile(session):
    """Instances rewrite the indices that others have just compared: a lookup uses what was compared, or traps."""
    complaints, before = [], session.target.executor_of(session.tenant)
    count = 4096
    ports = (("index", "inout", "i32"), ("table", "in", "i32"), ("out", "out", "i32"))
    inputs = {"index": calls.tensor(calls.I32, calls.ints(*([0] * count))),
              "table": calls.tensor(calls.I32, calls.ints(*([1] * count)))}
    for compares, codes in ((1, ("OK",)), (0, ("OK", "ABORTED"))):
        document = calls.document("rewrite", ports, [("n", "n"), ("turns", 10_000), ("compares", compares)])
        for _ in range(100 if session.full else 10):
            answer = session.api.run(document, inputs)
            if ("OK" if answer.ok else answer.code) not in codes:
                complaints.append(f"compares {compares}: {answer}")
                break
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints


def written_without_end(api, identifier, contents, ends):
    """Until `ends` is set; how often."""
    times = 0
    while not ends.is_set():
        api.call("WriteBuffer", encode(f1=encode(f2=identifier), f2=contents[times % len(contents)]))
        times += 1
    return times


@attack("T7", group="sources")
def an_index_buffer_that_is_rewritten_while_kernels_run(session):
    """A client rewrites the indices in a loop, good ones and ones far outside of the table, while kernels on a device with a driver
    look them up: each run is right or traps, whether their range was known or not, and the executor lives."""
    complaints, count = [], 1 << 14
    good = calls.ints(*(index * 7 % count for index in range(count)))
    bad = calls.ints(*((index * 7 % count if index % 64 else 0x3f000000 + index) for index in range(count)))
    identifier = first(first(session.api.call("CreateBuffer", encode(f2=4 * count)).reply, 1), 1)
    session.api.call("WriteBuffer", encode(f1=encode(f2=identifier), f2=good))
    ports = (("index", "in", "i32"), ("table", "in", "i32"), ("out", "out", "i32"))
    handle, refused = session.api.handle(calls.document("lookup", ports, devices=["opencl"]))
    if handle is None:
        return [f"no kernel: {refused}"]
    before, seen = session.target.executor_of(session.tenant), {"OK": 0, "ABORTED": 0}
    index = encode(f1="index", f3=encode(f1=identifier, f3=calls.I32, f4=[count]))
    table = encode(f1="table", f2=calls.tensor(calls.I32, calls.ints(*([1] * count))))
    writer, ends = session.target.api(session.tenant), threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writes = pool.submit(written_without_end, writer, identifier, [good, good, good, bad], ends)
        for _ in range(3000 if session.full else 150):
            answer = session.api.call("Run", encode(f2=handle, f3=[index, table]))
            code = "OK" if answer.ok else answer.code
            if code not in seen or answer.ok and session.api.output(answer) != calls.ints(*([16] * count)):
                complaints.append(f"{answer}")
                break
            seen[code] += 1
        ends.set()
        session.note(f"{seen['OK']} runs were right and {seen['ABORTED']} trapped beside {writes.result()} writes")
    writer.close()
    session.api.call("DeleteBuffer", encode(f2=identifier))
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints


@attack("T2")
def what_is_in_fresh_memory(session):
    """Outputs that no instance writes, group memory, new buffers: zeros, however often others have used them."""
    complaints = []
    neighbour = session.target.api("neighbour")
    group = [64]
    secret = (session.secret * 100)[:1024 * 4]
    for _ in range(100 if session.full else 5):
        neighbour.run(calls.document("leave", calls.IN_OUT, group=group), {"in": calls.tensor(calls.I32, secret)})
        answer = session.api.run(calls.document("listen", (("out", "inout", "i32"),), group=group),
                                 {"out": calls.tensor(calls.I32, b"\1" * len(secret))})
        heard = session.api.output(answer)
        session.look_for_secret(heard, "group memory")
        if not answer.ok or heard.strip(b"\0"):
            complaints.append(f"group memory held {heard.strip(bytes(1))[:64]!r} ({answer})")
            break
    neighbour.close()
    for size in (1, 4096, 1 << 20, 8 << 20):
        identifier = first(first(session.api.call("CreateBuffer", encode(f2=size)).reply, 1), 1)
        answer = session.api.call("ReadBuffer", encode(f2=identifier))
        data = b"".join(first(reply, 2) for reply in answer.replies)
        session.look_for_secret(data, "a new buffer")
        if len(data) != size or data.strip(b"\0"):
            complaints.append(f"a new buffer of {size} bytes: {len(data)}, {data.strip(bytes(1))[:64]!r}")
        session.api.call("DeleteBuffer", encode(f2=identifier))
    return complaints


@attack("T2")
def the_secret_in_an_attackers_processes(session):
    """Every byte of the attacker's executor and compiler, read from outside: the neighbour's secret is in none."""
    target = session.target
    own = target.executor_of(session.tenant)
    found = [pid for pid in (own, target.compiler_of(own)) if pid and holds(pid, session.secret)]
    if not holds(target.executor_of("neighbour"), session.secret):
        return ["the neighbour's own executor does not hold its secret: the test sees nothing"]
    return [f"the secret is in the attacker's process {pid}" for pid in found]


def holds(pid, needle):
    """Whether a process's memory has these bytes. Needs root."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                span, access = line.split()[:2]
                begin, end = (int(part, 16) for part in span.split("-"))
                if "r" not in access or end - begin > 1 << 29 or "[v" in line:
                    continue
                try:
                    memory.seek(begin)
                    if needle in memory.read(end - begin):
                        return True
                except OSError:
                    pass
    except OSError:
        pass
    return False


def ended(session, what, document, inputs, codes, seconds):
    begin = time.monotonic()
    answer = session.api.run(document, inputs, deadline_ms=300)
    took = time.monotonic() - begin
    session.note(f"{what}: {answer.code} after {took:.2f} s")
    return [] if answer.code in codes and took < seconds else [f"{what}: {answer} after {took:.1f} s"]


@attack("T4")
def kernels_that_do_not_end(session):
    complaints = ended(session, "an endless loop", calls.document("spin", (("out", "inout", "i32"),), instances="1"),
                       {"out": calls.tensor(calls.I32, calls.ints(0))}, ("DEADLINE_EXCEEDED",), 5)
    complaints += ended(session, "an endless loop in every instance", calls.document("spin", (("out", "inout", "i32"),), instances="1000000000"),
                        {"out": calls.tensor(calls.I32, calls.ints(0))}, ("DEADLINE_EXCEEDED",), 5)
    complaints += ended(session, "a kernel of an hour", calls.document("busy", calls.IN_OUT, [("rounds", 3_600_000)]), {"in": VALUES},
                        ("DEADLINE_EXCEEDED",), 5)
    return complaints + session.check_tenant_works()


@attack("T5")
def recursion_without_end(session):
    complaints = []
    for _ in range(3):
        complaints += ended(session, "recursion", calls.document("recurse", (("out", "inout", "i32"),), instances="4"),
                            {"out": calls.tensor(calls.I32, calls.ints(1, 1, 1, 1))}, ("ABORTED",), 5)
    return complaints
