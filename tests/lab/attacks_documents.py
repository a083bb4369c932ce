# SPDX-License-Identifier: Apache-2.0
"""Graph documents and bindings that are too deep, too wide, too large or inconsistent. Each is refused, in time."""

import copy
import json
import time

import calls
from attack import attack
from wire import encode, first

SECONDS_MAX = 15  # The limit is for machines with other load; the brief form takes milliseconds.


def refused(session, what, text, good=False):
    begin = time.monotonic()
    answer = session.api.prepare(text, timeout=60)
    if answer.ok:
        session.api.release(first(answer.reply, 1))
    took = time.monotonic() - begin
    complaints = []
    if good is not None and answer.ok != good:
        complaints.append(f"{what}: {answer}")
    if answer.code in ("UNAVAILABLE", "INTERNAL", "UNKNOWN"):
        complaints.append(f"{what} costs more than a refusal: {answer}")
    if took > SECONDS_MAX:
        complaints.append(f"{what}: {took:.1f} s")
    return complaints


def spoil(old, new):
    text = json.dumps(calls.ADD)
    assert old in text, old
    return text.replace(old, new, 1)


DEEP = 100_000
JSON_BOMBS = {
    "depth of arrays": "[" * DEEP,
    "depth, closed": "[" * DEEP + "]" * DEEP,
    "depth of objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "width": "[" + "1," * 1_000_000 + "1]",
    "many keys": "{" + ",".join(f'"k{i}":1' for i in range(200_000)) + "}",
    "the same key twice": '{"hpvm": 1, "hpvm": 1}',
    "the same key, escaped": '{"hpvm": 1, "h\\u0070vm": 1}',
    "a number of many digits": spoil('"value": 7', '"value": ' + "9" * 1_000_000),
    "a number beyond all": spoil('"value": 7', '"value": 1e999999999'),
    "a small number": spoil('"value": 7', '"value": 1e-999999999'),
    "no number": spoil('"value": 7', '"value": NaN'),
    "infinity": spoil('"value": 7', '"value": Infinity'),
    "half a character": spoil('"lab"', '"\\ud800"'),
    "the halves exchanged": spoil('"lab"', '"\\udc00\\ud800"'),
    "bytes that are no text": spoil('"lab"', '"\x7f"').encode() + b"\xff\xfe",
    "text too long for UTF-8": b'{"hpvm": 1, "name": "\xc0\x80\xf8\x88\x80\x80\x80"}',
    "a byte order mark": "\ufeff" + json.dumps(calls.ADD),
    "control characters": spoil('"lab"', '"a\x01b"'),
    "a zero": json.dumps(calls.ADD) + "\0{}",
    "two documents": json.dumps(calls.ADD) * 2,
    "a comment": "/* */" + json.dumps(calls.ADD),
    "a trailing comma": json.dumps(calls.ADD)[:-1] + ",}",
    "nothing": " ",
    "a long text": spoil('"lab"', '"' + "a" * 5_000_000 + '"'),
    "a long name": spoil('"node"', '"' + "n" * 100_000 + '"'),
    "hpvm of another kind": spoil('"hpvm": 1', '"hpvm": true'),
    "UTF-16": json.dumps(calls.ADD).encode("utf-16"),
}
# RFC 8259 allows a reader to ignore it.
JSON_FINE = {"a byte order mark"}


@attack("T23")
def json_bombs(session):
    complaints = []
    for what, text in JSON_BOMBS.items():
        complaints += refused(session, what, text, good=None if what in JSON_FINE else False)
    return complaints


def changed(change):
    document = copy.deepcopy(calls.ADD)
    change(document)
    return document


def nested(levels, replicas):
    """Nests internal nodes with several replicas each: sizes multiply."""
    ports = calls.ADD["nodes"]["node"]["ports"]
    inner = {"nodes": copy.deepcopy(calls.ADD["nodes"]), "edges": [{"from": "in", "to": "node.in"}, {"from": "node.out", "to": "out"}]}
    for _ in range(levels):
        box = {"ports": ports, "nodes": inner["nodes"], "edges": inner["edges"]}
        nodes = {f"c{i}": copy.deepcopy(box) for i in range(replicas)}
        edges = [{"from": "in" if i == 0 else f"c{i - 1}.out", "to": f"c{i}.in"} for i in range(replicas)]
        inner = {"nodes": nodes, "edges": edges + [{"from": f"c{replicas - 1}.out", "to": "out"}]}
    edges = [{"from": e["from"], "to": "out_out" if e["to"] == "out" else e["to"]} for e in inner["edges"]]
    return {**calls.ADD, "nodes": inner["nodes"], "edges": edges}


def self_edge(document):
    document["edges"][0]["from"] = "node.out"


def cycle(document):
    document["nodes"]["other"] = copy.deepcopy(document["nodes"]["node"])
    document["edges"] = [{"from": "node.out", "to": "other.in"}, {"from": "other.out", "to": "node.in"}, {"from": "other.out", "to": "out_out"}]


def dangling(document):
    document["edges"][0]["to"] = "node.none"


def wide(document):
    for i in range(60_000):
        document["edges"].append({"from": "in", "to": f"n{i}.in"})


def rank(document):
    document["inputs"]["in"]["shape"] = ["n"] * 17


def shapes(extent):
    def change(document):
        document["inputs"]["in"]["shape"] = document["outputs"]["out_out"]["shape"] = [extent]
        for port in document["nodes"]["node"]["ports"]:
            port["shape"] = [extent]
    return change


def instances(count):
    def change(document):
        document["nodes"]["node"]["instances"] = [count]
    return change


GRAPH_BOMBS = {
    "a node that reads itself": changed(self_edge), "a cycle": changed(cycle), "an edge to nowhere": changed(dangling),
    "60,000 edges to nowhere": changed(wide), "rank 17": changed(rank), "a negative extent": changed(shapes(-1)),
    "an extent beyond 64 bits": changed(shapes(2 ** 64)), "no such symbol": changed(shapes("nope+1")),
    "an expression without end": changed(shapes("(" * 500 + "n" + ")" * 500)), "instances below nothing": changed(instances(-5)),
    "instances beyond 64 bits": changed(instances(2 ** 70)), "nesting of 40": nested(40, 1),
    "a module that is not there": changed(lambda d: d["nodes"]["node"]["variants"][0].update(module="none")),
    "a kernel that is not there": changed(lambda d: d["nodes"]["node"]["variants"][0].update(entry="none")),
    "a file of the server's": changed(lambda d: d["modules"]["k"]["source"].update(file="/etc/passwd")),
}


@attack("T24")
def graph_bombs(session):
    complaints = []
    for what, document in GRAPH_BOMBS.items():
        # Modules have the names that the document gives them; their paths concern the client only.
        complaints += refused(session, what, document, good=None if what in ("a file of the server's", "an expression without end") else False)
    return complaints


@attack("T24")
def graphs_that_multiply(session):
    """Small documents with very many nodes: they may be prepared within the limits, and are refused at once beyond."""
    complaints = []
    for levels, replicas in ((3, 12), (6, 4)):
        complaints += refused(session, f"{replicas} to the power of {levels}", nested(levels, replicas), good=None)
    huge = nested(1, 1)
    huge["nodes"]["c0"]["instances"] = [10 ** 9]
    return complaints + refused(session, "an internal node 1,000,000,000 times", huge, good=None)


def run_refused(session, what, document, inputs, good=False, deadline_ms=3000):
    answer = session.api.run(document, inputs, deadline_ms=deadline_ms)
    if answer.ok and not good or answer.code in ("UNAVAILABLE", "INTERNAL", "UNKNOWN"):
        return [f"{what}: {answer}"]
    return []


@attack("T25")
def sizes_that_overflow(session):
    """Sizes overflow in the request, and in the document through its symbols."""
    complaints = []
    four = calls.ints(1, 2, 3, 4)
    tensors = {
        "a product of 2^65": encode(f1=6, f2=[2 ** 63, 4], f3=four), "a product of 2^64": encode(f1=6, f2=[2 ** 62, 4], f3=four),
        "too few bytes": encode(f1=6, f2=[5], f3=four), "too many bytes": encode(f1=6, f2=[3], f3=four),
        "rank 17": encode(f1=6, f2=[1] * 16 + [4], f3=four), "rank 100,000": encode(f1=6, f2=[1] * 100_000, f3=four),
        "no type": encode(f1=0, f2=[4], f3=four), "type 99": encode(f1=99, f2=[4], f3=four), "the wrong type": encode(f1=12, f2=[4], f3=four),
        "an extent of 2^64 - 1": encode(f1=6, f2=[2 ** 64 - 1], f3=four),
    }
    for what, value in tensors.items():
        complaints += run_refused(session, what, calls.ADD, {"in": value})
    good = calls.tensor(calls.I32, four)
    complaints += run_refused(session, "an input that is not there", calls.ADD, {"none": good})
    complaints += run_refused(session, "an input twice as large as the graph", calls.ADD, {"in": good, "out": good})
    for extent in ("n*4611686018427387904", "n*n*n*9223372036854775807", "9223372036854775807", "n-5", "4/(n-4)", "4611686018427387904"):
        def grow(document, extent=extent):
            document["outputs"]["out_out"]["shape"] = [extent]
            document["nodes"]["node"]["ports"][1]["shape"] = [extent]
        complaints += run_refused(session, f"an output of {extent}", changed(grow), {"in": good})
    for count in ("n*4611686018427387904", "1099511627776", "9223372036854775807"):
        complaints += run_refused(session, f"{count} instances", changed(instances(count)), {"in": good}, deadline_ms=500)
    return complaints


@attack("T25")
def buffers_that_overflow(session):
    complaints = []
    sizes = {"2^63": encode(f2=2 ** 63), "2^64 - 1": encode(f2=2 ** 64 - 1), "nothing": b"", "a shape of 2^65": encode(f3=6, f4=[2 ** 63, 4]),
             "smaller than its shape": encode(f2=4, f3=6, f4=[2])}
    for what, message in sizes.items():
        answer = session.api.call("CreateBuffer", message)
        if answer.code not in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE"):
            complaints.append(f"a buffer of {what}: {answer}")
    identifier = calls.first(calls.first(session.api.call("CreateBuffer", encode(f2=64)).reply, 1), 1)
    for offset, size in ((65, 1), (2 ** 64 - 1, 2), (0, 65), (1, 2 ** 64 - 1), (2 ** 63, 2 ** 63)):
        answer = session.api.call("ReadBuffer", encode(f2=identifier, f3=offset, f4=size))
        if answer.ok:
            complaints.append(f"read {size} bytes at {offset} of 64: {answer}")
    for offset in (60, 2 ** 64 - 4, 2 ** 63):
        answer = session.api.call("WriteBuffer", encode(f1=encode(f2=identifier, f3=offset), f2=b"12345678"))
        if answer.ok:
            complaints.append(f"wrote 8 bytes at {offset} of 64: {answer}")
    session.api.call("DeleteBuffer", encode(f2=identifier))
    return complaints
