# SPDX-License-Identifier: Apache-2.0
"""Clients that flood, are slow, or send what HTTP/2 forbids. Meanwhile calls of others are quick, and the daemon's memory is bounded."""

import gzip
import multiprocessing
import os
import socket
import struct
import time

import calls
import wire
from attack import Attack, ATTACKS, attack, eventually
from session import percentile
from wire import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST, SETTINGS, WINDOW, encode, frame

# Limits: the 99th percentile of another client's calls, above its value before; the daemon's memory for one flood; and its
# memory under all floods at once.
PROBE_MS_MAX, RECOVERY_SECONDS_MAX, MEMORY_BYTES_MAX, RESIDENT_BYTES_MAX = 20, 5, 32 << 20, 200 << 20
SETTLED_BYTES_MAX = 140 << 20
QUIET_SECONDS, ATTACK_SECONDS, TOGETHER_SECONDS, TRIES = 0.5, 1.5, 6, 3


class Flood:
    """Flood is the work of an attacker's process. Ended connections are made again, as long as the attack lasts."""

    def __init__(self, address, metadata, seconds):
        self.address, self.metadata = address, metadata
        self.end = time.monotonic() + seconds

    def connect(self, **more):
        return wire.Connection(self.address, 3, **more)

    def goes_on(self):
        return time.monotonic() < self.end

    def again(self, act):
        """Calls act(connection) repeatedly, each time on a live connection."""
        while self.goes_on():
            try:
                with self.connect() as connection:
                    while self.goes_on():
                        act(connection)
            except (OSError, wire.Refused):
                time.sleep(0.01)

    def hold(self, connections):
        while self.goes_on():
            time.sleep(0.05)
        for connection in connections:
            connection.close()


def drain(connection):
    connection.socket.settimeout(0)
    try:
        while connection.socket.recv(1 << 16):
            pass
        raise wire.Refused("closed")
    except (BlockingIOError, TimeoutError):
        pass
    finally:
        connection.socket.settimeout(3)


def rapid_reset(flood):
    def act(connection):
        data = b""
        for _ in range(200):
            stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
            data += frame(HEADERS, END_HEADERS, stream, wire.headers(calls.SERVICE + "ServerInfo", flood.metadata)) + frame(RST, 0, stream, b"\0\0\0\x08")
        connection.send(data)
        drain(connection)
    flood.again(act)


def reset_after_call(flood):
    """Calls begin their work, and are reset."""
    def act(connection):
        data = b""
        for _ in range(50):
            stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
            data += frame(HEADERS, END_HEADERS, stream, wire.headers(calls.SERVICE + "ListJobs", flood.metadata))
            data += frame(DATA, END_STREAM, stream, b"\0\0\0\0\0") + frame(RST, 0, stream, b"\0\0\0\x08")
        connection.send(data)
        drain(connection)
    flood.again(act)


def repeated(data):
    def run(flood):
        def act(connection):
            connection.send(data)
            drain(connection)
        flood.again(act)
    return run


def continuation_flood(flood):
    def act(connection):
        stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
        connection.send(frame(HEADERS, 0, stream, wire.literal(":method", "POST")))
        for i in range(2000):
            connection.send(frame(CONTINUATION, 0, stream, wire.literal(f"x-{i}", "a" * 1000)))
        drain(connection)
    flood.again(act)


def metadata_bomb(flood):
    def act(connection):
        stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
        block = wire.headers(calls.SERVICE + "ServerInfo", [*flood.metadata, *((f"x-{i}", "b" * 3000) for i in range(300))])
        pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
        for index, piece in enumerate(pieces):
            connection.send(frame(HEADERS if index == 0 else CONTINUATION, END_HEADERS if index == len(pieces) - 1 else 0, stream, piece))
        connection.send(frame(DATA, END_STREAM, stream, b"\0\0\0\0\0"))
        drain(connection)
    flood.again(act)


def table_bomb(flood):
    """A small header refers to a large one in the table, many times."""
    def act(connection):
        stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
        name, value = b"x-bomb", b"c" * 3900
        block = wire.headers(calls.SERVICE + "ServerInfo", flood.metadata)
        block += b"\x40" + bytes((len(name),)) + name + b"\x7f" + bytes(((len(value) - 127) & 127 | 128, (len(value) - 127) >> 7)) + value
        connection.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block + b"\xbe" * 10_000))
        drain(connection)
    flood.again(act)


def many_connections(flood):
    held = []
    while flood.goes_on() and len(held) < 3000:
        try:
            held.append(flood.connect())
        except (OSError, wire.Refused):
            time.sleep(0.01)
    flood.hold(held)


def silent_connections(flood):
    """Connections stay silent; some begin a message."""
    held = []
    for index in range(600):
        try:
            connection = flood.connect(preface=False)
            connection.send(wire.PREFACE[:index % len(wire.PREFACE)])
            held.append(connection)
        except (OSError, wire.Refused):
            pass
    flood.hold(held)


def connect_and_leave(flood):
    while flood.goes_on():
        try:
            flood.connect(preface=False).close()
        except (OSError, wire.Refused):
            pass


def half_calls(flood):
    """Headers without an end of the stream: calls that never begin."""
    held = []
    for _ in range(30):
        try:
            connection = flood.connect()
            for _ in range(200):
                stream = connection.open(calls.SERVICE + "PutModule", flood.metadata)
                connection.send(frame(DATA, 0, stream, b"\0\0\0\x10\0" + b"x" * 100))
            held.append(connection)
        except (OSError, wire.Refused):
            pass
    flood.hold(held)


def slow_writer(flood):
    """Uploads byte by byte, in many streams."""
    held = []
    try:
        for _ in range(8):
            connection = flood.connect()
            held.append((connection, [connection.open(calls.SERVICE + "PutModule", flood.metadata) for _ in range(50)]))
        while flood.goes_on():
            for connection, streams in held:
                for stream in streams:
                    connection.send(frame(DATA, 0, stream, b"\0"))
            time.sleep(0.02)
    except (OSError, wire.Refused):
        pass
    flood.hold([connection for connection, _ in held])


def slow_reader(flood):
    """Requests large answers and reads none: no window, no reading."""
    api = calls.Api(flood.address, flood.metadata)
    identifier = wire.first(wire.first(api.call("CreateBuffer", encode(f2=32 << 20)).reply, 1), 1)
    held = []
    for _ in range(10):
        try:
            connection = flood.connect(settings=((1, 0), (4, 0)))
            for _ in range(50):
                stream = connection.open(calls.SERVICE + "ReadBuffer", flood.metadata)
                connection.write(stream, encode(f2=identifier), True)
            held.append(connection)
        except (OSError, wire.Refused):
            pass
    flood.hold(held)
    api.call("DeleteBuffer", encode(f2=identifier))


def no_window_but_full_socket(flood):
    """Grants a large window, and does not read the socket."""
    api = calls.Api(flood.address, flood.metadata)
    identifier = wire.first(wire.first(api.call("CreateBuffer", encode(f2=32 << 20)).reply, 1), 1)
    held = []
    for _ in range(5):
        try:
            connection = flood.connect()
            for _ in range(20):
                connection.write(connection.open(calls.SERVICE + "ReadBuffer", flood.metadata), encode(f2=identifier), True)
            held.append(connection)
        except (OSError, wire.Refused):
            pass
    flood.hold(held)
    api.call("DeleteBuffer", encode(f2=identifier))


def giant_message(flood):
    def act(connection):
        stream = connection.open(calls.SERVICE + "Run", flood.metadata)
        connection.send(frame(DATA, 0, stream, b"\0\xff\xff\xff\xff" + b"x" * 10_000))
        connection.finish(stream, time.monotonic() + 3)
    flood.again(act)


def message_beyond_the_limit(flood):
    def act(connection):
        connection.call(calls.SERVICE + "Run", bytes(6 << 20), metadata=flood.metadata, timeout=3)
    flood.again(act)


def compressed_bomb(flood):
    packed = gzip.compress(bytes(64 << 20), 9)

    def act(connection):
        stream = connection.open(calls.SERVICE + "PutModule", [*flood.metadata, ("grpc-encoding", "gzip")])
        data = b"\1" + struct.pack(">I", len(packed)) + packed
        for at in range(0, len(data), 16000):
            connection.send(frame(DATA, 0, stream, data[at:at + 16000]))
        connection.finish(stream, time.monotonic() + 3)
    flood.again(act)


def garbage(flood):
    chunk = bytes(range(256)) * 64
    while flood.goes_on():
        try:
            with flood.connect(preface=False) as connection:
                connection.send(wire.PREFACE + chunk)
                connection.send(chunk)
        except (OSError, wire.Refused):
            pass


def call_flood(flood):
    """Makes as many valid calls as possible."""
    def act(connection):
        for stream in [connection.open(calls.SERVICE + "ServerInfo", flood.metadata) for _ in range(50)]:
            connection.write(stream, b"", True)
        for _ in range(50):
            connection.receive(time.monotonic() + 3)
        drain(connection)
    flood.again(act)


def ticket_flood(flood):
    """Floods the socket for tickets beside the daemon's own, where it exists."""
    held = []
    while flood.goes_on():
        try:
            if not flood.address.startswith("unix:"):
                break
            plain = socket.socket(socket.AF_UNIX)
            plain.settimeout(1)
            plain.connect(flood.address[5:] + ".auth")
            held.append(plain)
        except OSError:
            time.sleep(0.02)
    for plain in held:
        plain.close()


def memory_flood(flood):
    """Sends one descriptor, too many, and none to the socket that takes clients' memory."""
    plain = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    plain.settimeout(1)
    descriptor = os.memfd_create("flood")
    turn = 0
    while flood.goes_on() and flood.address.startswith("unix:"):
        try:
            plain.connect(flood.address[5:] + ".memory")
            for _ in range(200):
                turn += 1
                socket.send_fds(plain, [os.urandom(32)], [descriptor] * (turn % 4))
        except OSError:
            time.sleep(0.02)
    os.close(descriptor)
    plain.close()


FLOODS = {
    "rapid reset": rapid_reset, "reset after the call": reset_after_call, "pings": repeated(frame(PING, 0, 0, b"12345678") * 500),
    "settings": repeated(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 500), "empty settings": repeated(frame(SETTINGS, 0, 0) * 500),
    "windows": repeated(frame(WINDOW, 0, 0, b"\0\0\0\1") * 500), "priorities": repeated(frame(2, 0, 1, b"\0\0\0\0\x10") * 500),
    "unknown frames": repeated(frame(99, 255, 7, b"?" * 100) * 200), "continuations": continuation_flood, "metadata": metadata_bomb,
    "the header table": table_bomb, "many connections": many_connections, "silent connections": silent_connections,
    "connect and leave": connect_and_leave, "half calls": half_calls, "slow writers": slow_writer, "slow readers": slow_reader,
    "full sockets": no_window_but_full_socket, "giant messages": giant_message, "messages beyond the limit": message_beyond_the_limit,
    "compressed bombs": compressed_bomb, "garbage": garbage, "good calls": call_flood, "the ticket socket": ticket_flood,
    "the memory socket": memory_flood,
}
BRIEF = ("rapid reset", "pings", "continuations", "metadata", "the header table", "many connections", "silent connections", "half calls",
         "slow readers", "full sockets", "giant messages", "compressed bombs", "garbage")


CORE = ("rapid reset", "pings", "continuations", "slow readers", "garbage")


def attacker(run, address, metadata, seconds):
    run(Flood(address, metadata, seconds))


def prober(address, metadata, ends, answers):
    """Measures another client's calls on an existing connection."""
    api = calls.Api(address, metadata, timeout=5)
    # The flood before this one may have used up the user's connections for five seconds.
    eventually(lambda: api.call("ServerInfo", b"").ok, RECOVERY_SECONDS_MAX, 0.05)
    took, failures, calls_made = [], [], 0
    quiet_end = time.monotonic() + QUIET_SECONDS
    quiet = None
    while not ends.is_set():
        begin = time.monotonic()
        answer = api.call("ServerInfo", b"")
        took.append((time.monotonic() - begin) * 1000)
        calls_made += 1
        if not answer.ok:
            failures.append(f"call {calls_made}{' before the attack' if quiet is None else ''}: {answer!r}")
        if quiet is None and time.monotonic() > quiet_end:
            quiet, took = took, []
            answers.put("ready")
        time.sleep(0.004)
    answers.put((quiet, took, failures))


def flood_once(session, run):
    target, context = session.target, multiprocessing.get_context("fork")
    ends, answers = context.Event(), context.Queue()
    memory = target.resident_bytes()
    watch = context.Process(target=prober, args=(target.other, target.metadata("operator"), ends, answers), daemon=True)
    watch.start()
    answers.get(timeout=30)
    attack = context.Process(target=attacker, args=(run, target.flooded, session.api.metadata, ATTACK_SECONDS), daemon=True)
    attack.start()
    most, end = memory, time.monotonic() + ATTACK_SECONDS
    while time.monotonic() < end and target.is_alive():
        time.sleep(0.1)
        most = max(most, target.resident_bytes())
    ends.set()
    quiet, took, failures = answers.get(timeout=30)
    attack.join(20)
    if attack.is_alive():
        attack.kill()
    watch.join(5)
    begin = time.monotonic()
    recovered = eventually(lambda: target.api("operator", timeout=2).call("ServerInfo", b"").ok, RECOVERY_SECONDS_MAX, 0.05)
    return quiet, took, failures, most - memory, time.monotonic() - begin if recovered else None


def flood_attack(name, run):
    def execute(session):
        for tries in range(TRIES):
            quiet, took, failures, grown, recovery = flood_once(session, run)
            p99, before = percentile(took, 0.99), percentile(quiet, 0.99)
            # On a machine with other load a slow result is measured again; a failure that is not about time counts at once.
            if p99 < PROBE_MS_MAX + before or tries == TRIES - 1:
                break
        session.note(f"{name}: another's calls p99 {p99:.1f} ms of {len(took)} (before it {before:.1f}), memory {grown / (1 << 20):+.0f} MiB, "
                     f"served again after {recovery if recovery is None else round(recovery, 2)} s")
        complaints = [f"{len(failures)} of another's calls failed: {failures[0]}"] if failures else []
        if p99 >= PROBE_MS_MAX + before:
            complaints.append(f"another's calls took {p99:.1f} ms at the 99th percentile, {before:.1f} before")
        if grown > MEMORY_BYTES_MAX:
            complaints.append(f"the daemon's memory grew by {grown >> 20} MiB")
        if recovery is None:
            complaints.append(f"the daemon did not answer {RECOVERY_SECONDS_MAX} s after the attack")
        return complaints
    return execute


for flood_name, flood_run in FLOODS.items():
    ATTACKS.append(Attack(f"flood of {flood_name}", "T26" if "compressed" in flood_name else "T27", flood_attack(flood_name, flood_run), 0, "clients",
                          flood_name in BRIEF, flood_name in CORE))


@attack("T27", group="clients")
def all_floods_together(session):
    """Runs all floods at once and measures the daemon's memory. Calls of others may wait for processors that attackers use."""
    target, context = session.target, multiprocessing.get_context("fork")
    # Memory that earlier attacks needed returns to the machine within a minute (server/process/heap_trim.h).
    eventually(lambda: target.resident_bytes() < SETTLED_BYTES_MAX, 65, 0.5)
    floods = [context.Process(target=attacker, args=(run, target.flooded, session.api.metadata, TOGETHER_SECONDS), daemon=True)
              for run in FLOODS.values()]
    for flood in floods:
        flood.start()
    most, end = target.resident_bytes(), time.monotonic() + TOGETHER_SECONDS
    while time.monotonic() < end and target.is_alive():
        time.sleep(0.05)
        most = max(most, target.resident_bytes())
    for flood in floods:
        flood.join(20)
        if flood.is_alive():
            flood.kill()
    recovered = eventually(lambda: target.api("operator", timeout=2).call("ServerInfo", b"").ok, RECOVERY_SECONDS_MAX + 5, 0.05)
    session.note(f"all floods together: {most >> 20} MiB resident at most")
    complaints = [] if recovered else ["no service after the attacks"]
    if most > RESIDENT_BYTES_MAX:
        complaints.append(f"the daemon had {most >> 20} MiB")
    return complaints
