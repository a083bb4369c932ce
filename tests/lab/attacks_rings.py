# SPDX-License-Identifier: Apache-2.0
"""Clients that call through rings of shared memory (hpvm/v1/ring.proto, base/io/ring.h), and write arbitrary bytes there."""

import ctypes
import mmap
import os
import random
import struct
import time

import calls
import wire
from attack import attack
from attacks_memory import memory
from session import percentile
from wire import decode, encode, first

# base/io/ring.h: for each direction {written, wants_room | taken, asleep | bytes}, each part at a multiple of 64.
RING = 256 * 1024
WAY = 128 + RING
PAIR = 2 * WAY
TO_SERVER, TO_CLIENT = 0, WAY
WRITTEN, WANTS_ROOM, TAKEN, ASLEEP, BYTES = 0, 4, 64, 68, 128
FRAME, MARK = 0x48504d31, 0x48504d32
SPIN = calls.document("spin", (("out", "inout", "i32"),), instances="1")


class Ring:
    """Ring is a client's end, on a connection of its own. Besides calling methods, the attacker may change `memory`."""

    def __init__(self, session, ticket=None):
        self.connection = wire.Connection(session.target.address)
        self.descriptor, self.bell = memory(PAIR), os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.memory = mmap.mmap(self.descriptor, PAIR)
        self.put, self.got = 0, 0
        ticket = ticket or os.urandom(32)
        session.api.hand_in(ticket, self.descriptor, self.bell)
        self.stream = self.connection.open(calls.SERVICE + "OpenRing", session.api.metadata)
        self.connection.write(self.stream, encode(f2=ticket), True)
        self.calls_max = self.opened()

    def opened(self):
        """Returns the content of the first message; None when the call ended instead."""
        deadline = time.monotonic() + 10
        while True:
            kind, flags, which, payload = self.connection.receive(deadline)
            if which != self.stream:
                self.connection.keep(kind, flags, which, payload)
            elif kind == wire.DATA:
                return first(payload[5:], 2, 0)
            elif flags & wire.END_STREAM:
                return None

    def ended(self, seconds=20):
        """Returns how the call ended."""
        return self.connection.finish(self.stream, time.monotonic() + seconds)

    def word(self, at, value=None):
        if value is not None:
            struct.pack_into("<I", self.memory, at, value & 0xffffffff)
        return struct.unpack_from("<I", self.memory, at)[0]

    def ring(self):
        os.eventfd_write(self.bell, 1)

    def has_room(self, size):
        return (self.put - self.word(TO_SERVER + TAKEN)) % (1 << 32) + size <= RING

    def write(self, data):
        """Writes at the current position, publishes the bytes, and rings the bell."""
        for begin in range(0, len(data), 16):
            at = (self.put + begin) % RING
            self.memory[TO_SERVER + BYTES + at:TO_SERVER + BYTES + at + 16] = data[begin:begin + 16].ljust(16, b"\0")
        self.put = (self.put + (len(data) + 15) // 16 * 16) % (1 << 32)
        self.word(TO_SERVER + WRITTEN, self.put)
        self.ring()

    def call(self, identifier, body, cancel=False):
        head = encode(f1=identifier, f2=cancel) if cancel else encode(f1=identifier)
        self.write(struct.pack("<IIII", FRAME, len(head), len(body), 0) + head + body)

    def answer(self, seconds=10):
        """Returns (id, refused, body) of the next frame; None when none came."""
        deadline = time.monotonic() + seconds
        while self.word(TO_CLIENT + WRITTEN) == self.got:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.001)
        take = lambda at, size: bytes(self.memory[TO_CLIENT + BYTES + (at + i) % RING] for i in range(size))
        _, head, body, _ = struct.unpack("<IIII", take(self.got, 16))
        frame = take(self.got + 16, head + body)
        self.got = (self.got + (16 + head + body + 15) // 16 * 16) % (1 << 32)
        self.word(TO_CLIENT + TAKEN, self.got)
        reply = decode(frame[:head])
        return reply.get(1, [0])[0], bool(reply.get(3, [0])[0]), frame[head:]

    def close(self):
        self.connection.close()
        self.memory.close()
        os.close(self.descriptor)
        os.close(self.bell)


def run_of(handle, values=(1, 2, 3, 4)):
    return encode(f2=handle, f3=[encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(*values)))])


def is_right(body):
    return calls.ints(8, 9, 10, 11) in body


def works(session, handle):
    """Checks that a ring of the attacker's still works."""
    ring = Ring(session)
    ring.call(7, run_of(handle))
    answer = ring.answer()
    ring.close()
    return [] if answer and answer[:2] == (7, False) and is_right(answer[2]) else [f"a good ring: {answer}"]


def lies():
    """Yields (what, a function that corrupts a ring that has worked)."""
    yield "a position that cannot be", lambda ring: ring.word(TO_SERVER + WRITTEN, ring.put + RING + 16)
    yield "half a header", lambda ring: ring.word(TO_SERVER + WRITTEN, ring.put + 8)
    yield "a position before the last", lambda ring: ring.word(TO_SERVER + WRITTEN, ring.put - 16)
    yield "another magic", lambda ring: ring.write(struct.pack("<IIII", 0xdead, 0, 0, 0))
    yield "a mark", lambda ring: ring.write(struct.pack("<IIII", MARK, 0, 0, 0))
    yield "descriptors", lambda ring: ring.write(struct.pack("<IIII", FRAME, 0, 0, 3))
    yield "more than was put", lambda ring: ring.write(struct.pack("<IIII", FRAME, 100, 100, 0))
    yield "lengths that overflow", lambda ring: ring.write(struct.pack("<IIII", FRAME, 0xfffffff0, 0xfffffff0, 0))
    yield "a head that is none", lambda ring: ring.write(struct.pack("<IIII", FRAME, 16, 0, 0) + b"\xff" * 16)
    yield "answers taken that never came", lambda ring: (ring.word(TO_CLIENT + TAKEN, ring.got + 64), ring.call(9, b""))
    yield "one id twice", lambda ring: (ring.call(9, ring.endless), ring.call(9, ring.endless))


@attack("T7")
def rings_that_lie(session):
    """Impossible positions, headers and heads: the ring ends, with a reason, and nothing else does."""
    handle, refused = session.api.handle(calls.ADD)
    endless, refused_too = session.api.handle(SPIN)
    if handle is None or endless is None:
        return [f"no handle: {refused} {refused_too}"]
    complaints = []
    for what, lie in lies():
        ring = Ring(session)
        ring.endless = encode(f2=endless, f3=[encode(f1="out", f2=calls.tensor(calls.I32, calls.ints(0)))])
        ring.call(1, run_of(handle))
        answer = ring.answer()
        if not answer or not is_right(answer[2]):
            complaints.append(f"{what}: before it {answer}")
        lie(ring)
        ring.ring()
        ended = ring.ended()
        if ended.code != "INVALID_ARGUMENT":
            complaints.append(f"{what}: {ended}")
        ring.close()
    # A body that is no RunRequest fails only its own call.
    ring, chance = Ring(session), random.Random(5)
    for identifier in range(1, 200):
        ring.call(identifier, bytes(chance.randrange(256) for _ in range(chance.randrange(300))))
        answer = ring.answer()
        if not answer or answer[0] != identifier:
            complaints.append(f"bytes that are no request: {answer}")
            break
    ring.call(1000, b"", cancel=True)
    ring.call(1001, run_of(handle))
    answer = ring.answer()
    if not answer or not is_right(answer[2]):
        complaints.append(f"after them: {answer}")
    ring.close()
    return complaints + works(session, handle)


@attack("T7")
def descriptors_of_rings_that_lie(session):
    """Memory of another size or that may shrink, bells that are no eventfd, one ticket for two: none becomes a ring."""
    complaints, good, bell = [], memory(PAIR), os.eventfd(0)
    reader, writer = os.pipe()
    pairs = (("too small", memory(4096), bell), ("too large", memory(2 * PAIR), bell), ("no seals", memory(PAIR, 0), bell),
             ("a pipe as bell", good, reader), ("memory as bell", good, good), ("the bell first", bell, good))
    for what, first_fd, second in pairs:
        ticket = os.urandom(32)
        session.api.hand_in(ticket, first_fd, second)
        answer = session.api.call("OpenRing", encode(f2=ticket), timeout=5)
        if answer.code != "INVALID_ARGUMENT":
            complaints.append(f"{what}: {answer}")
    for what, ticket in (("nothing came", os.urandom(32)), ("one descriptor", None)):
        if ticket is None:
            ticket = os.urandom(32)
            session.api.hand_in(ticket, good)
        answer = session.api.call("OpenRing", encode(f2=ticket), timeout=5)
        if answer.code not in ("NOT_FOUND", "INVALID_ARGUMENT"):
            complaints.append(f"{what}: {answer}")
    # Two clients with one ticket: the second descriptors are dropped, and the first to name the ticket gets the ring.
    ticket = os.urandom(32)
    ring = Ring(session, ticket)
    session.api.hand_in(os.urandom(32), good, bell)
    neighbour = session.target.api("neighbour")
    answer = neighbour.call("OpenRing", encode(f2=ticket), timeout=5)
    neighbour.close()
    if ring.calls_max is None or answer.code != "NOT_FOUND":
        complaints.append(f"one ticket for two: {ring.calls_max}, {answer}")
    try:
        os.ftruncate(ring.descriptor, 4096)
        complaints.append("a ring's memory could be shrunk")
    except PermissionError:
        pass
    ring.close()
    for descriptor in {fd for _, *fds in pairs for fd in fds} | {good, bell, writer}:
        os.close(descriptor)
    return complaints


@attack("T7")
def memory_of_rings_that_changes(session):
    """Holes and random words anywhere in the memory, during calls: only the attacker's own ring is affected."""
    handle, refused = session.api.handle(calls.ADD)
    if handle is None:
        return [f"no handle: {refused}"]
    libc, chance = ctypes.CDLL(None, use_errno=True), random.Random(11)
    for turn in range(60 if session.full else 12):
        ring = Ring(session)
        if ring.calls_max is None:
            return ["no ring"]
        for step in range(200):
            if ring.has_room(512):
                ring.call(turn * 1000 + step + 1, run_of(handle))
            kind = chance.randrange(4)
            if kind == 0:
                libc.fallocate(ring.descriptor, 3, ctypes.c_long(4096 * chance.randrange(PAIR // 4096)), ctypes.c_long(4096))
            elif kind == 1:
                ring.word(4 * chance.randrange(PAIR // 4), chance.randrange(1 << 32))
            elif kind == 2:
                ring.word(chance.choice((TO_SERVER, TO_CLIENT)) + chance.choice((WRITTEN, WANTS_ROOM, TAKEN, ASLEEP)), chance.randrange(1 << 32))
            ring.ring()
        ring.close()
    return works(session, handle)


@attack("T33")
def clients_that_die_with_runs_by_ring(session):
    """Endless runs in many rings whose connections break: they end, and their resources are returned."""
    handle, refused = session.api.handle(SPIN)
    if handle is None:
        return [f"no handle: {refused}"]
    body = encode(f2=handle, f3=[encode(f1="out", f2=calls.tensor(calls.I32, calls.ints(0)))])
    before = session.target.descriptors()
    for _ in range(3):
        rings = [Ring(session) for _ in range(8)]
        for ring in rings:
            for identifier in range(1, 20):
                ring.call(identifier, body)
        time.sleep(0.2)
        for ring in rings:
            ring.close()
    deadline = time.monotonic() + 20
    while session.target.descriptors() > before + 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    after = session.target.descriptors()
    add, _ = session.api.handle(calls.ADD)
    return ([f"{after} descriptors of the daemon, {before} before"] if after > before + 4 else []) + works(session, add)


@attack("T33")
def rings_without_end(session):
    """Opens as many rings as possible: a tenant has 32, and they are returned when their connections break."""
    rings, complaints = [], []
    for _ in range(40):
        ring = Ring(session)
        rings.append(ring)
        if ring.calls_max is None:
            break
    opened = sum(ring.calls_max is not None for ring in rings)
    if opened != 32:
        complaints.append(f"{opened} rings of one tenant")
    handle, _ = session.api.handle(calls.ADD)
    for ring in rings:
        ring.close()
    time.sleep(0.5)
    return complaints + works(session, handle)


def flooded(session, flood, seconds):
    """Returns the neighbour's 99th percentile before and during the flood; `flood` is called repeatedly."""
    neighbour = session.target.neighbour
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    time.sleep(seconds)
    middle = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        flood()
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return tuple(percentile(neighbour.latencies_ms(*span), 0.99) for span in ((begin, middle), (middle, end)))


@attack("T33")
def floods_of_runs_by_ring(session):
    """Valid calls, refused calls and invalid requests, in eight rings at once and as fast as possible: others wait little."""
    handle, refused = session.api.handle(calls.ADD)
    if handle is None:
        return [f"no handle: {refused}"]
    complaints = []
    for what, body in (("runs", run_of(handle)), ("handles of nobody", run_of("graph-of-nobody")), ("no requests", b"\xff" * 64)):
        rings, sent = [Ring(session) for _ in range(8)], [0]

        def flood():
            for ring in rings:
                for _ in range(20):
                    if ring.has_room(256):
                        sent[0] += 1
                        ring.call(sent[0], body)
                # Their answers are discarded unread.
                ring.got = ring.word(TO_CLIENT + WRITTEN)
                ring.word(TO_CLIENT + TAKEN, ring.got)
                ring.word(TO_CLIENT + WANTS_ROOM, 0)

        quiet, loud = flooded(session, flood, 3.0 if session.full else 0.7)
        session.note(f"{what} by ring, {sent[0]} of them: the neighbour's p99 {quiet:.2f} ms before, {loud:.2f} ms meanwhile")
        if loud > quiet + 250:
            complaints.append(f"{what}: the neighbour's p99 is {loud:.0f} ms")
        for ring in rings:
            ring.close()
    return complaints + works(session, handle)


@attack("T33")
def a_bell_that_is_rung_without_end(session):
    """Rings the bell without a frame: the ring ends; in the meantime others wait little."""
    ring, quiet_begin = Ring(session), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    deadline = time.monotonic() + 20
    ring.connection.socket.setblocking(False)
    ended = False
    while time.monotonic() < deadline and not ended:
        for _ in range(1000):
            os.eventfd_write(ring.bell, 1)
        try:
            ended = bool(ring.connection.socket.recv(1, 2))  # MSG_PEEK
        except BlockingIOError:
            pass
    ring.connection.socket.setblocking(True)
    answer = ring.ended()
    ring.close()
    late = percentile(session.target.neighbour.latencies_ms(quiet_begin, time.clock_gettime_ns(time.CLOCK_MONOTONIC)), 0.99)
    session.note(f"a bell without end: the neighbour's p99 {late:.2f} ms")
    return [] if answer.code == "RESOURCE_EXHAUSTED" else [f"{answer}"]


@attack("T33")
def answers_by_ring_that_nobody_takes(session):
    """The daemon takes no more calls than it can keep answers for, and its memory does not grow."""
    handle, refused = session.api.handle(calls.ADD)
    if handle is None:
        return [f"no handle: {refused}"]
    before, rings = session.target.resident_bytes(), [Ring(session) for _ in range(16)]
    body, sent = run_of(handle, range(12_000)), 0
    deadline = time.monotonic() + (10 if session.full else 3)
    while time.monotonic() < deadline:
        for ring in rings:
            if ring.has_room(len(body) + 64):
                sent += 1
                ring.call(sent, body)
        time.sleep(0.001)
    grown = session.target.resident_bytes() - before
    session.note(f"{sent} calls of {len(body)} bytes whose answers nobody takes: the daemon grew by {grown >> 20} MiB")
    for ring in rings:
        ring.close()
    return ([f"the daemon grew by {grown >> 20} MiB"] if grown > 200 << 20 else []) + works(session, handle)
