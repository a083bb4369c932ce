# SPDX-License-Identifier: Apache-2.0
"""Counts the bytes of tensors that the package has copied, for tests and benchmarks. Copies inside gRPC are not
counted."""

from __future__ import annotations

_bytes = 0


def count(size: int) -> None:
    """Adds `size` to the count. The count is not exact when threads copy at the same time."""
    global _bytes
    _bytes += size


def total() -> int:
    return _bytes
