# SPDX-License-Identifier: Apache-2.0
"""Converts between arrays of Python libraries and tensors: element type, shape, little-endian elements in row-major
order."""

from __future__ import annotations

import sys
from typing import Any, Tuple, Union

import numpy as np

from hpvm import _copies

#: Values of hpvm.v1.ElementType by their names in documents.
ELEMENT_TYPES = {"bool": 1, "i8": 2, "u8": 3, "i16": 4, "u16": 5, "i32": 6, "u32": 7, "i64": 8, "u64": 9, "f16": 10,
                 "bf16": 11, "f32": 12, "f64": 13}
TYPE_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}
_DTYPES = {"bool": "?", "i8": "<i1", "u8": "<u1", "i16": "<i2", "u16": "<u2", "i32": "<i4", "u32": "<u4", "i64": "<i8",
           "u64": "<u8", "f16": "<f2", "f32": "<f4", "f64": "<f8"}
_TYPE_OF_DTYPE = {np.dtype(text): name for name, text in _DTYPES.items()}
_NUMBER_OF_DTYPE = {dtype: ELEMENT_TYPES[name] for dtype, name in _TYPE_OF_DTYPE.items()}
_RANK_MAX = 16

Shape = Tuple[int, ...]


def _bf16() -> "np.dtype[Any]":
    """Returns the dtype of bf16: the dtype of ml_dtypes if the program has imported it, else uint16 with the same
    bits."""
    ml_dtypes = sys.modules.get("ml_dtypes")
    return np.dtype(ml_dtypes.bfloat16 if ml_dtypes is not None else "<u2")


def dtype_of(element_type: Union[int, str]) -> "np.dtype[Any]":
    """Returns the numpy dtype of an element type, which is given by its name in documents or by its number."""
    name = TYPE_NAMES.get(element_type, "") if isinstance(element_type, int) else element_type
    if name == "bf16":
        return _bf16()
    if name not in _DTYPES:
        raise ValueError(f"{element_type!r} is not an element type; element types are {', '.join(ELEMENT_TYPES)}.")
    return np.dtype(_DTYPES[name])


def type_name(what: Any) -> str:
    """Returns the name of an element type in documents. `what` is such a name, or anything that numpy takes for a
    dtype."""
    if isinstance(what, str) and what in ELEMENT_TYPES:
        return what
    try:
        dtype = np.dtype(what)
    except TypeError:
        raise TypeError(f"{what!r} is neither an element type ({', '.join(ELEMENT_TYPES)}) nor a dtype of numpy.") from None
    if dtype.name == "bfloat16":
        return "bf16"
    name = _TYPE_OF_DTYPE.get(dtype.newbyteorder("<"))
    if name is None:
        raise TypeError(f"Elements of dtype {dtype} have no element type of hpvm; element types are {', '.join(ELEMENT_TYPES)}.")
    return name


def _from_torch(tensor: Any) -> "Tuple[np.ndarray[Any, Any], int]":
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()  # The data go through the host, because the server cannot read a device's memory yet.
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    torch = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy(), ELEMENT_TYPES["bf16"]
    return tensor.numpy(), 0


def _from_dlpack(value: Any) -> "np.ndarray[Any, Any]":
    kind, _ = value.__dlpack_device__()
    if int(kind) in (1, 3):  # Host memory, pinned or not.
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):
            pass  # The producer is too old for numpy, or the array is read-only; np.asarray takes most of these.
    if hasattr(value, "get"):  # CuPy.
        return np.asarray(value.get())
    return np.asarray(value)  # JAX and other libraries copy to the host themselves.


def _to_numpy(value: Any) -> "Tuple[np.ndarray[Any, Any], int]":
    module = type(value).__module__.partition(".")[0]
    if module == "torch" and hasattr(value, "detach"):
        return _from_torch(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value), 0
    return np.asarray(value), 0


def as_tensor(value: Any, what: str = "The array") -> "Tuple[np.ndarray[Any, Any], int]":
    """Returns contiguous little-endian elements, and the number of their type.

    The result borrows the caller's memory if the array already has that form, else the elements are copied. Raises
    TypeError, which names `what`, for values that no tensor can hold."""
    number = 0
    array = value
    if type(value) is not np.ndarray:
        try:
            array, number = _to_numpy(value)
        except Exception as error:
            raise TypeError(f"{what} cannot be converted to an array: {error}") from error
    if array.ndim > _RANK_MAX:
        raise TypeError(f"{what} has {array.ndim} dimensions; a tensor has at most {_RANK_MAX}.")
    if number == 0:
        number = _NUMBER_OF_DTYPE.get(array.dtype, 0)
        if number == 0:
            if array.dtype.hasobject or array.dtype.kind in "OUSVMm":
                raise TypeError(f"{what} has elements of dtype {array.dtype}, which no tensor holds; element types are "
                                f"{', '.join(ELEMENT_TYPES)}.")
            try:
                number = ELEMENT_TYPES[type_name(array.dtype)]
            except TypeError as error:
                raise TypeError(f"{what}: {error}") from None
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape)
        _copies.count(array.nbytes)
    return array, number


def view_of(array: "np.ndarray[Any, Any]") -> memoryview:
    """Returns the bytes of a contiguous array without a copy."""
    if array.size == 0:
        return memoryview(b"")
    return array.reshape(-1).view(np.uint8).data


def from_bytes(data: Any, element_type: int, shape: Shape, *, copy: bool = True) -> "np.ndarray[Any, Any]":
    """Returns the array that a message holds; raises ValueError when the sizes do not fit."""
    dtype = dtype_of(element_type)
    array = np.frombuffer(data, dtype=dtype)
    count = 1
    for extent in shape:
        count *= extent
    if array.size != count:
        raise ValueError(f"The server sent {array.nbytes} bytes for {TYPE_NAMES[element_type]}{list(shape)}.")
    array = array.reshape(shape)
    if not copy:
        return array
    _copies.count(array.nbytes)
    return array.copy()


def size_of(element_type: int, shape: Shape) -> int:
    """Returns the size of such a tensor in bytes."""
    size = dtype_of(element_type).itemsize
    for extent in shape:
        size *= extent
    return size
