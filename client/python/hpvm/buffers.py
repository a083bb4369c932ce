# SPDX-License-Identifier: Apache-2.0
"""Buffers: data that stays on the server between runs, and memory that is shared with the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple

import numpy as np

from hpvm import _arrays, _memory, errors
from hpvm._channel import Steps
from hpvm._runs import deadline_of
from hpvm.v1 import buffer_pb2, tensor_pb2

if TYPE_CHECKING:
    from hpvm._core import Core


class BufferState:
    """The state that sync and async buffers share: a name on the server, a type and a shape. Its methods return
    steps."""

    def __init__(self, core: "Core", buffer_id: str, element_type: int, shape: Tuple[int, ...], size: int) -> None:
        self._core = core
        #: The buffer's id on the server.
        self.id = buffer_id
        self._type, self._shape, self._size = element_type, shape, size
        self._is_deleted = False

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        return _arrays.dtype_of(self._type) if self._type else np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """Size of the buffer on the server in bytes."""
        return self._size

    def _hpvm_view(self) -> tensor_pb2.BufferView:
        """Returns the view by which a run names the buffer."""
        if self._is_deleted:
            raise errors.FailedPreconditionError(f"The buffer {self.id} has been deleted.")
        view = tensor_pb2.BufferView(buffer_id=self.id)
        if self._type:
            view.type = self._type  # type: ignore[assignment]
            view.shape.extend(self._shape)
        return view

    def _hpvm_written(self, view: tensor_pb2.BufferView) -> None:
        """Records that a run has written the buffer with this type and shape."""
        self._type, self._shape = int(view.type), tuple(view.shape)

    def _write(self, value: Any, offset: int, timeout: Optional[float]) -> "Steps[None]":
        array, _ = _arrays.as_tensor(value, "The data to write")
        yield from _memory.write(self._core, self.id, _arrays.view_of(array), offset, deadline_of(timeout))

    def _read(self, out: Optional["np.ndarray[Any, Any]"], timeout: Optional[float]) -> "Steps[np.ndarray[Any, Any]]":
        shape = self._shape if self._type else (self._size,)
        if out is None:
            out = np.empty(shape, self.dtype)
        elif out.shape != shape or out.dtype != self.dtype or not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError(f"out is {out.dtype}{list(out.shape)}, and the buffer holds {self.dtype}{list(shape)}; out also has "
                             "to be contiguous and writable.")
        yield from _memory.read(self._core, self.id, _arrays.view_of(out), 0, deadline_of(timeout))
        return out

    def _delete(self, timeout: Optional[float]) -> "Steps[None]":
        if not self._is_deleted:
            self._is_deleted = True
            yield from _memory.delete(self._core, self.id, deadline_of(timeout))

    def _viewed(self, shape: Sequence[int], dtype: Any) -> "Tuple[int, Tuple[int, ...]]":
        element_type = _arrays.ELEMENT_TYPES[_arrays.type_name(dtype)] if dtype is not None else self._type
        if not element_type:
            raise ValueError("The buffer holds raw bytes: a view of it needs a dtype.")
        wanted = tuple(int(extent) for extent in shape)
        size = _arrays.size_of(element_type, wanted)
        if size > self._size:
            raise ValueError(f"A view of {_arrays.TYPE_NAMES[element_type]}{list(wanted)} takes {size} bytes, and the buffer has "
                             f"{self._size}.")
        return element_type, wanted

    def __repr__(self) -> str:
        state = ", deleted" if self._is_deleted else ""
        return f"{type(self).__name__}({self.id!r}, {self.dtype}{list(self._shape)}{state})"


class Buffer(BufferState):
    """A buffer on the server. Runs take it as an input (`run(A=buffer)`) or write it (`out={"C": buffer}`).

    It is deleted by `delete`, at the end of a `with` block, and otherwise when the server drops buffers that are long
    unused."""

    def __init__(self, client: Any, core: "Core", buffer_id: str, element_type: int, shape: Tuple[int, ...], size: int) -> None:
        super().__init__(core, buffer_id, element_type, shape, size)
        self._client = client

    def write(self, value: Any, *, offset: int = 0, timeout: Optional[float] = None) -> None:
        """Writes the elements of an array, `offset` bytes from the buffer's beginning."""
        self._client._drive(self._write(value, offset, timeout))

    def read(self, *, out: Optional["np.ndarray[Any, Any]"] = None, timeout: Optional[float] = None) -> "np.ndarray[Any, Any]":
        """Returns the contents, in a new array or in `out`."""
        return self._client._drive(self._read(out, timeout))  # type: ignore[no-any-return]

    def view(self, shape: Sequence[int], dtype: Any = None) -> "Buffer":
        """Returns the same memory from its beginning with another shape, and with another type if `dtype` is given."""
        element_type, wanted = self._viewed(shape, dtype)
        return Buffer(self._client, self._core, self.id, element_type, wanted, self._size)

    def delete(self, *, timeout: Optional[float] = None) -> None:
        """Deletes the buffer. Runs in progress keep what they need."""
        self._client._drive(self._delete(timeout))

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *what: Any) -> None:
        try:
            self.delete()
        except errors.HpvmError:
            if what[0] is None:
                raise


class SharedBuffer(Buffer):
    """A buffer in memory that this process shares with a server on its own host. Runs read and write `array` without a
    copy.

    Nothing prevents a write while a run reads: such a run may see any mixture of old and new contents, and nothing else
    breaks."""

    def __init__(self, client: Any, core: "Core", buffer: buffer_pb2.Buffer, memory: _memory.Memory, element_type: int,
                 shape: Tuple[int, ...]) -> None:
        super().__init__(client, core, buffer.id, element_type, shape, int(buffer.size_bytes))
        self._memory = memory
        #: The memory itself, which stays valid when the buffer is deleted.
        self.array: "np.ndarray[Any, Any]" = memory.array(_arrays.size_of(element_type, shape)).view(self.dtype).reshape(shape)

    def publish(self, *, timeout: Optional[float] = None) -> int:
        """Declares that new contents are complete; returns their generation."""
        return int(self._client._drive(_memory.publish(self._core, self.id, deadline_of(timeout))).generation)
