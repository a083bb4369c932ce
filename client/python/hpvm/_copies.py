# SPDX-License-Identifier: Apache-2.0
"""How many bytes of tensors the package has copied, for tests and benchmarks. What gRPC copies is its own."""

from __future__ import annotations

_bytes = 0


def count(size: int) -> None:
    """Not exact where threads copy at once."""
    global _bytes
    _bytes += size


def total() -> int:
    return _bytes
