#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regenerates the seeds of protocol_fuzz and executor_link_fuzz, after a change of proto/internal/executor.proto.

    tests/fuzz/protocol_seeds.py

Needs protoc. The protocol's checks must accept the seeds; otherwise the fuzzers begin with refusals.
"""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"kExecutorProtocolVersion = (\d+)", (ROOT / "proto/internal/protocol.h").read_text(encoding="utf-8")).group(1)
READY = (f'request_id: 1 ready {{ version: {VERSION} devices {{ device {{ id: "cpu:0" kind: KIND_CPU state: STATE_READY '
         'compute_units: 2 } } sandbox_level: 2 }')
PREPARED = ('request_id: 2 prepared { status {} summary { name: "g" outputs { name: "y" type: ELEMENT_TYPE_I32 shape: "n" } '
            'symbols: "n" devices: "cpu:0" math { node: "a" math: "fast" } } '
            'native_nodes { name: "a" devices: "cpu:0" module: "m" } }')
REJECTED = ('request_id: 2 prepared { status {} diagnostics { items { severity: SEVERITY_ERROR place: "/nodes" '
            'message: "There are none." } omitted: 3 } }')
RUN_DONE = ('request_id: 2 run_done { status {} outputs { name: "y" type: 6 shape: 4 bytes: 16 body { bytes: 16 } } '
            'timing { queue_ns: 1 run_ns: 5 } nodes { node: "a" device: "cpu:0" end_ns: 5 math: "exact" } nodes_run: 1 '
            'traffic { moved_bytes: 7 } }')
LOG = ('request_id: 2 run_done { status { code: 10 message: "It trapped." } log { lines { node: "a" instance { x: 3 } '
       'text: "hello" } findings { node: "a" kind: "race" message: "m" instances {} instances { x: 1 } buffer: "y" '
       'place: "k.c:1:2" count: 3 } } }')
SHORT = 'request_id: 2 run_done { status { code: 8 message: "Memory." } short_entry_plus_1: 1 short_bytes: 4096 }'
COSTS = ('request_id: 2 costs { graphs { handle: 1 kernels { kernel: "m/add" device: "cpu:0" instances: 8 measured_ns: 5 '
         'samples: 3 } } transfers { source: "host" target: "cpu:0" bytes_per_second: 9 } more: true }')
USAGE = "usage { device_bytes: 4096 idle_device_bytes: 512 }"
EVENT = "request_id: 2 event { kind: KIND_STARTED }"
ACK = "request_id: 2 grant_ack { entry: 1 epoch: 1 }"
FATAL = 'fatal { status { code: 9 message: "bad" } }'
RUN = ('request_id: 5 run { handle: 1 inputs { name: "x" type: 6 shape: 4 body { bytes: 16 } } outputs { name: "y" inline: true } '
       'symbols { key: "n" value: 4 } options { repeat: 2 rotations { output: "y" input: "x" } until: "y" log: true } }')
PREPARE = (f'request_id: 5 prepare_graph {{ handle: 1 document_bytes: 16 document {{ bytes: 16 }} modules {{ name: "m" '
           f'sha256: "{"a" * 32}" }} }}')


def encoded(text):
    done = subprocess.run(["protoc", f"-I{ROOT}", f"-I{ROOT / 'proto'}", "--encode=hpvm.internal.Envelope",
                           "proto/internal/executor.proto"], input=text.encode(), capture_output=True, check=True)
    return done.stdout


def head(is_from_executor, text, body=0):
    """Returns a seed of protocol_fuzz: the direction, the body's size in 16 bytes, no descriptor, the message."""
    return bytes([int(is_from_executor), body, 0]) + encoded(text)


def frame(text, body=0, request=1, flags=1):
    """Returns an operation of executor_link_fuzz: a frame whose request id becomes that of a request."""
    message = encoded(text)
    return bytes([15, flags, request, body]) + len(message).to_bytes(2, "little") + message


def ring(what, value, more=b""):
    """Returns an operation of executor_link_fuzz on the rings themselves."""
    return bytes([14, what]) + value.to_bytes(3, "little") + more


def ask(what, argument=1):
    return bytes([what, argument])


START, SPARE, READY_FRAME = b"\0", b"\1", frame(READY, request=0)
PROTOCOL = {"ready": head(True, READY), "prepared": head(True, PREPARED), "rejected": head(True, REJECTED),
            "run_done": head(True, RUN_DONE, 1), "run_done_log": head(True, LOG), "run_done_short": head(True, SHORT),
            "costs": head(True, COSTS), "usage": head(True, USAGE), "run": head(False, RUN, 1),
            "prepare_graph": head(False, PREPARE, 1)}
LINK = {"ready": START + READY_FRAME, "spare_ready": SPARE + READY_FRAME, "fatal": START + frame(FATAL, flags=0),
        "prepare": START + READY_FRAME + ask(0) + frame(PREPARED),
        "rejected": START + READY_FRAME + ask(0) + frame(REJECTED),
        "run": START + READY_FRAME + ask(1) + frame(RUN_DONE, 1), "log": START + READY_FRAME + ask(1, 9) + frame(LOG),
        "event": START + READY_FRAME + ask(1, 0x21) + frame(EVENT) + frame(RUN_DONE, 1),
        "costs": START + READY_FRAME + ask(2) + frame(COSTS), "grant": START + READY_FRAME + ask(3) + frame(ACK),
        "reclaim": START + READY_FRAME + ask(4) + frame(USAGE), "early_answer": START + frame(RUN_DONE, 1),
        "usage_unasked": START + READY_FRAME + frame(USAGE, flags=0), "descriptors": START + frame(READY, request=1, flags=5),
        "bad_header": START + frame(READY, request=9, flags=2), "ends": START + READY_FRAME + bytes([1, 1, 5, 1, 10]),
        "closed": START + READY_FRAME + bytes([11, 1, 1, 12, 8]), "killed": START + READY_FRAME + bytes([0, 1, 1, 2, 9]),
        "torn_frame": START + READY_FRAME + bytes([13, 16]) + b"1MPHd" + bytes(11),
        "marked": START + READY_FRAME + ask(1) + frame(RUN_DONE, 1, flags=9), "unmarked": START + frame(READY, request=0, flags=25),
        "ring_bells": START + READY_FRAME + ring(0, 300), "ring_ahead": START + READY_FRAME + ring(1, 0x50000),
        "ring_behind": START + READY_FRAME + ring(2, 0), "ring_taken": START + READY_FRAME + ring(3, 99) + ask(1),
        "ring_full": START + READY_FRAME + ask(1) * 60, "ring_room": START + READY_FRAME + ring(4, 1) + ask(1) * 8 + ring(5, 0),
        "ring_mark": START + READY_FRAME + ring(6, 0) + ask(1), "ring_bytes": START + ring(7, 0, b"\x40\0" + b"1MPH" * 16)}


def main():
    for folder, seeds in (("protocol", PROTOCOL), ("executor_link", LINK)):
        for old in (ROOT / "tests/fuzz" / folder).iterdir():
            old.unlink()
        for name, content in seeds.items():
            (ROOT / "tests/fuzz" / folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
