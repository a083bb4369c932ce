# SPDX-License-Identifier: Apache-2.0
"""A client for threads."""

from __future__ import annotations

import atexit
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from hpvm import _arrays, _holdings, _jobs, _memory, _profiles, _runs, _watch, errors
from hpvm._channel import Channel, Steps
from hpvm._core import Core, Options
from hpvm._credentials import Credentials, make_bearer, parse_endpoint
from hpvm._runs import deadline_of
from hpvm.buffers import Buffer, SharedBuffer
from hpvm.graph import Graph, Source
from hpvm.jobs import Job, JobState
from hpvm.prepared import Inputs, Prepared, PreparedState, check_bound, merge
from hpvm.v1 import buffer_pb2, graph_pb2, record_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from hpvm.admin import Admin
    from hpvm.v1 import admin_pb2

_T = TypeVar("_T")
_open_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends runs in progress with the interpreter: gRPC's threads must not outlive it."""
    for client in list(_open_clients):
        client._channel.close()


def documents_of(graph: Union[Graph, str, Mapping[str, Any]], modules: Optional[Mapping[str, bytes]],
                 hashes: Optional[Mapping[str, str]]) -> Tuple[str, Mapping[str, bytes], Mapping[str, str]]:
    """Returns the document's text, its modules' bytes, and hashes of modules that the server has."""
    if not isinstance(graph, Graph):
        known = {**(modules or {}), **{name: b"" for name in hashes or {}}}
        graph = Graph.from_document(graph, modules=known)
    found = {**graph.modules(), **(modules or {})}
    return graph.document(), {name: data for name, data in found.items() if name not in (hashes or {})}, hashes or {}


#: Names of parameters of `submit` and `submit_array`, which no keyword argument can bind as inputs.
_SUBMIT_OPTIONS = {"submit": ["graph", "inputs", "options", "modules", "hashes", "timeout"]}
_SUBMIT_OPTIONS["submit_array"] = [*_SUBMIT_OPTIONS["submit"], "array", "symbol", "running_max", "index_inputs"]


def bound_of(call: str, graph: Union[Graph, PreparedState, str, Mapping[str, Any]], inputs: Optional[Inputs],
             arrays: Mapping[str, Any], index_inputs: Sequence[str] = ()) -> Inputs:
    """Returns the inputs of a job."""
    bound = merge(inputs, arrays)
    if isinstance(graph, PreparedState):
        names: Any = graph.inputs
    else:
        if isinstance(graph, str):
            import json
            graph = json.loads(graph)
        names = (graph.to_dict() if isinstance(graph, Graph) else graph).get("inputs")  # type: ignore[union-attr]
    if isinstance(names, dict):
        check_bound(call, [name for name in _SUBMIT_OPTIONS[call] if name in names], {*bound, *index_inputs},
                    "graph, array, " if call == "submit_array" else "graph, ")
    return bound


class Client:
    """A connection to a server. Any number of threads may use it at once. `hpvm.connect` makes it.

    A call that may be carried out twice survives a server that restarts, drains or is overloaded: the client sends it
    again, with growing random pauses, for `patience` seconds. These calls are uploads, all calls about jobs, and
    queries. Runs and calls about buffers are sent once, because their effects end with the server's process anyway."""

    def __init__(self, place: _profiles.Place, *, connect_timeout: float, patience: float, local_memory: bool,
                 on_unanswered: Optional[Callable[[errors.HpvmError], None]]) -> None:
        endpoint = parse_endpoint(place.server, place.credentials)
        options = Options(endpoint, place.credentials, place.tenant, patience, local_memory, on_unanswered)
        self._core = Core(options, make_bearer(place.credentials, endpoint))
        self._pool = _memory.LocalPool(endpoint.unix_path, local_memory)
        self._channel = Channel(endpoint, place.credentials)
        self._drive = self._channel.drive
        self._watcher = _watch.JobWatcher(self)
        #: The endpoint of the server.
        self.server = place.server
        try:
            self._channel.await_ready(connect_timeout)
        except BaseException:
            self._channel.close()
            raise
        _open_clients.add(self)

    # --- Facts ---

    def server_info(self, *, timeout: Optional[float] = None) -> service_pb2.ServerInfoResponse:
        """Returns the server's version, limits and features, and the caller's identity."""
        return self._drive(self._core.server_info(deadline_of(timeout)))

    def devices(self, *, timeout: Optional[float] = None) -> List[record_pb2.Device]:
        """Returns the devices that the caller's graphs may use."""
        return list(self._drive(self._core.call("ListDevices", service_pb2.ListDevicesRequest(),
                                                service_pb2.ListDevicesResponse, deadline_of(timeout))).devices)

    def costs(self, prepared: Optional[Prepared] = None, *, timeout: Optional[float] = None) -> service_pb2.ListCostsResponse:
        """Returns the server's estimates of how long kernels and copies take; with a prepared graph, only those of its
        kernels."""
        request = service_pb2.ListCostsRequest(handle=prepared.handle_or_raise() if prepared is not None else "")
        return self._drive(self._core.call("ListCosts", request, service_pb2.ListCostsResponse, deadline_of(timeout)))

    def usage(self, *, timeout: Optional[float] = None) -> "admin_pb2.GetUsageResponse":
        """Returns what the caller's tenant uses and may use: for each of `resources` what it holds or has spent (`used`),
        and the `limit`, as `hpvmctl quota` shows them. `admin.usage` returns that of other tenants."""
        return self._drive(_holdings.usage(self._core, "", deadline_of(timeout)))

    @property
    def tensor_path(self) -> str:
        """The path of large arrays: "shared memory", or "gRPC" and the reason."""
        return f"gRPC: {self._pool.refusal}" if self._pool.refusal else "shared memory"

    # --- Graphs and runs ---

    def prepare(self, graph: Union[Graph, str, Mapping[str, Any]], *, modules: Optional[Mapping[str, bytes]] = None,
                hashes: Optional[Mapping[str, str]] = None, check: bool = False, timeout: Optional[float] = None) -> Prepared:
        """Uploads a graph and its modules; the server validates and compiles it.

        graph: a Graph, or a document as JSON text or dictionary; then `modules` has the bytes of modules, by their names.
        hashes: SHA-256 in hexadecimal, by name, of modules that the server already has.
        check: each run looks for races, uninitialised reads and the like, slowly; findings are in the result's log.

        Raises InvalidArgumentError with a diagnostic for each fault of the document."""
        documents = documents_of(graph, modules, hashes)
        response, started = self._drive(_runs.prepare(self._core, *documents, check, deadline_of(timeout)))
        return Prepared(self, response, started, *documents, check)

    def run(self, graph: Union[Graph, Prepared], inputs: Optional[Inputs] = None, **arguments: Any) -> Any:
        """Runs a graph once, as `Prepared.run` does. A graph that runs again is faster with `prepare`."""
        if isinstance(graph, Prepared):
            return graph.run(inputs, **arguments)
        with self.prepare(graph) as prepared:
            return prepared.run(inputs, **arguments)

    def prepared_graphs(self, *, timeout: Optional[float] = None) -> List[graph_pb2.PreparedGraph]:
        """Returns the tenant's prepared graphs, whoever prepared them."""
        return self._drive(_holdings.prepared_graphs(self._core, deadline_of(timeout)))

    def release_graph(self, graph: Union[str, graph_pb2.PreparedGraph], *, timeout: Optional[float] = None) -> None:
        """Releases one of `prepared_graphs()`, or a handle. Runs in progress go on."""
        self._drive(_runs.release(self._core, getattr(graph, "handle", graph), deadline_of(timeout)))

    # --- Modules ---

    def put_module(self, source: Source, *, name: str = "", timeout: Optional[float] = None) -> str:
        """Uploads a module, a file's path or the bytes themselves, and returns its SHA-256 for `hashes=` of `prepare`
        and `submit`. `name` is for people who list modules; absent: the file's name."""
        return self._drive(_holdings.put_module(self._core, source, name, deadline_of(timeout)))

    def modules(self, *, timeout: Optional[float] = None) -> List[graph_pb2.StoredModule]:
        """Returns the modules and graph documents that the server keeps for the tenant, whoever uploaded them."""
        return self._drive(_holdings.modules(self._core, deadline_of(timeout)))

    def delete_module(self, module: Union[str, graph_pb2.StoredModule], *, timeout: Optional[float] = None) -> int:
        """Deletes one of `modules()`, or the one with a SHA-256. Returns the number of bytes that are free again. Raises
        FailedPreconditionError while a prepared graph, a run or a job uses it."""
        return self._drive(_holdings.delete_module(self._core, module, deadline_of(timeout)))

    # --- Buffers ---

    def _buffer_of(self, view: tensor_pb2.BufferView) -> Buffer:
        shape = tuple(view.shape)
        return Buffer(self, self._core, view.buffer_id, int(view.type), shape, _arrays.size_of(view.type, shape))

    def buffer(self, value: Any, *, timeout: Optional[float] = None) -> Buffer:
        """Returns a new buffer with the elements of an array."""
        array, number = _arrays.as_tensor(value)
        buffer = self._empty(number, array.shape, timeout)
        self._drive(_memory.write(self._core, buffer.id, _arrays.view_of(array), 0, deadline_of(timeout)))
        return buffer

    def empty(self, shape: Sequence[int], dtype: Any = "f32", *, timeout: Optional[float] = None) -> Buffer:
        """Returns a new buffer of zeros."""
        return self._empty(_arrays.ELEMENT_TYPES[_arrays.type_name(dtype)], tuple(int(extent) for extent in shape), timeout)

    def _empty(self, number: int, shape: Tuple[int, ...], timeout: Optional[float]) -> Buffer:
        made = self._drive(_memory.create(self._core, number, shape, deadline_of(timeout)))
        return Buffer(self, self._core, made.id, number, shape, int(made.size_bytes))

    def shared(self, shape: Sequence[int], dtype: Any = "f32", *, timeout: Optional[float] = None) -> SharedBuffer:
        """Returns a new buffer of zeros in this process's own memory, which a server on the same host reads and writes
        without a copy. Raises UnavailableError unless the server is reached through a Unix socket; `empty` works
        everywhere."""
        number = _arrays.ELEMENT_TYPES[_arrays.type_name(dtype)]
        extents = tuple(int(extent) for extent in shape)
        memory = _memory.Memory(_arrays.size_of(number, extents))
        buffer = self._drive(_memory.register(self._core, self._pool, memory.fd, number, extents, deadline_of(timeout)))
        memory.close_fd()
        return SharedBuffer(self, self._core, buffer, memory, number, extents)

    def buffers(self, *, timeout: Optional[float] = None) -> List[buffer_pb2.Buffer]:
        """Returns the tenant's buffers, whoever made them."""
        return self._drive(_holdings.buffers(self._core, deadline_of(timeout)))

    def delete_buffer(self, buffer: Union[str, buffer_pb2.Buffer], *, timeout: Optional[float] = None) -> None:
        """Deletes one of `buffers()`, or the one with an id. Runs in progress keep what they need. `Buffer.delete`
        deletes a buffer of this client."""
        self._drive(_memory.delete(self._core, getattr(buffer, "id", buffer), deadline_of(timeout)))

    # --- Jobs ---

    def submit(self, graph: Union[Graph, Prepared, str, Mapping[str, Any]], inputs: Optional[Inputs] = None, *,
               options: Optional[_jobs.SubmitOptions] = None, modules: Optional[Mapping[str, bytes]] = None,
               hashes: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None, **arrays: Any) -> Job:
        """Submits a job: a run that outlives this process and the server's. Returns when the job is on disk.

        `options` are hpvm.SubmitOptions: name, symbols, repeat, deadline, key, after, retries, needs of a host. Without
        a key every try uses the same random key, so that a lost answer never makes two jobs."""
        response = self._submit("submit", graph, modules, hashes, inputs, arrays, options, None, timeout)
        return Job(self, response.job)

    def submit_array(self, graph: Union[Graph, Prepared, str, Mapping[str, Any]], array: Union[range, int],
                     inputs: Optional[Inputs] = None, *, symbol: str = "", running_max: int = 0,
                     index_inputs: Sequence[str] = (), options: Optional[_jobs.SubmitOptions] = None,
                     modules: Optional[Mapping[str, bytes]] = None, hashes: Optional[Mapping[str, str]] = None,
                     timeout: Optional[float] = None, **arrays: Any) -> List[Job]:
        """Submits one job for each index of `array` (a range, or a count). `symbol` is a symbol of the graph whose
        value is the index; `index_inputs` are inputs that receive it. `running_max` limits how many jobs run at a
        time."""
        spread = _jobs.ArrayOptions.of(array, symbol, running_max, index_inputs)
        response = self._submit("submit_array", graph, modules, hashes, inputs, arrays, options, spread, timeout)
        return [Job(self, _jobs.stub_of(job_id)) for job_id in response.array_job_ids]

    def _submit(self, call: str, graph: Any, modules: Any, hashes: Any, inputs: Any, arrays: Any, options: Any, spread: Any,
                timeout: Optional[float]) -> Any:
        documents = ((graph.document, graph.modules, graph.hashes) if isinstance(graph, Prepared)
                     else documents_of(graph, modules, hashes))
        bound = bound_of(call, graph, inputs, arrays, spread.index_inputs if spread is not None else ())
        return self._drive(_jobs.submit(self._core, documents, bound, options or _jobs.SubmitOptions(), spread, deadline_of(timeout)))

    def job(self, job_id: str, *, timeout: Optional[float] = None) -> Job:
        """Returns a job by its id."""
        return Job(self, self._drive(_jobs.get(self._core, job_id, deadline_of(timeout))))

    def jobs(self, *, states: Iterable[JobState] = (), labels: Optional[Mapping[str, str]] = None, array: str = "",
             count_max: Optional[int] = None, timeout: Optional[float] = None) -> List[Job]:
        """Returns the tenant's jobs, the newest first."""
        found = self._drive(_jobs.list_jobs(self._core, [int(state) for state in states], labels, array, count_max,
                                            deadline_of(timeout)))
        return [Job(self, message) for message in found]

    def hold_jobs(self, job_or_array_id: str, reason: str = "", *, timeout: Optional[float] = None) -> int:
        """Holds a job, as `Job.hold` does, or all jobs of an array that have not started. Returns how many jobs
        that changed."""
        return int(self._drive(_jobs.set_hold(self._core, job_or_array_id, True, reason, deadline_of(timeout))).changed)

    def release_jobs(self, job_or_array_id: str, *, timeout: Optional[float] = None) -> int:
        """Releases a job, as `Job.release` does, or all jobs of an array. Returns how many jobs that changed."""
        return int(self._drive(_jobs.set_hold(self._core, job_or_array_id, False, "", deadline_of(timeout))).changed)

    def watch_jobs(self, *, states: Iterable[JobState] = (), labels: Optional[Mapping[str, str]] = None, array: str = "",
                   timeout: Optional[float] = None) -> Iterator[_watch.JobChange]:
        """Yields the tenant's present jobs, the oldest first, and then each change of state as it happens. The watch
        continues after the server restarts; no change is reported twice."""
        watch = _watch.JobsWatch(self._core, [int(state) for state in states], labels, array)
        for message in _watch.follow(self._channel, self._core, watch, deadline_of(timeout)):
            yield from watch.changes(message, lambda job: Job(self, job))

    def watch_devices(self, *, timeout: Optional[float] = None) -> Iterator[List[record_pb2.Device]]:
        """Yields the devices at once, and again whenever something about them has changed."""
        watch = _watch.DevicesWatch()
        for message in _watch.follow(self._channel, self._core, watch, deadline_of(timeout)):
            devices = watch.devices(message)
            if devices is not None:
                yield devices

    # --- Administration and the end ---

    @property
    def admin(self) -> "Admin":
        """Tenants, tokens, usage and the audit, for callers with the rights."""
        from hpvm.admin import Admin
        return Admin(self)

    def close(self) -> None:
        """Closes the connection. Calls in progress fail with ClosedError; jobs go on. May be called twice."""
        if self not in _open_clients:
            return
        _open_clients.discard(self)
        self._watcher.stop()
        ids = self._pool.clear()
        if ids:  # The server counts the pool's memory towards the tenant's quota while it is registered.
            try:
                self._drive(_memory.delete_all(self._core, ids, time.monotonic() + 1))
            except errors.HpvmError:
                pass
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *what: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.server!r})"


def connect(server: Optional[str] = None, *, profile: Optional[str] = None, tenant: Optional[str] = None,
            credentials: Optional[Credentials] = None, connect_timeout: float = 5.0, patience: float = 30.0,
            local_memory: bool = True, on_unanswered: Optional[Callable[[errors.HpvmError], None]] = None) -> Client:
    """Connects to a server.

    server: "unix:/path", "host:port" or "https://host:port"; absent: $HPVM_SERVER, else the profile's, else the system's
        socket, else 127.0.0.1:50061.
    profile: a name in ~/.config/hpvm/profiles.toml; absent: $HPVM_PROFILE, else the file's default.
    tenant: the tenant to act for; for administrators, and for servers that trust the caller's word.
    credentials: absent: those of the environment and the profile, as in hpvmctl.
    connect_timeout: seconds until UnavailableError.
    patience: seconds for which a call that may be carried out twice is sent again while no answer comes.
    local_memory: large arrays travel through shared memory if the server is on this host.
    on_unanswered: called once per outage with the failure, before a call is sent again."""
    return Client(_profiles.find_place(server, profile, tenant, credentials), connect_timeout=connect_timeout,
                  patience=patience, local_memory=local_memory, on_unanswered=on_unanswered)
