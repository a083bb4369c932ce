# SPDX-License-Identifier: Apache-2.0
"""Modules that tests assemble byte by byte."""

# *(p + *(p + q)) = q / *p: a block with checks and a trap. A function with very many of them is hard to compile.
HARD_STATEMENT = bytes([0x20, 0, 0x20, 0, 0x20, 1, 0x6A, 0x28, 2, 0, 0x6A, 0x20, 1, 0x20, 0, 0x28, 2, 0, 0x6D, 0x36, 2, 0])


def leb(value):
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if value == 0:
            return bytes(out)


def module_of(bodies, start=None):
    """Returns a module whose last function is exported as "f" (two pointers); the others take and return nothing."""
    def section(number, content):
        return bytes([number]) + leb(len(content)) + content

    types = b"\x02\x60\x02\x7f\x7f\x00\x60\x00\x00"
    kinds = b"".join(leb(1) for _ in bodies[:-1]) + b"\x00"
    code = b"".join(leb(len(body) + 2) + b"\x00" + body + b"\x0b" for body in bodies)
    return (b"\0asm\1\0\0\0" + section(1, types) + section(3, leb(len(bodies)) + kinds) + section(5, b"\x01\x00\x01")
            + section(7, b"\x01\x01f\x00" + leb(len(bodies) - 1))
            + (b"" if start is None else section(8, leb(start))) + section(10, leb(len(bodies)) + code))
