# SPDX-License-Identifier: Apache-2.0
"""Kernels that access memory beyond their buffers, that do not end, and that look for data of others."""

import concurrent.futures
import ctypes
import fcntl
import mmap
import os
import pathlib
import tempfile
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
    """Accesses miss by a byte, an element, a page and gibibytes, on both sides: each traps, and the executor lives."""
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
    """Offsets in the instruction itself, and addresses outside of all buffers: a trap, or the module is refused."""
    complaints, before = [], session.target.executor_of(session.tenant)
    for entry in ("far_load", "far_store", "far_load_2g", "absolute_load", "absolute_store", "pointer_from_data"):
        answer = session.api.prepare(calls.document(entry, calls.IN_OUT), {"k": FAR})
        if answer.ok:
            far = calls.tensor(calls.I32, calls.ints(*(0x10000000 * i + 0x20000 for i in range(COUNT))))
            handle = first(answer.reply, 1)
            answer = session.api.call("Run", encode(f2=handle, f3=[encode(f1="in", f2=far)]))
            session.api.release(handle)
            # The module's own page may be read: the executor has filled it with zeros.
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
    """Instances overwrite the indices that others have just compared: a lookup uses the compared value, or traps."""
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
    """Writes until `ends` is set; returns how often."""
    times = 0
    while not ends.is_set():
        api.call("WriteBuffer", encode(f1=encode(f2=identifier), f2=contents[times % len(contents)]))
        times += 1
    return times


@attack("T7", group="sources")
def an_index_buffer_that_is_rewritten_while_kernels_run(session):
    """A client rewrites the indices in a loop, valid ones and ones far outside of the table, while kernels on a device with a driver
    use them: each run is right or traps, whether or not the range was known, and the executor lives."""
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


F_ADD_SEALS, SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE = 1033, 1, 2, 4, 8
PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


def memory(size, seals=SEAL_SHRINK | SEAL_GROW, flags=os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC):
    descriptor = os.memfd_create("lab", flags)
    os.ftruncate(descriptor, size)
    if seals:
        fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
    return descriptor


def rewritten_without_end(descriptor, size, contents, ends):
    """Rewrites in place, sometimes with holes, until `ends` is set; returns how often."""
    libc, times = ctypes.CDLL(None, use_errno=True), 0
    with mmap.mmap(descriptor, size) as mapped:
        while not ends.is_set():
            mapped[:size] = contents[times % len(contents)]
            if times % 16 == 15:
                libc.fallocate(descriptor, PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(4096))
            times += 1
            time.sleep(0)
    return times


def runs_beside_a_writer(session, device, count=1 << 14):
    good = calls.ints(*(index * 7 % count for index in range(count)))
    bad = calls.ints(*((index * 7 % count if index % 64 else 0x3f000000 + index) for index in range(count)))
    descriptor = memory(4 * count)
    answer = session.api.register(descriptor, f4=calls.I32, f5=[count])
    if not answer.ok:
        return [f"not registered: {answer}"]
    identifier = first(first(answer.reply, 1), 1)
    ports = (("index", "in", "i32"), ("table", "in", "i32"), ("out", "out", "i32"))
    handle, refused = session.api.handle(calls.document("lookup", ports, devices=[device]))
    if handle is None:
        return [f"no kernel: {refused}"]
    index = encode(f1="index", f3=encode(f1=identifier))
    table = encode(f1="table", f2=calls.tensor(calls.I32, calls.ints(*([1] * count))))
    complaints, seen, ends = [], {"OK": 0, "ABORTED": 0}, threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writes = pool.submit(rewritten_without_end, descriptor, 4 * count, [good, good, good, bad], ends)
        for _ in range(3000 if session.full else 100):
            answer = session.api.call("Run", encode(f2=handle, f3=[index, table]))
            code = "OK" if answer.ok else answer.code
            if code not in seen or answer.ok and session.api.output(answer) != calls.ints(*([16] * count)):
                complaints.append(f"{device}: {answer}")
                break
            seen[code] += 1
        ends.set()
        session.note(f"{device}: {seen['OK']} runs were right and {seen['ABORTED']} trapped beside {writes.result()} writes")
    session.api.call("DeleteBuffer", encode(f2=identifier))
    os.close(descriptor)
    return complaints


@attack("T7", group="sources")
def registered_memory_that_is_rewritten_while_kernels_run(session):
    """A client rewrites its own registered memory as fast as it can, and punches holes into it: right or a trap, and the executor lives."""
    before, complaints = session.target.executor_of(session.tenant), []
    for device in ("cpu", "opencl"):
        complaints += runs_beside_a_writer(session, device)
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints


def lying_descriptors(folder):
    """Yields (what, descriptor) of descriptors that are no sealed shared memory of fixed size."""
    (folder / "file").write_bytes(bytes(8192))
    yield "no seals", memory(8192, 0)
    yield "may shrink", memory(8192, SEAL_GROW)
    yield "may grow", memory(8192, SEAL_SHRINK)
    yield "no bytes", memory(0)
    yield "a file", os.open(folder / "file", os.O_RDWR)
    yield "a device", os.open("/dev/zero", os.O_RDWR)
    yield "a folder", os.open(folder, os.O_RDONLY)
    yield "a pipe", os.pipe()[0]


@attack("T7", group="sources")
def registered_memory_that_lies(session):
    """Descriptors that are no memory or could change their size, tickets of others, more than the quota, memory that shrinks
    or disappears with its client while a run reads it: each is refused or harmless."""
    complaints, before = [], session.target.executor_of(session.tenant)
    with tempfile.TemporaryDirectory() as folder:
        for what, descriptor in lying_descriptors(pathlib.Path(folder)):
            answer = session.api.register(descriptor)
            os.close(descriptor)
            if answer.code != "INVALID_ARGUMENT":
                complaints.append(f"{what}: {answer}")
    good, ticket = memory(8192), os.urandom(32)
    session.api.hand_in(ticket, good)
    session.api.hand_in(os.urandom(32), good, good)
    session.api.hand_in(b"short", good)
    neighbour = session.target.api("neighbour")
    answers = [api.call("RegisterBuffer", encode(f2=ticket)) for api in (session.api, neighbour, session.api)]
    neighbour.close()
    if not answers[0].ok or [answer.code for answer in answers[1:]] != ["NOT_FOUND"] * 2:
        complaints.append(f"one ticket for all: {answers}")
    for size in (8193, 1 << 62, (1 << 64) - 1):
        answer = session.api.register(good, f3=size)
        if answer.code != "INVALID_ARGUMENT":
            complaints.append(f"{size} of 8192 bytes: {answer}")
    sparse = memory(1 << 44)
    answer = session.api.register(sparse)
    if answer.code != "RESOURCE_EXHAUSTED":
        complaints.append(f"16 TiB: {answer}")
    os.close(sparse)
    try:
        os.ftruncate(good, 4096)
        complaints.append("registered memory could be shrunk")
    except PermissionError:
        pass
    # Only the daemon still has it, and a run reads it.
    os.close(good)
    identifier = first(first(answers[0].reply, 1), 1)
    handle, refused = session.api.handle(calls.ADD)
    view = encode(f1="in", f3=encode(f1=identifier, f3=calls.I32, f4=[2048]))
    answer = session.api.call("Run", encode(f2=handle, f3=[view])) if handle else refused
    if not answer.ok or session.api.output(answer) != calls.ints(*([7] * 2048)):
        complaints.append(f"a client that is gone: {answer}")
    session.api.call("DeleteBuffer", encode(f2=identifier))
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints


@attack("T2")
def what_is_in_fresh_memory(session):
    """Outputs that no instance writes, group memory and new buffers are zeros, however often others have used them."""
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
    """Reads every byte of the attacker's executor and compiler from outside: none has the neighbour's secret."""
    target = session.target
    own = target.executor_of(session.tenant)
    found = [pid for pid in (own, target.compiler_of(own)) if pid and holds(pid, session.secret)]
    if not holds(target.executor_of("neighbour"), session.secret):
        return ["the neighbour's own executor does not hold its secret: the test sees nothing"]
    return [f"the secret is in the attacker's process {pid}" for pid in found]


def holds(pid, needle):
    """Returns whether a process's memory contains these bytes. Needs root."""
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
