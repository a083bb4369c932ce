# SPDX-License-Identifier: Apache-2.0
"""The steps of preparing and running graphs."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np

from hpvm import _arrays, _copies, _memory, _wire, errors
from hpvm._channel import Steps, Unary
from hpvm._core import Core, request_options
from hpvm.results import Log, RunResult
from hpvm.v1 import graph_pb2, job_pb2, tensor_pb2

if TYPE_CHECKING:
    from hpvm.prepared import PreparedState

INLINE_BYTES_MAX = 256 << 10
INLINE_TOTAL_BYTES_MAX = 3 << 20
_CLEANUP_SECONDS = 5.0
_RUN = "/hpvm.v1.Hpvm/Run"


class Marker:
    """A constant for `out=`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


#: For `out=`: the output stays on the server, in a new buffer.
NEW_BUFFER = Marker("hpvm.NEW_BUFFER")
#: For `out=`: the output is not wanted.
DISCARD = Marker("hpvm.DISCARD")


class RunOptions:
    """Options of a run besides its inputs; the keyword arguments of `Prepared.run`."""

    __slots__ = ("symbols", "repeat", "rotations", "until", "placements", "log", "out", "timeout", "deadline", "priority",
                 "labels", "traceparent")

    def __init__(self, symbols: Optional[Mapping[str, int]] = None, repeat: int = 1,
                 rotations: Optional[Mapping[str, str]] = None, until: str = "", placements: bool = False, log: bool = False,
                 out: Optional[Mapping[str, Any]] = None, timeout: Optional[float] = None, deadline: Optional[float] = None,
                 priority: int = 0, labels: Optional[Mapping[str, str]] = None, traceparent: str = "") -> None:
        self.symbols, self.repeat, self.rotations, self.until = symbols, repeat, rotations, until
        self.placements, self.log, self.out, self.timeout = placements, log, out, timeout
        self.deadline, self.priority, self.labels, self.traceparent = deadline, priority, labels, traceparent

    def is_plain(self) -> bool:
        """Returns true if the caller asks only for the outputs."""
        return not (self.symbols or self.repeat != 1 or self.rotations or self.until or self.placements or self.log or self.out
                    or self.deadline is not None or self.priority or self.labels or self.traceparent)

    def request(self) -> Any:
        return request_options(deadline=self.deadline, priority=self.priority, labels=self.labels,
                               traceparent=self.traceparent)

    def fill(self, request: Any) -> None:
        """Sets the fields that RunRequest, RunManyRequest and SubmitRequest have in common."""
        request.repeat, request.until = self.repeat, self.until
        for output, source in (self.rotations or {}).items():
            request.rotations.add(output=output, input=source)



def deadline_of(timeout: Optional[float]) -> Optional[float]:
    if timeout is None:
        return None
    if timeout <= 0:
        raise ValueError(f"The timeout is {timeout} s; it has to be more than 0.")
    return time.monotonic() + timeout


class _Work:
    """One run: the client's memory that it borrows, and the buffers that it has made on the server."""

    def __init__(self, core: Core, pool: _memory.LocalPool, deadline: Optional[float],
                 kind: Optional[Callable[[], Any]] = None) -> None:
        self.core, self.pool, self.deadline, self.kind = core, pool, deadline, kind
        self.locals: Dict[str, _memory.Local] = {}
        self.created: List[str] = []
        self.tries_local = not pool.refusal

    def outputs_before(self) -> Dict[str, int]:
        """Returns the sizes of the outputs of an earlier run of this kind, by name."""
        return self.pool.outputs_of(self.kind()) if self.kind is not None and self.pool.knows_outputs() else {}

    def take_local(self, size: int) -> "Steps[Optional[_memory.Local]]":
        if not self.tries_local or self.pool.refusal:
            return None
        try:
            local = yield from _memory.make_local(self.core, self.pool, size, self.deadline)
        except errors.HpvmError as error:
            if isinstance(error, (errors.CancelledError, errors.DeadlineExceededError)):
                raise
            self.tries_local = False
            return None
        self.locals[local.id] = local
        return local

    def bind_large(self, name: str, array: "np.ndarray[Any, Any]", number: int) -> "Steps[tensor_pb2.BufferView]":
        """Makes a buffer with the array's elements: one copy in shared memory, two through gRPC."""
        data = _arrays.view_of(array)
        local = yield from self.take_local(len(data))
        if local is not None:
            np.copyto(local.memory.array(len(data)), np.frombuffer(data, np.uint8))
            _copies.count(len(data))
            return tensor_pb2.BufferView(buffer_id=local.id, type=number, shape=array.shape)  # type: ignore[arg-type]
        buffer = yield from _memory.create(self.core, number, array.shape, self.deadline)
        self.created.append(buffer.id)
        yield from _memory.write(self.core, buffer.id, data, 0, self.deadline)
        return tensor_pb2.BufferView(buffer_id=buffer.id)

    def end(self, is_good: bool) -> "Steps[None]":
        """Returns memory to the pool, except memory that a failed run might still write, which is deleted."""
        gone = self.pool.give(list(self.locals.values())) if is_good else list(self.locals)
        self.locals = {}
        # The cleanup has its own time limit, because it also follows a run whose time is up.
        yield from _memory.delete_all(self.core, gone + self.created, time.monotonic() + _CLEANUP_SECONDS)
        self.created = []


def is_buffer(value: Any) -> bool:
    return hasattr(value, "_hpvm_view")


def _binding(name: str, view: tensor_pb2.BufferView) -> bytes:
    return _wire.field(3, tensor_pb2.InputBinding(name=name, buffer=view).SerializeToString())


def _bind_inputs(work: _Work, inputs: Mapping[str, Any]) -> "Steps[List[_wire.Part]]":
    parts: List[_wire.Part] = []
    total = 0
    for name, value in inputs.items():
        if is_buffer(value):
            parts.append(_binding(name, value._hpvm_view()))
            continue
        array, number = _arrays.as_tensor(value, f"Input {name!r}")
        if array.nbytes <= INLINE_BYTES_MAX and total + array.nbytes <= INLINE_TOTAL_BYTES_MAX:
            total += array.nbytes
            parts += _wire.tensor_binding(name, number, array.shape, _arrays.view_of(array))
        else:
            parts.append(_binding(name, (yield from work.bind_large(name, array, number))))
    return parts


def _bind_outputs(work: _Work, out: Mapping[str, Any], request: job_pb2.RunRequest) -> "Steps[None]":
    for name, value in out.items():
        if value is NEW_BUFFER:
            request.outputs.add(name=name, new_buffer=True)
        elif value is DISCARD:
            request.outputs.add(name=name, discard=True)
        elif is_buffer(value):
            request.outputs.add(name=name, buffer_id=value.id)
        elif not isinstance(value, np.ndarray):
            raise TypeError(f"out[{name!r}] is a {type(value).__name__}; it has to be an array of numpy, a Buffer, "
                            "hpvm.NEW_BUFFER or hpvm.DISCARD.")
    for name, size in work.outputs_before().items():
        if name not in out or isinstance(out[name], np.ndarray):
            local = yield from work.take_local(size)
            if local is not None:
                request.outputs.add(name=name, buffer_id=local.id)


def _fill(array: "np.ndarray[Any, Any]", value: "np.ndarray[Any, Any]", name: str) -> "np.ndarray[Any, Any]":
    if array.shape != value.shape or array.dtype != value.dtype:
        raise ValueError(f"out[{name!r}] is {array.dtype}{list(array.shape)}, and the output is "
                         f"{value.dtype}{list(value.shape)}.")
    np.copyto(array, value)
    _copies.count(array.nbytes)
    return array


def _target(out: Any, view: tensor_pb2.BufferView, name: str) -> "np.ndarray[Any, Any]":
    """Returns the array for an output: the caller's own array if one is given, else a new one."""
    shape = tuple(view.shape)
    if isinstance(out, np.ndarray):
        if out.shape == shape and out.dtype == _arrays.dtype_of(view.type) and out.flags.c_contiguous and out.flags.writeable:
            return out
        raise ValueError(f"out[{name!r}] is {out.dtype}{list(out.shape)}, and the output is "
                         f"{_arrays.TYPE_NAMES[view.type]}{list(shape)}; it also has to be contiguous and writable.")
    return _memory.empty_of(view.type, shape)


def _take_output(work: _Work, value: tensor_pb2.OutputValue, out: Any, client: Any) -> "Steps[Any]":
    if value.HasField("tensor"):
        tensor = value.tensor
        is_wanted_elsewhere = isinstance(out, np.ndarray)
        array = _arrays.from_bytes(tensor.data, tensor.type, tuple(tensor.shape), copy=not is_wanted_elsewhere)
        return _fill(out, array, value.name) if is_wanted_elsewhere else array
    view = value.buffer
    if is_buffer(out):
        out._hpvm_written(view)
        return out
    if out is NEW_BUFFER:
        return client._buffer_of(view)
    local = work.locals.get(view.buffer_id)
    if local is None:
        work.created.append(view.buffer_id)
    array = _target(out, view, value.name)
    data = _arrays.view_of(array)
    if local is not None:
        if len(data) > local.memory.size:
            raise errors.InternalError(f"The server says that {len(data)} bytes are in a buffer of {local.memory.size}.")
        np.copyto(np.frombuffer(data, np.uint8), local.memory.array(len(data)))
        _copies.count(len(data))
    else:
        yield from _memory.read(work.core, view.buffer_id, data, 0, work.deadline)
    return array


def _kind_of(handle: str, inputs: Mapping[str, Any], symbols: Optional[Mapping[str, int]]) -> Any:
    """Returns the kind of a run. Runs of one kind have outputs of the same sizes, unless data decides."""
    shapes = tuple([(name, getattr(value, "shape", None), getattr(value, "dtype", None)) for name, value in inputs.items()])
    return handle, shapes, tuple(sorted(symbols.items())) if symbols else ()


def _send(work: _Work, state: "PreparedState", handle: str, inputs: Mapping[str, Any],
          options: RunOptions) -> "Steps[job_pb2.RunResponse]":
    if options.is_plain() and not work.outputs_before():
        head = state.plain_request(handle)
    else:
        request = job_pb2.RunRequest(handle=handle, options=options.request(), symbols=options.symbols or {},
                                     placements_max=10_000 if options.placements else 0, log=options.log)
        options.fill(request)
        yield from _bind_outputs(work, options.out or {}, request)
        head = request.SerializeToString()
    data = _wire.join([head, *(yield from _bind_inputs(work, inputs))])
    return job_pb2.RunResponse.FromString((yield from work.core.attempt(
        lambda metadata: Unary(_RUN, data, work.deadline, metadata))))


def _run_once(core: Core, client: Any, state: "PreparedState", handle: str, inputs: Mapping[str, Any],
              options: RunOptions, deadline: Optional[float]) -> "Steps[RunResult]":
    work = _Work(core, client._pool, deadline, lambda: _kind_of(handle, inputs, options.symbols))
    is_good = False
    try:
        response = yield from _send(work, state, handle, inputs, options)
        log = Log.of(response.log) if options.log else None
        failure = errors.from_status(response.error)
        if failure is not None:
            failure.log = log
            work.created += [value.buffer.buffer_id for value in response.outputs if value.HasField("buffer")]
            raise failure
        is_good = True
        outputs: Dict[str, Any] = {}
        sizes: Dict[str, int] = {}
        for value in response.outputs:
            wanted = (options.out or {}).get(value.name)
            outputs[value.name] = yield from _take_output(work, value, wanted, client)
            if value.HasField("buffer") and isinstance(outputs[value.name], np.ndarray):
                sizes[value.name] = outputs[value.name].nbytes
        if work.tries_local and (sizes or work.outputs_before()):
            work.pool.learn(_kind_of(handle, inputs, options.symbols), sizes)
        return RunResult(outputs, response, log)
    finally:
        if work.locals or work.created:
            yield from work.end(is_good)


def run(core: Core, client: Any, state: "PreparedState", inputs: Mapping[str, Any], options: RunOptions) -> "Steps[RunResult]":
    """Runs the graph once. A handle that ended with the server's process is prepared again, once."""
    deadline = deadline_of(options.timeout)
    handle = state.handle_or_raise()
    try:
        return (yield from _run_with_fallback(core, client, state, handle, inputs, options, deadline))
    except errors.NotFoundError:
        if not (yield from prepare_again(core, state, handle, deadline)):
            raise
    result = yield from _run_with_fallback(core, client, state, state.handle_or_raise(), inputs, options, deadline)
    result.prepared_again = True
    return result


def _run_with_fallback(core: Core, client: Any, state: "PreparedState", handle: str, inputs: Mapping[str, Any],
                       options: RunOptions, deadline: Optional[float]) -> "Steps[RunResult]":
    """Runs again without shared memory if the server has dropped a buffer or an output is larger than last time."""
    pool = client._pool
    try:
        return (yield from _run_once(core, client, state, handle, inputs, options, deadline))
    except (errors.NotFoundError, errors.InvalidArgumentError) as failure:
        kind = _kind_of(handle, inputs, options.symbols)
        had_local = bool(pool.outputs_of(kind))
        if pool.refusal or not (had_local or _may_be_pooled(failure)):
            raise
        if isinstance(failure, errors.NotFoundError):
            pool.clear()  # Another daemon answers, or the daemon has dropped buffers that were long unused.
    pool.learn(kind, {})
    return (yield from _run_once(core, client, state, handle, inputs, options, deadline))


def _may_be_pooled(failure: errors.HpvmError) -> bool:
    return isinstance(failure, errors.NotFoundError) and "buffer" in failure.message


# --- Preparing ---

def prepare(core: Core, document: str, modules: Mapping[str, bytes], hashes: Mapping[str, str], check: bool,
            deadline: Optional[float]) -> "Steps[Tuple[graph_pb2.PrepareGraphResponse, int]]":
    """Returns the answer, and the time at which the server began."""
    for is_last in (False, True):
        reference = yield from core.put_graph(document, modules, hashes, deadline)
        request = graph_pb2.PrepareGraphRequest(options=request_options(), graph_sha256=reference.graph_sha256,
                                                modules=reference.modules, check=check)
        try:
            response = yield from core.once("PrepareGraph", request, graph_pb2.PrepareGraphResponse, deadline)
            break
        except errors.NotFoundError:
            if is_last:  # After a restart the server receives everything again.
                raise
    info = yield from core.server_info(deadline)
    return response, info.started_unix_ns


def prepare_again(core: Core, state: "PreparedState", handle: str, deadline: Optional[float]) -> "Steps[bool]":
    """Returns true if another handle exists now, because the server's process is another one."""
    if state.handle != handle and not state.is_released:
        return True  # Another thread has prepared the graph.
    info = yield from core.server_info(deadline)
    if state.is_released or info.started_unix_ns == state.server_started:
        return False
    response, started = yield from prepare(core, state.document, state.modules, state.hashes, state.check, deadline)
    if state.handle != handle:
        yield from release(core, response.handle, deadline)
        return True
    state.handle, state.server_started = response.handle, started
    warnings.warn("The server was restarted since the graph was prepared; it has been prepared again.",
                  errors.PreparedAgainWarning, stacklevel=2)
    return True


def release(core: Core, handle: str, deadline: Optional[float]) -> "Steps[None]":
    yield from core.once("ReleaseGraph", graph_pb2.ReleaseGraphRequest(handle=handle), graph_pb2.ReleaseGraphResponse, deadline)


# --- Many ---

def _item(inputs: Mapping[str, Any], symbols: Optional[Mapping[str, int]], index: int) -> "Tuple[Any, int]":
    from hpvm.v1 import many_pb2
    item = many_pb2.RunManyRequest.Item(symbols=symbols or {})
    size = 64
    for name, value in inputs.items():
        if is_buffer(value):
            item.inputs.add(name=name, buffer=value._hpvm_view())
            continue
        array, number = _arrays.as_tensor(value, f"Input {name!r} of run {index}")
        if array.nbytes > INLINE_BYTES_MAX:
            raise ValueError(f"Input {name!r} of run {index} has {array.nbytes} bytes; run_many takes arrays of up to "
                             f"{INLINE_BYTES_MAX} bytes, and buffers of any size.")
        tensor = tensor_pb2.Tensor(type=number, shape=array.shape, data=bytes(_arrays.view_of(array)))  # type: ignore[arg-type]
        item.inputs.add(name=name, tensor=tensor)
        size += array.nbytes + 64
    return item, size


RunOrError = Union[RunResult, errors.HpvmError]


def run_many(core: Core, client: Any, state: "PreparedState", items: List[Mapping[str, Any]],
             options: RunOptions) -> "Steps[List[RunOrError]]":
    """Runs the items one after the other, in as few calls as their sizes allow. Returns each result or error, in
    order."""
    from hpvm.v1 import many_pb2
    deadline = deadline_of(options.timeout)
    count_max = (yield from core.limits(deadline)).runs_per_call_max or 1
    results: List[Optional[RunOrError]] = [None] * len(items)
    at = 0
    while at < len(items):
        request = many_pb2.RunManyRequest(options=options.request(), handle=state.handle_or_raise(), log=options.log,
                                          placements_max=10_000 if options.placements else 0)
        options.fill(request)
        first, total = at, 0
        while at < len(items) and at - first < count_max:
            item, size = _item(items[at], options.symbols, at)
            if total > 0 and total + size > INLINE_TOTAL_BYTES_MAX:
                break
            request.items.append(item)
            total, at = total + size, at + 1

        def take(message: bytes, first: int = first) -> None:
            for result in many_pb2.RunManyResponse.FromString(message).results:
                results[first + result.index] = result.run  # type: ignore[call-overload]

        yield from core.download("RunMany", request, take, deadline)
    for index, response in enumerate(results):
        if response is None:
            results[index] = errors.InternalError("The server answered nothing for this run.")
            continue
        results[index] = yield from _of_many(core, client, response, options, deadline)
    return results  # type: ignore[return-value]


def _of_many(core: Core, client: Any, response: Any, options: RunOptions,
             deadline: Optional[float]) -> "Steps[RunOrError]":
    log = Log.of(response.log) if options.log else None
    failure = errors.from_status(response.error)
    if failure is not None:
        failure.log = log
        return failure
    work = _Work(core, client._pool, deadline)
    outputs = {}
    for value in response.outputs:
        outputs[value.name] = yield from _take_output(work, value, None, client)
    yield from work.end(True)
    return RunResult(outputs, response, log)
