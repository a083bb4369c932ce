# SPDX-License-Identifier: Apache-2.0
"""Holds what one client knows of its server; signs, sends and repeats calls."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar

from google.protobuf.message import Message

from hpvm import _wire, errors
from hpvm._channel import Blocking, Download, Metadata, Pause, Step, Steps, Unary, Upload
from hpvm._credentials import Bearer, Credentials, Endpoint
from hpvm.v1 import common_pb2, graph_pb2, job_pb2, service_pb2

_Answer = TypeVar("_Answer", bound=Message)

CHUNK_BYTES = 1 << 20
_UNAVAILABLE_FIRST_S, _UNAVAILABLE_LONGEST_S = 0.05, 2.0


class Options:
    """The options of `hpvm.connect`."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials, tenant: str, patience: float, local_memory: bool,
                 on_unanswered: Optional[Callable[[errors.HpvmError], None]]) -> None:
        self.endpoint, self.credentials, self.tenant = endpoint, credentials, tenant
        self.patience, self.local_memory, self.on_unanswered = patience, local_memory, on_unanswered


def request_options(*, deadline: Optional[float] = None, priority: int = 0, labels: Optional[Mapping[str, str]] = None,
                    key: str = "", traceparent: str = "") -> common_pb2.RequestOptions:
    """Returns the options of a request. `deadline` is that of the work, in seconds from the server's receipt."""
    options = common_pb2.RequestOptions(idempotency_key=key, priority=priority, labels=dict(labels or {}),
                                        traceparent=traceparent, errors_in_body=True)
    if deadline is not None:
        if deadline <= 0:
            raise ValueError(f"The deadline is {deadline} s; it has to be more than 0.")
        options.deadline_ns = int(deadline * 1e9)
    return options


def new_key() -> str:
    """Returns an idempotency key of 128 random bits."""
    return "key-" + os.urandom(16).hex()


class Retries:
    """Computes the pauses between tries during outages: 50 ms at first, doubled each time up to 2 s, half of it random;
    never shorter than the server asked for."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._failures, self._since = 0, 0.0

    def after(self, failure: errors.HpvmError) -> Optional[float]:
        """Returns the seconds until the next try; None when that would exceed the client's patience."""
        now = time.monotonic()
        if self._failures == 0:
            self._since = now
        import random
        whole = min(_UNAVAILABLE_LONGEST_S, _UNAVAILABLE_FIRST_S * 2 ** min(self._failures, 6))
        self._failures += 1
        delay = max(whole / 2 + random.random() * whole / 2, failure.retry_after)
        if now + delay - self._since > self._options.patience:
            return None
        if self._failures == 1 and self._options.on_unanswered is not None:
            self._options.on_unanswered(failure)
        return delay

    def answered(self) -> None:
        self._failures = 0


class Core:
    """The core of a client. Thread-safe. Its methods yield steps (hpvm._channel) and never wait."""

    def __init__(self, options: Options, bearer: Bearer) -> None:
        self.options, self.bearer = options, bearer
        self._limits: Optional[service_pb2.Limits] = None
        self._signed: Tuple[str, Metadata] = ("", self._metadata(""))

    # --- One call ---

    def _metadata(self, secret: str) -> Metadata:
        metadata = (("authorization", "Bearer " + secret),) if secret else ()
        return metadata + ((("hpvm-tenant", self.options.tenant),) if self.options.tenant else ())

    def sign(self) -> "Steps[Tuple[str, Metadata]]":
        """Returns the secret of a call and the metadata that carry it."""
        secret = self.bearer.current() if self.bearer.is_ready else (yield Blocking(self.bearer.current))
        if secret != self._signed[0]:
            self._signed = (secret, self._metadata(secret))
        return self._signed

    def attempt(self, step: Callable[[Metadata], Step]) -> "Steps[Any]":
        """Makes one call, and a second one when the server does not know the caller and other credentials are
        available."""
        secret, metadata = yield from self.sign()
        try:
            return (yield step(metadata))
        except errors.UnauthenticatedError:
            if not (yield Blocking(lambda: self.bearer.renew(secret))):
                raise
        secret, metadata = yield from self.sign()
        return (yield step(metadata))

    def keep_trying(self, once: Callable[[], "Steps[Any]"], deadline: Optional[float]) -> "Steps[Any]":
        """Repeats `once` while no answer comes, for as long as the client's patience. The work of `once` may be carried
        out twice."""
        retries = Retries(self.options)
        while True:
            try:
                return (yield from once())
            except errors.HpvmError as failure:
                if not errors.may_retry(failure):
                    raise
                delay = retries.after(failure)
                if delay is None or (deadline is not None and time.monotonic() + delay >= deadline):
                    raise  # The reason for the missing answer says more than an expired deadline.
            yield Pause(delay)

    def once(self, method: str, request: Message, answer: Type[_Answer], deadline: Optional[float],
             service: str = "Hpvm") -> "Steps[_Answer]":
        """Makes one unary call, sent once. Raises the failure in the answer's `error` if that is set."""
        data = request.SerializeToString()
        response = answer.FromString((yield from self.attempt(lambda metadata: Unary(
            f"/hpvm.v1.{service}/{method}", data, deadline, metadata))))
        failure = errors.from_status(response.error) if hasattr(response, "error") else None
        if failure is not None:
            raise failure
        return response

    def call(self, method: str, request: Message, answer: Type[_Answer], deadline: Optional[float],
             service: str = "Hpvm") -> "Steps[_Answer]":
        """Makes one unary call that may be carried out twice, as `once` does."""
        return (yield from self.keep_trying(lambda: self.once(method, request, answer, deadline, service), deadline))

    def pages(self, method: str, request: Any, answer: Type[_Answer], items: str, deadline: Optional[float],
              count_max: Optional[int] = None) -> "Steps[List[Any]]":
        """Returns all items of a list call, page by page, or the first `count_max`."""
        found: List[Any] = []
        request.page_size = min(1000, count_max or 1000)
        while True:
            page: Any = yield from self.call(method, request, answer, deadline)
            found.extend(getattr(page, items))
            if not page.next_page_token or (count_max is not None and len(found) >= count_max):
                return found[:count_max]
            request.page_token = page.next_page_token

    def upload(self, method: str, head: Message, data: memoryview, answer: Type[_Answer], deadline: Optional[float],
               chunks: bool = True) -> "Steps[_Answer]":
        """Sends `head` in the first message and the data in chunks; only the head if `chunks` is false."""
        first = _wire.field(1, head.SerializeToString())

        def parts() -> Iterator[bytes]:
            yield _wire.chunk(data[:CHUNK_BYTES] if chunks else memoryview(b""), first)
            for at in range(CHUNK_BYTES, len(data) if chunks else 0, CHUNK_BYTES):
                yield _wire.chunk(data[at:at + CHUNK_BYTES])

        return answer.FromString((yield from self.attempt(lambda metadata: Upload(
            "/hpvm.v1.Hpvm/" + method, parts, deadline, metadata))))

    def download(self, method: str, request: Message, take: Callable[[bytes], Optional[bool]],
                 deadline: Optional[float]) -> "Steps[None]":
        data = request.SerializeToString()
        yield from self.attempt(lambda metadata: Download("/hpvm.v1.Hpvm/" + method, data, take, deadline, metadata))

    # --- Facts ---

    def server_info(self, deadline: Optional[float]) -> "Steps[service_pb2.ServerInfoResponse]":
        info = yield from self.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse, deadline)
        self._limits = info.limits
        return info

    def limits(self, deadline: Optional[float]) -> "Steps[service_pb2.Limits]":
        if self._limits is None:
            yield from self.server_info(deadline)
        assert self._limits is not None
        return self._limits

    # --- Modules and documents ---

    def _put(self, method: str, head: Any, data: bytes, answer: Type[_Answer], deadline: Optional[float]) -> "Steps[str]":
        import hashlib
        head.sha256, head.size_bytes = hashlib.sha256(data).hexdigest(), len(data)
        view = memoryview(data)

        def once() -> "Steps[None]":
            if len(data) > CHUNK_BYTES:  # The client first asks whether the server has the module.
                try:
                    yield from self.upload(method, head, view, answer, deadline, chunks=False)
                    return
                except errors.NotFoundError:
                    pass
            yield from self.upload(method, head, view, answer, deadline)

        yield from self.keep_trying(once, deadline)
        return str(head.sha256)

    def put_module(self, data: bytes, name: str, deadline: Optional[float]) -> "Steps[str]":
        head = graph_pb2.PutModuleRequest.Header(name=name)
        return (yield from self._put("PutModule", head, data, graph_pb2.PutModuleResponse, deadline))

    def put_graph(self, document: str, modules: Mapping[str, bytes], hashes: Mapping[str, str],
                  deadline: Optional[float]) -> "Steps[job_pb2.GraphReference]":
        """Uploads the modules and the document; returns the reference by which requests name them."""
        bindings: Dict[str, str] = dict(hashes)
        for name, data in modules.items():
            bindings[name] = yield from self.put_module(data, name, deadline)
        head = graph_pb2.PutGraphRequest.Header()
        digest = yield from self._put("PutGraph", head, document.encode(), graph_pb2.PutGraphResponse, deadline)
        return job_pb2.GraphReference(graph_sha256=digest, modules=[
            graph_pb2.ModuleBinding(name=name, sha256=sha256) for name, sha256 in bindings.items()])
