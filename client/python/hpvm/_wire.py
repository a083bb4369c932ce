# SPDX-License-Identifier: Apache-2.0
"""Encodes the part of the Protocol Buffers wire format that tensors need.

The elements of a tensor are copied once from the array into the message; the message class would copy them three more times.
The generated classes encode everything else.
"""

from __future__ import annotations

import functools
from typing import List, Sequence, Tuple, Union

from hpvm import _copies

Part = Union[bytes, memoryview]


def varint(value: int) -> bytes:
    """Encodes `value` (0 to 2**64 - 1) in base 128, the lowest digits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes) -> bytes:
    """Encodes a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


@functools.lru_cache(maxsize=4096)
def _binding_heads(name: str, element_type: int, shape: Tuple[int, ...], size: int) -> bytes:
    packed = b"".join(map(varint, shape))
    tensor = b"\x08" + varint(element_type) + (b"\x12" + varint(len(packed)) + packed if shape else b"")
    tensor += b"\x1a" + varint(size)
    label = field(1, name.encode())
    tensor_head = b"\x12" + varint(len(tensor) + size)
    return b"\x1a" + varint(len(label) + len(tensor_head) + len(tensor) + size) + label + tensor_head + tensor


def tensor_binding(name: str, element_type: int, shape: Tuple[int, ...], data: memoryview) -> List[Part]:
    """Returns field 3 (`inputs`) of RunRequest: an InputBinding with an inline tensor."""
    _copies.count(data.nbytes)  # `join` copies the data afterwards.
    return [_binding_heads(name, element_type, shape, data.nbytes), data]


def chunk(data: memoryview, head: bytes = b"") -> bytes:
    """Returns a message of an upload: `head` is its field 1, already encoded, and the data are its field 2."""
    _copies.count(data.nbytes)
    return b"".join((head, b"\x12" + varint(data.nbytes), data))


def read_varint(data: memoryview, at: int) -> Tuple[int, int]:
    """Returns a number and the position after it; raises ValueError when there is none."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number in a message is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def last_bytes(message: bytes, wanted: int) -> memoryview:
    """Returns the contents of the last length-delimited field `wanted`, without a copy; empty when there is none."""
    view, at, found = memoryview(message), 0, memoryview(b"")
    while at < len(view):
        key, at = read_varint(view, at)
        wire = key & 7
        if wire == 0:
            _, at = read_varint(view, at)
            continue
        if wire == 2:
            size, at = read_varint(view, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a message has a field of wire type {wire}")
        if at + size > len(view):
            raise ValueError("a field of a message is cut off")
        if wire == 2 and key >> 3 == wanted:
            found = view[at:at + size]
        at += size
    return found


def join(parts: Sequence[Part]) -> bytes:
    return b"".join(parts)
