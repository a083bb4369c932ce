# SPDX-License-Identifier: Apache-2.0
"""Modules that are invalid, that cost a compiler much time and memory, or that are no modules. Only the compiler's child is affected."""

import random
import time

import calls
from attack import ATTACKS, Attack, attack
from wire import first

SECONDS_MAX = 60


def leb(value):
    out = bytearray()
    while True:
        byte, value = value & 127, value >> 7
        if value == 0:
            return bytes(out) + bytes((byte,))
        out.append(byte | 128)


def section(number, body):
    return bytes((number,)) + leb(len(body)) + body


def vector(items):
    return leb(len(items)) + b"".join(items)


def module(bodies, locals_of=b"\0", pages=1):
    """Returns a module of functions (i32, i32) -> () named k0..., with memory."""
    types = section(1, vector([b"\x60\2\x7f\x7f\0"]))
    functions = section(3, vector([b"\0"] * len(bodies)))
    memory = section(5, vector([b"\0" + leb(pages)]))
    exports = section(7, vector([bytes((len(f"k{i}"),)) + f"k{i}".encode() + b"\0" + leb(i) for i in range(min(len(bodies), 10))]))
    code = section(10, vector([leb(len(locals_of + body) + 1) + locals_of + body + b"\x0b" for body in bodies]))
    return b"\0asm\1\0\0\0" + types + functions + memory + exports + code


CONST, ADD, DROP, BLOCK, LOOP, END, GET, CALL = b"\x41\1", b"\x6a", b"\x1a", b"\2\x40", b"\3\x40", b"\x0b", b"\x20\0", b"\x10"


def bombs():
    yield "a million additions", module([GET + (GET + ADD) * 1_000_000 + DROP])
    yield "100,000 blocks in each other", module([BLOCK * 100_000 + END * 100_000])
    yield "20,000 loops in each other", module([(LOOP + b"\x20\0\x0d\0") * 20_000 + END * 20_000])
    yield "ever more locals", module([b""], b"\2" + leb(0xfffffff0) + b"\x7f" + leb(0xfffffff0) + b"\x7f")
    yield "50,000 locals", module([b"".join(b"\x20\0\x21" + leb(i + 2) for i in range(0, 50_000, 7))], b"\1" + leb(50_000) + b"\x7f")
    yield "a jump with a million targets", module([BLOCK + GET + b"\x0e" + leb(1_000_000) + b"\0" * 1_000_001 + END])
    yield "100,000 functions", module([b""] * 100_000)
    yield "calls that double, 30 deep", module([CALL_TWICE(i) for i in range(30)] + [b""])
    yield "memory of 4 GiB", module([b""], pages=65536)
    yield "more memory than there can be", module([b""], pages=0xffffffff)
    yield "a stack of a million values", module([CONST * 1_000_000 + DROP * 1_000_000])
    yield "a section beyond the end", b"\0asm\1\0\0\0" + b"\1" + leb(0xffffffff)
    yield "a count beyond the end", b"\0asm\1\0\0\0" + section(1, leb(0xffffffff))
    yield "an endless number", b"\0asm\1\0\0\0\1" + b"\xff" * 1000
    yield "no more than a head", b"\0asm\1\0\0\0"
    yield "another version", b"\0asm\2\0\0\0"
    yield "an ELF program", open("/bin/true", "rb").read()[:100_000]
    yield "zeros", b"\0" * 1_000_000


# Modules that reach the compiler's time limit.
LONG = ("calls that double, 30 deep", "a million additions")


def CALL_TWICE(index):
    return (b"\x20\0\x20\1" + CALL + leb(index + 1)) * 2


def attempt(session, what, data, entry="k0"):
    begin = time.monotonic()
    answer = session.api.prepare(calls.document(entry, calls.IN_OUT), {"k": data}, timeout=SECONDS_MAX)
    if answer.ok:  # A module may be valid: then it is run, and must not crash anything.
        handle = first(answer.reply, 1)
        values = calls.tensor(calls.I32, calls.ints(1, 2, 3, 4))
        session.api.call("Run", calls.encode(f1=calls.encode(f2=500_000_000), f2=handle, f3=[calls.encode(f1="in", f2=values)]))
        session.api.release(handle)
    took = time.monotonic() - begin
    if answer.code in ("INTERNAL", "UNKNOWN") or answer.message.startswith("connection") or took > SECONDS_MAX:
        return [f"{what}: {answer} after {took:.1f} s"]
    return []


@attack("T3")
def compile_bombs(session):
    """Each module is refused, or compiled within the limits; the neighbour compiles and runs meanwhile."""
    complaints, slowest = [], (0.0, "")
    before = session.target.executor_of(session.tenant)
    for what, data in bombs():
        if what in LONG and not session.full:
            continue
        begin = time.monotonic()
        complaints += attempt(session, what, data)
        slowest = max(slowest, (time.monotonic() - begin, what))
    session.note(f"the slowest module: {slowest[1]}, {slowest[0]:.1f} s")
    if session.target.executor_of(session.tenant) != before:
        complaints.append("the executor ended")
    return complaints + session.check_tenant_works()


@attack("T3")
def modules_with_errors(session):
    """Valid modules with bytes changed, cut and repeated."""
    chance, complaints = random.Random(11), []
    for _ in range(2000 if session.full else 40):
        data = bytearray(calls.KERNELS)
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(8, len(data))
            kind = chance.randrange(3)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                del data[at:at + chance.randrange(1, 20)]
            else:
                data[at:at] = data[at:at + chance.randrange(1, 20)]
        complaints += attempt(session, "a changed module", bytes(data), "add")
    return complaints + session.check_tenant_works()


SPIRV_HEAD = b"".join(word.to_bytes(4, "little") for word in (0x07230203, 0x00010000, 0, 1000, 0))
OPENCL = {
    "native code in the source": "kernel void k0(global int* in, global int* out) { __asm__ volatile(\"syscall\"); }",
    "a file of the host's": "#include \"/etc/passwd\"\nkernel void k0(global int* in, global int* out) {}",
    "a file of the host's as data": "kernel void k0(global int* in, global int* out) {\n#embed \"/etc/passwd\"\n}",
    "macros that double": "#define A0 x\n" + "".join(f"#define A{i} A{i - 1} A{i - 1}\n" for i in range(1, 40)) + "int x = A39;",
    "itself, without end": "#include __FILE__\n",
    "brackets without end": "kernel void k0() { int x = " + "(" * 100_000 + "1" + ")" * 100_000 + "; }",
    "a pointer from a number": "kernel void k0(global int* in, global int* out) { out[0] = *(global int*)0x1000; }",
}


@attack("T6")
def sources_and_words_of_other_languages(session):
    """OpenCL C that tries to reach the host, SPIR-V of random words: refused, with any compiler."""
    complaints, chance = [], random.Random(13)
    for what, text in OPENCL.items():
        document = calls.document("k0", calls.IN_OUT)
        document["modules"]["k"] = {"kind": "opencl", "source": {"file": "k.cl"}}
        answer = session.api.prepare(document, {"k": text.encode()}, timeout=SECONDS_MAX)
        session.look_for_secret(answer.message.encode(), what)
        if answer.code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE") or "root:" in answer.message or answer.ok and "file" in what:
            complaints.append(f"{what}: {answer}")
        ran = ""
        if answer.ok:
            handle = first(answer.reply, 1)
            values = calls.tensor(calls.I32, calls.ints(1, 2, 3, 4))
            run = session.api.call("Run", calls.encode(f2=handle, f3=[calls.encode(f1="in", f2=values)]))
            session.api.release(handle)
            ran = f", run: {run.code}"
            if run.ok:
                complaints.append(f"{what}: it ran: {session.api.output(run)!r}")
        session.note(f"OpenCL C, {what}: {answer.code}{ran}")
    for _ in range(200 if session.full else 10):
        document = calls.document("k0", calls.IN_OUT)
        document["modules"]["k"] = {"kind": "spirv", "source": {"file": "k.spv"}}
        answer = session.api.prepare(document, {"k": SPIRV_HEAD + chance.randbytes(4 * chance.randrange(400))}, timeout=SECONDS_MAX)
        if answer.ok or answer.code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE"):
            complaints.append(f"random SPIR-V: {answer}")
    return complaints + session.check_tenant_works()


# The same where drivers compile them: accepted sources run, and must not leave the sandbox.
ATTACKS.append(Attack("sources where drivers are", "T8", sources_and_words_of_other_languages, 0, "sources", True))
