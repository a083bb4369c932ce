# SPDX-License-Identifier: Apache-2.0
"""Buffers on the server, and buffers in memory that this process shares with a server on its own host."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from hpvm import _arrays, _channel, _copies, _wire, errors
from hpvm._channel import Steps
from hpvm._core import Core
from hpvm.v1 import buffer_pb2

_PAGE = 4096
_IDLE_BYTES_MAX = 1 << 30
_IDLE_MAX = 16
_RUNS_MAX = 256


def create(core: Core, element_type: int, shape: Tuple[int, ...], deadline: Optional[float]) -> "Steps[buffer_pb2.Buffer]":
    request = buffer_pb2.CreateBufferRequest(type=element_type, shape=shape)  # type: ignore[arg-type]
    return (yield from core.once("CreateBuffer", request, buffer_pb2.CreateBufferResponse, deadline)).buffer


def write(core: Core, buffer_id: str, data: memoryview, offset: int, deadline: Optional[float]) -> "Steps[buffer_pb2.Buffer]":
    head = buffer_pb2.WriteBufferRequest.Header(buffer_id=buffer_id, offset=offset)
    return (yield from core.upload("WriteBuffer", head, data, buffer_pb2.WriteBufferResponse, deadline)).buffer


def read(core: Core, buffer_id: str, into: memoryview, offset: int, deadline: Optional[float]) -> "Steps[None]":
    """Fills `into`. Elements are copied twice: inside gRPC, and from gRPC's memory into `into`."""
    filled = 0

    def take(message: bytes) -> bool:
        nonlocal filled
        part = _wire.last_bytes(message, 2)
        if len(part) > len(into) - filled:
            return False
        into[filled:filled + len(part)] = part
        _copies.count(len(part))
        filled += len(part)
        return True

    request = buffer_pb2.ReadBufferRequest(buffer_id=buffer_id, offset=offset, size_bytes=len(into))
    if len(into) > 0:
        yield from core.download("ReadBuffer", request, take, deadline)
    if filled != len(into):
        raise errors.DataLossError(f"The server sent {filled} of {len(into)} bytes.")


def delete(core: Core, buffer_id: str, deadline: Optional[float]) -> "Steps[None]":
    yield from core.once("DeleteBuffer", buffer_pb2.DeleteBufferRequest(buffer_id=buffer_id), buffer_pb2.DeleteBufferResponse,
                         deadline)


def publish(core: Core, buffer_id: str, deadline: Optional[float]) -> "Steps[buffer_pb2.Buffer]":
    request = buffer_pb2.PublishBufferRequest(buffer_id=buffer_id)
    return (yield from core.once("PublishBuffer", request, buffer_pb2.PublishBufferResponse, deadline)).buffer


class Memory:
    """A sealed and mapped memfd. A view of it keeps the mapping alive."""

    def __init__(self, size: int) -> None:
        size = max(1, size)
        self.fd = os.memfd_create("hpvm-local", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self.map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self.size = size

    def array(self, count: int) -> "np.ndarray[Any, Any]":
        return np.frombuffer(self.map, np.uint8, count)

    def close_fd(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close_fd()


class Local:
    """A registered buffer in the client's own pool."""

    __slots__ = ("id", "memory")

    def __init__(self, buffer_id: str, memory: Memory) -> None:
        self.id, self.memory = buffer_id, memory


class LocalPool:
    """Registered memory for reuse, because the first write to new memory takes five times as long. Thread-safe."""

    def __init__(self, unix_path: str, is_wanted: bool) -> None:
        self.path = unix_path + ".memory" if unix_path else ""
        #: The reason why the pool is not used; "" while it is in use.
        self.refusal = ("" if is_wanted else "local_memory is False.") if unix_path else (
            "The server is not reached through a Unix socket.")
        self._outputs: Dict[Any, Dict[str, int]] = {}
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Local] = []
        self._forks = _channel.fork_count()

    def _leave_the_parents(self) -> None:
        """Starts anew after a fork, because the parent uses the memory too: both would write their arrays to the same
        place."""
        if self._forks != _channel.fork_count():
            self._begin()

    def take(self, size: int) -> Optional[Local]:
        self._leave_the_parents()
        with self._lock:
            fits = [local for local in self._idle if size <= local.memory.size and local.memory.size // 4 <= size]
            if not fits:
                return None
            best = min(fits, key=lambda local: local.memory.size)
            self._idle.remove(best)
            return best

    def give(self, locals_: List[Local]) -> List[str]:
        """Keeps the buffers for reuse, and returns the ids of those that exceed the pool's limits."""
        gone = []
        self._leave_the_parents()
        with self._lock:
            self._idle.extend(locals_)
            while len(self._idle) > _IDLE_MAX or sum(local.memory.size for local in self._idle) > _IDLE_BYTES_MAX:
                gone.append(self._idle.pop(0).id)
        return gone

    def clear(self) -> List[str]:
        self._leave_the_parents()
        with self._lock:
            ids = [local.id for local in self._idle]
            self._idle.clear()
        return ids

    def knows_outputs(self) -> bool:
        """Returns true if the output sizes of any run are known."""
        return bool(self._outputs)

    def outputs_of(self, run: Any) -> Dict[str, int]:
        """Returns the sizes of the outputs of an earlier run of this kind, by name."""
        return self._outputs.get(run, {})

    def learn(self, run: Any, outputs: Dict[str, int]) -> None:
        with self._lock:
            if len(self._outputs) >= _RUNS_MAX and run not in self._outputs:
                self._outputs.clear()  # One run of each kind learns them again.
            self._outputs[run] = outputs

    def send_descriptor(self, fd: int) -> bytes:
        """Passes a descriptor to the server; returns the ticket by which RegisterBuffer names it."""
        if not self.path:
            raise errors.UnavailableError("The server is not reached through a Unix socket, so that it takes no shared memory.")
        import socket
        ticket = os.urandom(32)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.settimeout(0.5)
                to.connect(self.path)
                socket.send_fds(to, [ticket], [fd])
        except OSError as error:
            self.refusal = f'The server does not take shared memory at "{self.path}" ({error.strerror or error}).'
            raise errors.UnavailableError(self.refusal) from None
        return ticket


def capacity_for(size: int) -> int:
    """Rounds up to whole pages and then to eighths of a power of two, so that similar sizes share memory."""
    pages = max(1, -(-size // _PAGE))
    step = max(1, (1 << (pages.bit_length() - 1)) // 8)
    return -(-pages // step) * step * _PAGE


def register(core: Core, pool: LocalPool, fd: int, element_type: int, shape: Tuple[int, ...],
             deadline: Optional[float]) -> "Steps[buffer_pb2.Buffer]":
    request = buffer_pb2.RegisterBufferRequest(ticket=pool.send_descriptor(fd), type=element_type,  # type: ignore[arg-type]
                                               shape=shape)
    try:
        return (yield from core.once("RegisterBuffer", request, buffer_pb2.RegisterBufferResponse, deadline)).buffer
    except errors.ResourceExhaustedError:
        raise  # A full quota has room again later; the other errors are permanent.
    except errors.HpvmError as error:
        if not isinstance(error, (errors.CancelledError, errors.DeadlineExceededError)):
            pool.refusal = error.message
        raise


def make_local(core: Core, pool: LocalPool, size: int, deadline: Optional[float]) -> "Steps[Local]":
    found = pool.take(size)
    if found is not None:
        return found
    memory = Memory(capacity_for(size))
    buffer = yield from register(core, pool, memory.fd, 0, (), deadline)
    memory.close_fd()  # The mapping suffices, and a process has few descriptors.
    return Local(buffer.id, memory)


def delete_all(core: Core, ids: List[str], deadline: Optional[float]) -> "Steps[None]":
    for buffer_id in ids:
        try:
            yield from delete(core, buffer_id, deadline)
        except errors.HpvmError:
            pass  # The server reclaims them under the tenant's quota in any case.


def empty_of(buffer_type: int, shape: Tuple[int, ...]) -> "np.ndarray[Any, Any]":
    return np.empty(shape, _arrays.dtype_of(buffer_type))
