# SPDX-License-Identifier: Apache-2.0
"""Calls hpvm.v1 as one tenant, over wire.py; field numbers as in proto/hpvm/v1."""

import hashlib
import json
import os
import pathlib
import socket
import time

import wire
from wire import decode, encode, first

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = (HERE / "kernels.wasm").read_bytes()
U8, I32 = 3, 6
HANDLES_MAX = 8
SERVICE, ADMIN, OPERATIONS = "/hpvm.v1.Hpvm/", "/hpvm.v1.Admin/", "/hpvm.v1.Operations/"


def document(entry, ports, scalars=(), instances="n", **leaf):
    """Returns a graph of one leaf; `ports`: (name, access, element type)."""
    inputs = {name: {"type": kind, "shape": ["n"]} for name, access, kind in ports if access != "out"}
    outputs = {f"{name}_out": {"type": kind, "shape": ["n"]} for name, access, kind in ports if access != "in"}
    node = {"ports": [{"name": name, "access": access, "type": kind, "shape": ["n"]} for name, access, kind in ports],
            "scalars": [{"name": name, "type": "i32", "value": value} for name, value in scalars],
            "instances": [instances], "variants": [{"module": "k", "entry": entry}], **leaf}
    edges = [{"from": name, "to": f"node.{name}"} for name, access, _ in ports if access != "out"]
    edges += [{"from": f"node.{name}", "to": f"{name}_out"} for name, access, _ in ports if access != "in"]
    return {"hpvm": 1, "name": "lab", "symbols": ["n"], "inputs": inputs, "outputs": outputs,
            "modules": {"k": {"kind": "wasm", "source": {"file": "kernels.wasm"}}}, "nodes": {"node": node}, "edges": edges}


IN_OUT = (("in", "in", "i32"), ("out", "out", "i32"))
ADD = document("add", IN_OUT, [("amount", 7)])


def ints(*values):
    return b"".join((value & 0xffffffff).to_bytes(4, "little") for value in values)


def tensor(kind, data):
    width = {U8: 1, I32: 4}[kind]
    return encode(f1=kind, f2=len(data) // width, f3=data)

STRIKE = document("strike", (("attack", "in", "u8"), ("report", "out", "u8")))


def strike(api, probe, arguments, timeout=None, deadline_ms=5000):
    """Makes the payload in the tenant's executor perform a probe; returns an Answer with its report in the message."""
    text = "".join(f"{key}={value}\n" for key, value in {"probe": probe, **arguments}.items()).encode()
    text += b"\n" * (-len(text) % 16)
    return api.run(STRIKE, {"attack": tensor(U8, text)}, deadline_ms=deadline_ms, timeout=timeout)


class Api:
    """Api opens a connection of its own when it has none, and again after a failure. For one thread."""

    def __init__(self, address, metadata, timeout=20):
        self.address, self.metadata, self.timeout = address, list(metadata), timeout
        self.connection, self.handles = None, {}

    def close(self):
        """Releases its graphs: a tenant may hold only a limited number."""
        for handle in self.handles.values():
            if self.connection is None:
                break
            self.call_once(SERVICE + "ReleaseGraph", [encode(f2=handle)], 2, ())
        self.handles.clear()
        self.drop()

    def drop(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def call(self, method, *messages, timeout=None, service=SERVICE, metadata=()):
        """Returns an Answer; UNAVAILABLE of ours when the connection failed."""
        for _ in range(100):
            answer = self.call_once(service + method, messages, timeout, metadata)
            # The executor of the previous attack is ending: nothing has been tried yet.
            if "process%20is%20ending" not in answer.message.replace(" ", "%20"):
                break
            time.sleep(0.02)
        return answer

    def call_once(self, method, messages, timeout, metadata):
        try:
            if self.connection is None:
                self.connection = wire.Connection(self.address, self.timeout)
            return self.connection.call(method, *messages, metadata=[*self.metadata, *metadata], timeout=timeout)
        except (OSError, wire.Refused) as error:
            self.drop()
            return wire.Answer("UNAVAILABLE", f"connection: {error}", [])

    def hand_in(self, ticket, *descriptors):
        """Sends a datagram to the socket that takes clients' memory."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plain:
            plain.settimeout(5)
            plain.connect(self.address[5:] + ".memory")
            socket.send_fds(plain, [ticket], list(descriptors))

    def register(self, descriptor, **fields):
        """Calls RegisterBuffer for this memory; returns the Answer."""
        ticket = os.urandom(32)
        self.hand_in(ticket, descriptor)
        return self.call("RegisterBuffer", encode(f2=ticket, **fields))

    def put_module(self, data, kind=0):
        digest = hashlib.sha256(data).hexdigest()
        pieces = [data[at:at + (1 << 20)] for at in range(0, len(data), 1 << 20)] or [b""]
        header = encode(f2=digest, f3=len(data), f4=kind)
        messages = [encode(f1=header, f2=pieces[0])] + [encode(f2=piece) for piece in pieces[1:]]
        return digest, self.call("PutModule", *messages)

    def put_graph(self, text):
        data = text if isinstance(text, bytes) else (text if isinstance(text, str) else json.dumps(text)).encode()
        digest = hashlib.sha256(data).hexdigest()
        pieces = [data[at:at + (1 << 20)] for at in range(0, len(data), 1 << 20)] or [b""]
        messages = [encode(f1=encode(f2=digest, f3=len(data)), f2=pieces[0])] + [encode(f2=piece) for piece in pieces[1:]]
        return digest, self.call("PutGraph", *messages)

    def prepare(self, text, modules=None, timeout=None):
        """Returns an Answer with a handle. `modules`: bytes by name."""
        bindings = []
        for name, data in (modules if modules is not None else {"k": KERNELS}).items():
            digest, answer = self.put_module(data)
            if not answer.ok:
                return answer
            bindings.append(encode(f1=name, f2=digest))
        digest, answer = self.put_graph(text)
        if not answer.ok:
            return answer
        return self.call("PrepareGraph", encode(f2=digest, f3=bindings), timeout=timeout)

    def handle(self, text):
        """Returns the handle of a valid document; prepared once."""
        key = json.dumps(text)
        if key not in self.handles:
            answer = self.prepare(text)
            if not answer.ok:
                return None, answer
            self.handles[key] = first(answer.reply, 1)
        while len(self.handles) > HANDLES_MAX:
            oldest = next(old for old in self.handles if old != key)
            self.release(self.handles.pop(oldest))
        return self.handles[key], None

    def handle_soon(self, text):
        """Returns the handle once the remains of the previous attack are gone: an executor that is ending, an open breaker of a minute."""
        end = time.monotonic() + 75
        handle, refused = self.handle(text)
        while handle is None and time.monotonic() < end:
            time.sleep(0.5)
            handle, refused = self.handle(text)
        return handle, refused

    def release(self, handle):
        return self.call("ReleaseGraph", encode(f2=handle))

    def run(self, text, inputs, deadline_ms=5000, timeout=None, outputs=()):
        """Runs a graph. `inputs`: {name: encoded Tensor}."""
        handle, refused = self.handle(text)
        if handle is None:
            return refused
        bindings = [encode(f1=name, f2=value) for name, value in inputs.items()]
        answer = self.call("Run", encode(f1=encode(f2=deadline_ms * 1_000_000), f2=handle, f3=bindings, f4=list(outputs)),
                           timeout=timeout or deadline_ms / 1000 + 15)
        if answer.code == "NOT_FOUND" or answer.message.startswith("connection"):
            self.handles.clear()
        return answer

    def output(self, answer):
        return first(first(first(answer.reply, 1), 2), 3)

    def submit(self, text, inputs, name="", labels=()):
        handle, refused = self.handle(text)
        if handle is None:
            return refused
        bindings = [encode(f1=key, f2=value) for key, value in inputs.items()]
        options = encode(f4=[encode(f1=key, f2=value) for key, value in labels])
        return self.call("Submit", encode(f1=options, f2=handle, f4=bindings, f8=name))

    def job_id(self, answer):
        return first(first(answer.reply, 1), 1).decode()

    def job(self, identifier):
        return decode(first(self.call("GetJob", encode(f2=identifier)).reply, 1))

    def sandbox(self):
        """Returns (level or None, detail)."""
        found = decode(first(self.call("ListDevices", b"").reply, 2))
        return (found.get(1, [0])[0] if found.get(2, [0])[0] else None), found.get(3, [b""])[0].decode(errors="replace")
