# SPDX-License-Identifier: Apache-2.0
"""Ids, names and bytes of other tenants, through the calls that every tenant may make."""

import os
import pathlib
import random
import secrets
import time

import calls
import wire
from attack import attack
from wire import decode, encode, first


def absent(identifier):
    """Returns an id of the same form as `identifier` that belongs to no tenant."""
    if identifier.startswith(("job-", "buf-", "graph-", "prep-")) or "-" in identifier:
        head, _, tail = identifier.rpartition("-")
        return head + "-" + "".join(secrets.choice("0123456789abcdef") for _ in tail)
    return "".join(secrets.choice("0123456789abcdef") for _ in identifier)


def binding(identifier):
    return encode(f1="in", f3=encode(f1=identifier, f3=calls.I32, f4=[4]))


def tries(session):
    """Yields (what, method, messages by id, the neighbour's id)."""
    t = session.target
    own, _ = session.api.handle(calls.ADD)
    modules = [encode(f1="k", f2=t.module_sha256)]
    yield "run its graph", "Run", lambda i: [encode(f2=i, f3=[encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(1)))])], t.handle
    yield "submit its graph", "Submit", lambda i: [encode(f2=i, f3=[])], t.handle
    yield "release its graph", "ReleaseGraph", lambda i: [encode(f2=i)], t.handle
    yield "prepare its document", "PrepareGraph", lambda i: [encode(f2=i, f3=modules)], t.graph_sha256
    yield "whether it has a document", "PutGraph", lambda i: [encode(f1=encode(f2=i, f3=t.graph_bytes))], t.graph_sha256
    yield "whether it has a module", "PutModule", lambda i: [encode(f1=encode(f2=i, f3=t.own_module_bytes))], t.own_module_sha256
    yield "run its buffer", "Run", lambda i: [encode(f2=own, f3=[binding(i)])], t.buffer_id
    yield "write into its buffer by a run", "Run", lambda i: [encode(f2=own, f3=[encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(1)))],
                                                                     f4=[encode(f1="out_out", f2=i)])], t.buffer_id
    yield "submit with its buffer", "Submit", lambda i: [encode(f2=own, f4=[binding(i)])], t.buffer_id
    yield "read its buffer", "ReadBuffer", lambda i: [encode(f2=i)], t.buffer_id
    yield "write its buffer", "WriteBuffer", lambda i: [encode(f1=encode(f2=i), f2=b"overwritten")], t.buffer_id
    yield "delete its buffer", "DeleteBuffer", lambda i: [encode(f2=i)], t.buffer_id
    yield "see its job", "GetJob", lambda i: [encode(f2=i)], t.job_id
    yield "watch its job", "WatchJob", lambda i: [encode(f2=i)], t.job_id
    yield "cancel its job", "CancelJob", lambda i: [encode(f2=i)], t.job_id
    yield "repeat its job", "RetryJob", lambda i: [encode(f2=i)], t.job_id
    yield "fetch its output", "FetchOutput", lambda i: [encode(f2=i, f3="out_out")], t.job_id
    yield "fetch an output it does not have", "FetchOutput", lambda i: [encode(f2=i, f3="none")], t.job_id
    yield "export its job", "ExportJob", lambda i: [encode(f2=i)], t.job_id
    yield "export a part of its job", "ExportJob", lambda i: [encode(f2=i, f3=t.graph_sha256)], t.job_id
    yield "delete its module", "DeleteModule", lambda i: [encode(f2=i)], t.own_module_sha256
    yield "come after its job", "Submit", lambda i: [encode(f2=own, f4=[encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(1)))],
                                                          f9=[encode(f1=i)])], t.job_id


@attack("T29")
def ids_of_a_neighbour_are_ids_of_nobody(session):
    """Foreign and absent ids get the same answer, word for word."""
    api, complaints = session.target.api(session.thief), []
    for what, method, messages, identifier in tries(session):
        other = absent(identifier)
        foreign, nobody = api.call(method, *messages(identifier)), api.call(method, *messages(other))
        session.look_for_secret(foreign.message.encode() + b"".join(foreign.replies), what)
        same = (foreign.code, foreign.message.replace(identifier, "ID")) == (nobody.code, nobody.message.replace(other, "ID"))
        if foreign.ok or foreign.code == "UNAVAILABLE" or not same:
            complaints.append(f"{what}: foreign {foreign}, absent {nobody}")
    api.close()
    return complaints


def first_of_watch(session):
    """Returns the first frame of a watch of all jobs, which would never end."""
    connection, deadline = wire.Connection(session.target.address), time.monotonic() + 10
    try:
        stream = connection.open(calls.SERVICE + "WatchJobs", session.api.metadata)
        connection.write(stream, b"", True, deadline)
        while True:
            kind, flags, which, payload = connection.receive(deadline)
            if which == stream and kind == wire.DATA:
                return payload
            if kind != wire.HEADERS:
                connection.keep(kind, flags, which, payload)
    finally:
        connection.close()


@attack("T29")
def lists_hold_only_what_is_ones_own(session):
    complaints = []
    for labels in ([], [encode(f1="secret", f2=session.target.secret)]):
        answer = session.api.call("ListJobs", encode(f2=1000, f4=labels))
        session.look_for_secret(answer.reply, "ListJobs")
        if not answer.ok or session.target.job_id.encode() in answer.reply:
            complaints.append(f"ListJobs: {answer}")
    session.look_for_secret(first_of_watch(session), "WatchJobs")
    tokens = [b"", session.target.job_id.encode(), secrets.token_bytes(40), b"\xff" * 64, b"' OR 1=1 --"]
    for token in tokens[1:]:
        answer = session.api.call("ListJobs", encode(f3=token))
        session.look_for_secret(answer.reply, "ListJobs by page")
        if answer.code not in ("INVALID_ARGUMENT", "INTERNAL", "UNIMPLEMENTED"):
            complaints.append(f"ListJobs with the page {token!r}: {answer}")
        answer = session.api.call("WatchJobs", encode(f2=token), timeout=5)
        if answer.code not in ("INVALID_ARGUMENT", "INTERNAL", "UNIMPLEMENTED"):
            complaints.append(f"WatchJobs with the cursor {token!r}: {answer}")
        for method in ("ListGraphs", "ListBuffers", "ListModules"):
            answer = session.api.call(method, encode(f3=token))
            session.look_for_secret(answer.reply, f"{method} by page")
            if answer.code not in ("INVALID_ARGUMENT", "INTERNAL", "UNIMPLEMENTED"):
                complaints.append(f"{method} with the page {token!r}: {answer}")
    return complaints


@attack("T29")
def ids_that_are_no_ids(session):
    """Paths, quotes, zeros and very long texts, in every place of an id."""
    odd = ["", "/", "../../state/jobs.sqlite", "a" * 100_000, "job-\0", "job-'; DROP TABLE jobs; --", "%s%n%x", "\u202e", "job-" + "f" * 60]
    complaints = []
    for method in ("GetJob", "CancelJob", "RetryJob", "FetchOutput", "ExportJob", "WatchJob", "ReadBuffer", "DeleteBuffer", "ReleaseGraph", "Run", "Submit"):
        for identifier in odd:
            answer = session.api.call(method, encode(f2=identifier))
            if answer.ok and method not in ("ReleaseGraph", "DeleteBuffer") or answer.code in ("UNAVAILABLE", "INTERNAL", "UNKNOWN"):
                complaints.append(f"{method} {identifier[:40]!r}: {answer}")
    return complaints


METHODS = ("ServerInfo ListDevices ListCosts PutModule PutGraph ListModules DeleteModule PrepareGraph ReleaseGraph ListGraphs Run Stream Submit GetJob WatchJob ListJobs CancelJob "
           "SetJobHold RetryJob FetchOutput ExportJob CreateBuffer WriteBuffer ReadBuffer DeleteBuffer ListBuffers RegisterBuffer PublishBuffer RunMany SubmitMany "
           "OpenRing").split()


@attack("T22")
def bytes_that_are_no_message(session):
    chance, complaints = random.Random(7), []
    for method in METHODS:
        for _ in range(40 if session.full else 8):
            data = bytes(chance.randrange(256) for _ in range(chance.randrange(200)))
            answer = session.api.call(method, data, timeout=5)
            if answer.code in ("UNKNOWN",) or "connection" in answer.message:
                complaints.append(f"{method}: {answer}")
    return complaints


INJECTED = ("lab-injected\nI99991231 forged", "\x1b[2J\x1b]0;lab-injected\x07", "lab-injected\r\0", "\u202elab-injected", "%s%n", "lab\udcff")


@attack("T32")
def text_for_the_log_and_the_terminal(session):
    """Names, labels, keys and graph names with control characters are refused, or harmless in every output."""
    complaints = []
    for text in INJECTED:
        data = text.encode("utf-8", "surrogatepass")
        for options in (encode(f4=[encode(f1="k", f2=data)]), encode(f4=[encode(f1=data, f2="v")]), encode(f1=data), encode(f5=data)):
            handle, _ = session.api.handle(calls.ADD)
            session.api.call("Submit", encode(f1=options, f2=handle, f4=[encode(f1="in", f2=calls.tensor(calls.I32, calls.ints(1)))]))
        session.api.submit(calls.ADD, {"in": calls.tensor(calls.I32, calls.ints(1))}, name=data)
        session.api.prepare({**calls.ADD, "name": text} if "\udcff" not in text else b'{"hpvm": 1, "name": "\xff"}')
        session.api.call("GetJob", encode(f2=data), metadata=[("hpvm-tenant", "attacker"), ("x-lab", "lab-injected")])
        session.api.call("Nothing" + text.replace("\n", "%0a").replace("\0", "").replace("\r", "").encode("ascii", "ignore").decode(), b"")
    return complaints + log_is_clean(session)


def log_is_clean(session):
    """No text of an attacker begins a line of the log or moves a cursor."""
    complaints = []
    for line in pathlib.Path(session.target.log).read_bytes().split(b"\n"):
        if b"\x1b" in line or b"\x07" in line or b"\r" in line or b"\0" in line or b"\xe2\x80\xae" in line:
            complaints.append(f"a control character in the log: {line[:200]!r}")
        if line.lstrip().startswith((b"lab-injected", b"I99991231")):
            complaints.append(f"a forged line in the log: {line[:200]!r}")
        if session.secret in line:
            complaints.append(f"the neighbour's secret in the log: {line[:200]!r}")
    return complaints[:3]


@attack("T32")
def an_executor_that_writes_to_the_log(session):
    """An executor writes to standard error, which is the daemon's: lines like the daemon's own, terminal codes, and 20 MB of them."""
    before = os.path.getsize(session.target.log)
    session.strike("log", text="I99991231 23:59:59 lab-injected", bytes=20_000_000)
    session.strike("text_injection")
    session.strike("last_words")
    grown = os.path.getsize(session.target.log) - before
    session.note(f"the log grew by {grown} bytes while an executor wrote 20,000,000")
    complaints = log_is_clean(session)
    if grown > 1_000_000:
        complaints.append(f"the log grew by {grown} bytes")
    return complaints


@attack("T32")
def a_kernel_that_prints(session):
    """The output of a kernel goes to its job, clean and bounded."""
    document = calls.document("shout", calls.IN_OUT)
    handle, refused = session.api.handle_soon(document)
    if handle is None:
        return [f"{refused}"]
    values = calls.tensor(calls.I32, calls.ints(*range(4000)))
    answer = session.api.call("Run", encode(f2=handle, f3=[encode(f1="in", f2=values)], f8=1))
    log = first(answer.reply, 5)
    complaints = [] if answer.ok else [f"{answer}"]
    texts = [first(line, 3) for line in decode(log).get(1, [])]
    if any(b"\x1b" in text or b"\n" in text for text in texts):
        complaints.append(f"a control character in a job's log: {texts[0]!r}")
    if len(texts) > 1000 or sum(map(len, texts)) > 64 * 1024 or not texts:
        complaints.append(f"{len(texts)} lines, {sum(map(len, texts))} bytes")
    return complaints + log_is_clean(session)


@attack("T28")
def other_services_are_not_there(session):
    """Reflection and channelz would show who else is connected."""
    complaints = []
    for service, method in (("/grpc.reflection.v1alpha.ServerReflection/", "ServerReflectionInfo"), ("/grpc.channelz.v1.Channelz/", "GetTopChannels"),
                            ("/grpc.channelz.v1.Channelz/", "GetServers"), ("/grpc.admin.v1.Admin/", "Get"), ("//", ""), ("/hpvm.v1.Hpvm//", "x")):
        answer = session.api.call(method, b"", service=service, timeout=5)
        if answer.code not in ("UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED"):
            complaints.append(f"{service}{method}: {answer}")
    return complaints
