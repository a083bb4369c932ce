# SPDX-License-Identifier: Apache-2.0
"""A client for asyncio: the same calls, awaited.

    async with await hpvm.aio.connect() as client:
        matmul = await client.prepare(graph)
        first, second = await asyncio.gather(matmul.run(A=a, B=b), matmul.run(A=b, B=a))

A task that is cancelled cancels its run on the server."""

from __future__ import annotations

import asyncio
import time
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Generator, Iterable, List, Mapping, Optional, Sequence,
                    Tuple, Union)

import grpc
import numpy as np

from hpvm import _arrays, _holdings, _jobs, _memory, _profiles, _runs, _watch, errors
from hpvm._channel import AsyncChannel
from hpvm._core import Core, Options
from hpvm._credentials import Credentials, make_bearer, parse_endpoint
from hpvm._runs import RunOptions, deadline_of
from hpvm.buffers import BufferState
from hpvm.client import bound_of, documents_of
from hpvm.graph import Graph, Source
from hpvm.jobs import JobFacts, JobState
from hpvm.prepared import Inputs, PreparedState
from hpvm.results import RunResult
from hpvm.v1 import buffer_pb2, graph_pb2, record_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from hpvm.v1 import admin_pb2


class AsyncBuffer(BufferState):
    """Works like hpvm.Buffer."""

    def __init__(self, client: "AsyncClient", core: Core, buffer_id: str, element_type: int, shape: Tuple[int, ...],
                 size: int) -> None:
        super().__init__(core, buffer_id, element_type, shape, size)
        self._client = client

    async def write(self, value: Any, *, offset: int = 0, timeout: Optional[float] = None) -> None:
        await self._client._drive(self._write(value, offset, timeout))

    async def read(self, *, out: "Optional[np.ndarray[Any, Any]]" = None,
                   timeout: Optional[float] = None) -> "np.ndarray[Any, Any]":
        return await self._client._drive(self._read(out, timeout))

    def view(self, shape: Sequence[int], dtype: Any = None) -> "AsyncBuffer":
        element_type, wanted = self._viewed(shape, dtype)
        return AsyncBuffer(self._client, self._core, self.id, element_type, wanted, self._size)

    async def delete(self, *, timeout: Optional[float] = None) -> None:
        await self._client._drive(self._delete(timeout))

    async def __aenter__(self) -> "AsyncBuffer":
        return self

    async def __aexit__(self, *what: Any) -> None:
        await self.delete()


class AsyncPrepared(PreparedState):
    """Works like hpvm.Prepared."""

    def __init__(self, client: "AsyncClient", *facts: Any) -> None:
        super().__init__(*facts)
        self._client = client

    async def run(self, inputs: Optional[Inputs] = None, *, symbols: Optional[Mapping[str, int]] = None, repeat: int = 1,
                  rotations: Optional[Mapping[str, str]] = None, until: str = "", placements: bool = False, log: bool = False,
                  out: Optional[Mapping[str, Any]] = None, timeout: Optional[float] = None, deadline: Optional[float] = None,
                  priority: int = 0, labels: Optional[Mapping[str, str]] = None, traceparent: str = "",
                  **arrays: Any) -> RunResult:
        """Works like hpvm.Prepared.run. Cancelling the task ends the run on the server."""
        options = RunOptions(symbols, repeat, rotations, until, placements, log, out, timeout, deadline, priority, labels,
                             traceparent)
        return await self._client._drive(_runs.run(self._client._core, self._client, self, self.bound(inputs, arrays), options))

    async def run_many(self, items: List[Inputs], *, symbols: Optional[Mapping[str, int]] = None, placements: bool = False,
                       log: bool = False, timeout: Optional[float] = None) -> List[Union[RunResult, errors.HpvmError]]:
        """Works like hpvm.Prepared.run_many."""
        options = RunOptions(symbols, placements=placements, log=log, timeout=timeout)
        return await self._client._drive(_runs.run_many(self._client._core, self._client, self, list(items), options))

    async def release(self, *, timeout: Optional[float] = None) -> None:
        if not self.is_released:
            self.is_released = True
            await self._client._drive(_runs.release(self._client._core, self.handle, deadline_of(timeout)))

    async def __aenter__(self) -> "AsyncPrepared":
        return self

    async def __aexit__(self, *what: Any) -> None:
        await self.release()


class AsyncJob(JobFacts):
    """Works like hpvm.Job: `outputs = await job`."""

    def __init__(self, client: "AsyncClient", message: Any) -> None:
        super().__init__(message)
        self._client = client

    def __await__(self) -> Generator[Any, None, Mapping[str, Any]]:
        return self.result().__await__()

    async def refresh(self, *, timeout: Optional[float] = None) -> "AsyncJob":
        self._message = await self._client._drive(_jobs.get(self._client._core, self.id, deadline_of(timeout)))
        return self

    async def wait(self, timeout: Optional[float] = None) -> "AsyncJob":
        """Waits until the job has ended, in whatever state."""
        if not self.state.has_ended:
            self._message = await self._client._drive(_jobs.wait(self._client._core, self.id, None, deadline_of(timeout)))
        return self

    async def result(self, timeout: Optional[float] = None) -> Mapping[str, Any]:
        """Returns the job's outputs; raises the job's failure."""
        await self.wait(timeout)
        failure = _jobs.failure_of(self._message)
        if failure is not None:
            raise failure
        return await self._client._drive(_jobs.outputs_of(self._client._core, self._message, deadline_of(timeout)))

    async def output(self, name: str, *, timeout: Optional[float] = None) -> Any:
        return await self._client._drive(_jobs.fetch(self._client._core, self.id, name, deadline_of(timeout)))

    async def cancel(self, *, timeout: Optional[float] = None) -> None:
        self._message = await self._client._drive(_jobs.cancel(self._client._core, self.id, deadline_of(timeout)))

    async def hold(self, reason: str = "", *, timeout: Optional[float] = None) -> bool:
        """Works like hpvm.Job.hold."""
        return await self._set_hold(True, reason, timeout)

    async def release(self, *, timeout: Optional[float] = None) -> bool:
        """Works like hpvm.Job.release."""
        return await self._set_hold(False, "", timeout)

    async def _set_hold(self, held: bool, reason: str, timeout: Optional[float]) -> bool:
        response = await self._client._drive(_jobs.set_hold(self._client._core, self.id, held, reason, deadline_of(timeout)))
        self._message = response.job
        return bool(response.changed)


class AsyncClient:
    """A connection to a server, for one event loop. `hpvm.aio.connect` makes it."""

    def __init__(self, place: _profiles.Place, *, patience: float, local_memory: bool,
                 on_unanswered: Optional[Callable[[errors.HpvmError], None]]) -> None:
        endpoint = parse_endpoint(place.server, place.credentials)
        options = Options(endpoint, place.credentials, place.tenant, patience, local_memory, on_unanswered)
        self._core = Core(options, make_bearer(place.credentials, endpoint))
        self._pool = _memory.LocalPool(endpoint.unix_path, local_memory)
        self._channel = AsyncChannel(endpoint, place.credentials)
        self._drive = self._channel.drive
        self._is_open = True
        self.server = place.server

    async def server_info(self, *, timeout: Optional[float] = None) -> service_pb2.ServerInfoResponse:
        return await self._drive(self._core.server_info(deadline_of(timeout)))

    async def devices(self, *, timeout: Optional[float] = None) -> List[record_pb2.Device]:
        return list((await self._drive(self._core.call("ListDevices", service_pb2.ListDevicesRequest(),
                                                       service_pb2.ListDevicesResponse, deadline_of(timeout)))).devices)

    async def usage(self, *, timeout: Optional[float] = None) -> "admin_pb2.GetUsageResponse":
        """Works like hpvm.Client.usage."""
        return await self._drive(_holdings.usage(self._core, "", deadline_of(timeout)))

    async def prepare(self, graph: Union[Graph, str, Mapping[str, Any]], *, modules: Optional[Mapping[str, bytes]] = None,
                      hashes: Optional[Mapping[str, str]] = None, check: bool = False,
                      timeout: Optional[float] = None) -> AsyncPrepared:
        documents = documents_of(graph, modules, hashes)
        response, started = await self._drive(_runs.prepare(self._core, *documents, check, deadline_of(timeout)))
        return AsyncPrepared(self, response, started, *documents, check)

    async def prepared_graphs(self, *, timeout: Optional[float] = None) -> List[graph_pb2.PreparedGraph]:
        return await self._drive(_holdings.prepared_graphs(self._core, deadline_of(timeout)))

    async def release_graph(self, graph: Union[str, graph_pb2.PreparedGraph], *, timeout: Optional[float] = None) -> None:
        await self._drive(_runs.release(self._core, getattr(graph, "handle", graph), deadline_of(timeout)))

    async def put_module(self, source: Source, *, name: str = "", timeout: Optional[float] = None) -> str:
        """Works like hpvm.Client.put_module."""
        return await self._drive(_holdings.put_module(self._core, source, name, deadline_of(timeout)))

    async def modules(self, *, timeout: Optional[float] = None) -> List[graph_pb2.StoredModule]:
        return await self._drive(_holdings.modules(self._core, deadline_of(timeout)))

    async def delete_module(self, module: Union[str, graph_pb2.StoredModule], *, timeout: Optional[float] = None) -> int:
        return await self._drive(_holdings.delete_module(self._core, module, deadline_of(timeout)))

    def _buffer_of(self, view: tensor_pb2.BufferView) -> AsyncBuffer:
        shape = tuple(view.shape)
        return AsyncBuffer(self, self._core, view.buffer_id, int(view.type), shape, _arrays.size_of(view.type, shape))

    async def buffer(self, value: Any, *, timeout: Optional[float] = None) -> AsyncBuffer:
        array, number = _arrays.as_tensor(value)
        made = await self._empty(number, array.shape, timeout)
        await made.write(array, timeout=timeout)
        return made

    async def empty(self, shape: Sequence[int], dtype: Any = "f32", *, timeout: Optional[float] = None) -> AsyncBuffer:
        return await self._empty(_arrays.ELEMENT_TYPES[_arrays.type_name(dtype)], tuple(map(int, shape)), timeout)

    async def _empty(self, number: int, shape: Tuple[int, ...], timeout: Optional[float]) -> AsyncBuffer:
        made = await self._drive(_memory.create(self._core, number, shape, deadline_of(timeout)))
        return AsyncBuffer(self, self._core, made.id, number, shape, int(made.size_bytes))

    async def buffers(self, *, timeout: Optional[float] = None) -> List[buffer_pb2.Buffer]:
        return await self._drive(_holdings.buffers(self._core, deadline_of(timeout)))

    async def delete_buffer(self, buffer: Union[str, buffer_pb2.Buffer], *, timeout: Optional[float] = None) -> None:
        await self._drive(_memory.delete(self._core, getattr(buffer, "id", buffer), deadline_of(timeout)))

    async def submit(self, graph: Union[Graph, AsyncPrepared, str, Mapping[str, Any]], inputs: Optional[Inputs] = None, *,
                     options: Optional[_jobs.SubmitOptions] = None, modules: Optional[Mapping[str, bytes]] = None,
                     hashes: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None, **arrays: Any) -> AsyncJob:
        documents = ((graph.document, graph.modules, graph.hashes) if isinstance(graph, AsyncPrepared)
                     else documents_of(graph, modules, hashes))
        bound = bound_of("submit", graph, inputs, arrays)
        response = await self._drive(_jobs.submit(self._core, documents, bound, options or _jobs.SubmitOptions(), None,
                                                  deadline_of(timeout)))
        return AsyncJob(self, response.job)

    async def job(self, job_id: str, *, timeout: Optional[float] = None) -> AsyncJob:
        return AsyncJob(self, await self._drive(_jobs.get(self._core, job_id, deadline_of(timeout))))

    async def jobs(self, *, states: Iterable[JobState] = (), labels: Optional[Mapping[str, str]] = None, array: str = "",
                   count_max: Optional[int] = None, timeout: Optional[float] = None) -> List[AsyncJob]:
        found = await self._drive(_jobs.list_jobs(self._core, [int(state) for state in states], labels, array, count_max,
                                                  deadline_of(timeout)))
        return [AsyncJob(self, message) for message in found]

    async def hold_jobs(self, job_or_array_id: str, reason: str = "", *, timeout: Optional[float] = None) -> int:
        """Works like hpvm.Client.hold_jobs."""
        return int((await self._drive(_jobs.set_hold(self._core, job_or_array_id, True, reason, deadline_of(timeout)))).changed)

    async def release_jobs(self, job_or_array_id: str, *, timeout: Optional[float] = None) -> int:
        """Works like hpvm.Client.release_jobs."""
        return int((await self._drive(_jobs.set_hold(self._core, job_or_array_id, False, "", deadline_of(timeout)))).changed)

    async def watch_jobs(self, *, states: Iterable[JobState] = (), labels: Optional[Mapping[str, str]] = None, array: str = "",
                         timeout: Optional[float] = None) -> AsyncIterator[_watch.JobChange]:
        """Works like hpvm.Client.watch_jobs."""
        watch = _watch.JobsWatch(self._core, [int(state) for state in states], labels, array)
        async for message in self._follow(watch, deadline_of(timeout)):
            for change in watch.changes(message, lambda job: AsyncJob(self, job)):
                yield change

    async def watch_devices(self, *, timeout: Optional[float] = None) -> AsyncIterator[List[record_pb2.Device]]:
        """Works like hpvm.Client.watch_devices."""
        watch = _watch.DevicesWatch()
        async for message in self._follow(watch, deadline_of(timeout)):
            devices = watch.devices(message)
            if devices is not None:
                yield devices

    async def _follow(self, watch: Any, deadline: Optional[float]) -> AsyncIterator[bytes]:
        outages = _watch.Outages(self._core)
        while True:
            _, metadata = await self._drive(self._core.sign())
            call = self._channel.stream("/hpvm.v1.Hpvm/" + watch.METHOD, watch.request(), deadline, metadata)
            try:
                async for message in call:
                    outages.answered()
                    yield message
                pause = 0.05
            except grpc.RpcError as error:
                pause = outages.pause_after(errors.from_rpc(error))
            finally:
                call.cancel()
            if deadline is not None and time.monotonic() + pause >= deadline:
                raise errors.DeadlineExceededError("The watch's timeout passed.")
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Closes the connection. Calls in progress fail with ClosedError; jobs go on. May be called twice."""
        if not self._is_open:
            return
        self._is_open = False
        ids = self._pool.clear()
        if ids:
            await self._drive(_memory.delete_all(self._core, ids, time.monotonic() + 1))
        await self._channel.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *what: Any) -> None:
        await self.close()


async def connect(server: Optional[str] = None, *, profile: Optional[str] = None, tenant: Optional[str] = None,
                  credentials: Optional[Credentials] = None, connect_timeout: float = 5.0, patience: float = 30.0,
                  local_memory: bool = True,
                  on_unanswered: Optional[Callable[[errors.HpvmError], None]] = None) -> AsyncClient:
    """Works like hpvm.connect."""
    client = AsyncClient(_profiles.find_place(server, profile, tenant, credentials), patience=patience,
                         local_memory=local_memory, on_unanswered=on_unanswered)
    try:
        await client._channel.await_ready(connect_timeout)
    except BaseException:
        await client.close()
        raise
    return client
