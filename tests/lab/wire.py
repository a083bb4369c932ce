# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers and HTTP/2 by hand: an attacker's client sends bytes that no library would send.

encode(f1=..., f2=...) makes a message from its field numbers: int is a varint, bytes and str are length-delimited, a list
repeats. decode(bytes) is {number: [values]}, nested messages as bytes."""

import socket
import ssl
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CODES = ("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
         "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "
         "UNAUTHENTICATED").split()


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(**fields):
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, bool) or isinstance(item, int):
                out += varint(number << 3) + varint(int(item))
            else:
                item = item.encode() if isinstance(item, str) else item
                out += varint(number << 3 | 2) + varint(len(item)) + item
    return out


def _varint_at(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def decode(data):
    found, at = {}, 0
    while at < len(data):
        key, at = _varint_at(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint_at(data, at)
        elif kind == 2:
            size, at = _varint_at(data, at)
            value, at = bytes(data[at:at + size]), at + size
        else:
            size = 8 if kind == 1 else 4
            value, at = bytes(data[at:at + size]), at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def first(data, number, default=b""):
    return decode(data).get(number, [default])[0]


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name, value):
    """Returns a header that uses no table and is added to none."""
    def text(item):
        item = item if isinstance(item, bytes) else item.encode()
        size = len(item)
        if size < 127:
            return bytes((size,)) + item
        out, size = bytearray((127,)), size - 127
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        return bytes(out) + bytes((size,)) + item
    return b"\0" + text(name) + text(value)


def headers(method, metadata=(), authority="lab"):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", authority),
              ("content-type", "application/grpc"), ("te", "trailers"), *metadata]
    return b"".join(literal(name, value) for name, value in fields)


# Names of the static table that answers use; others are not needed here.
STATIC = {8: (":status", "200"), 12: (":status", "400"), 13: (":status", "404"), 14: (":status", "500"), 28: ("content-length", ""),
          31: ("content-type", "")}


def _integer(data, at, bits):
    mask = (1 << bits) - 1
    value = data[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift = 0
    while True:
        byte = data[at]
        at += 1
        value += (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def parse_headers(block):
    """Returns the headers of an answer; the dynamic table has been forbidden, and compressed text is skipped."""
    found, at = {}, 0

    def text(at):
        packed = block[at] & 128
        size, at = _integer(block, at, 7)
        return ("" if packed else block[at:at + size].decode(errors="replace")), at + size

    while at < len(block):
        byte = block[at]
        if byte & 128:
            index, at = _integer(block, at, 7)
            name, value = STATIC.get(index, ("", ""))
        elif byte & 0xe0 == 0x20:
            _, at = _integer(block, at, 5)
            continue
        else:
            index, at = _integer(block, at, 6 if byte & 64 else 4)
            name = STATIC.get(index, ("", ""))[0]
            if index == 0:
                name, at = text(at)
            value, at = text(at)
        found[name] = value
    return found


class Refused(Exception):
    """The connection ended, or nothing came in time."""


class Answer:
    def __init__(self, code, message, replies):
        self.code, self.message, self.replies = code, message, replies

    @property
    def ok(self):
        return self.code == "OK"

    @property
    def reply(self):
        return self.replies[0] if self.replies else b""

    def __repr__(self):
        return f"{self.code} {self.message[:300]}"


def any_certificate():
    """Returns a TLS context without a client certificate that accepts any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class Connection:
    """Connection is one HTTP/2 connection, for one thread. It checks nothing that an attacker would not care about."""

    def __init__(self, address, timeout=10, settings=((1, 0), (4, 2 ** 31 - 1)), tls=None, preface=True):
        self.timeout = timeout
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address[5:])
        else:
            if address.startswith("tls:"):
                address, tls = address[4:], any_certificate()
            address, _, source = address.partition("@")  # The client's own address.
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout, (source, 0) if source else None)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.next_stream, self.buffer = 1, b""
        self.window, self.windows, self.window_initial = 65535, {}, 65535
        if preface:
            body = b"".join(struct.pack(">HI", key, value) for key, value in settings)
            self.send(PREFACE + frame(SETTINGS, 0, 0, body) + frame(WINDOW, 0, 0, struct.pack(">I", 2 ** 30)))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (OSError, ssl.SSLError) as error:
            raise Refused(str(error)) from error

    def receive(self, deadline):
        """Returns the next frame: (kind, flags, stream, payload)."""
        while True:
            if len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) >= 9 + size:
                    kind, flags = self.buffer[3], self.buffer[4]
                    stream = int.from_bytes(self.buffer[5:9], "big") & 0x7fffffff
                    payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
                    return kind, flags, stream, payload
            left = deadline - time.monotonic()
            if left <= 0:
                raise Refused("nothing came in time")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 18)  # Over TLS: a record.
            except OSError as error:
                raise Refused(str(error)) from error
            if not data:
                raise Refused("the server closed the connection")
            self.buffer += data

    def keep(self, kind, flags, stream, payload):
        """Handles the parts of a frame that concern the connection itself."""
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == 4:
                    for open_stream in self.windows:
                        self.windows[open_stream] += value - self.window_initial
                    self.window_initial = value
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW:
            add = int.from_bytes(payload, "big")
            if stream:
                self.windows[stream] = self.windows.get(stream, self.window_initial) + add
            else:
                self.window += add
        elif kind == GOAWAY:
            raise Refused("GOAWAY " + payload[8:].decode(errors="replace"))

    def open(self, method, metadata=()):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.windows[stream] = self.window_initial
        self.send(frame(HEADERS, END_HEADERS, stream, headers(method, metadata)))
        return stream

    def write(self, stream, message, end=False, deadline=None):
        """Sends one gRPC message, as the windows allow."""
        deadline = deadline or time.monotonic() + self.timeout
        data, at = b"\0" + struct.pack(">I", len(message)) + message, 0
        while at < len(data):
            size = min(len(data) - at, 16384, self.window, self.windows.get(stream, 0))
            if size <= 0:
                if stream not in self.windows:
                    return False
                answer = self.receive(deadline)
                self.keep(*answer)
                if answer[2] == stream and answer[0] in (RST, HEADERS):
                    self.early = answer
                    return False
                continue
            at += size
            self.window -= size
            self.windows[stream] -= size
            self.send(frame(DATA, END_STREAM if end and at == len(data) else 0, stream, data[at - size:at]))
        return True

    early = None

    def finish(self, stream, deadline):
        """Reads everything that comes for `stream`, to its end."""
        replies, data, found = [], b"", {}
        while True:
            kind, flags, which, payload = self.early or self.receive(deadline)
            self.early = None
            if which != stream or kind == WINDOW:
                self.keep(kind, flags, which, payload)
                continue
            if kind == RST:
                found.setdefault("grpc-status", "1")
                flags |= END_STREAM
            elif kind == DATA:
                data += payload
                self.send(frame(WINDOW, 0, 0, struct.pack(">I", max(1, len(payload)))))
            elif kind == HEADERS:
                while not flags & END_HEADERS:
                    _, more, _, rest = self.receive(deadline)
                    payload += rest
                    flags |= more
                found.update(parse_headers(payload))
            while len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[1:5], "big"):
                size = int.from_bytes(data[1:5], "big")
                replies.append(data[5:5 + size])
                data = data[5 + size:]
            if flags & END_STREAM:
                self.windows.pop(stream, None)
                status = found.get("grpc-status", "2")
                code = CODES[int(status)] if status.isdigit() and int(status) < len(CODES) else status
                return Answer(code, found.get("grpc-message", ""), replies)

    def call(self, method, *messages, metadata=(), timeout=None):
        deadline = time.monotonic() + (timeout or self.timeout)
        stream = self.open(method, metadata)
        for index, message in enumerate(messages):
            if not self.write(stream, message, index == len(messages) - 1, deadline):
                break
        return self.finish(stream, deadline)
