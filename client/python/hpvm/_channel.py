# SPDX-License-Identifier: Apache-2.0
"""How calls are made, by threads and by asyncio.

What the library does is written once, as generators that yield steps (a call, an upload, a pause) and are sent what came
of each. `drive` and `drive_async` carry the steps out. A step that fails is thrown into its generator as an HpvmError.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any, Awaitable, Callable, Generator, Iterator, List, Optional, Tuple, TypeVar, Union

import grpc

from hpvm import errors
from hpvm._credentials import Credentials, Endpoint

_T = TypeVar("_T")

#: One message, as the server's default allows it (limits.message_bytes_max).
MESSAGE_BYTES_MAX = (4 << 20) + (64 << 10)

Metadata = Tuple[Tuple[str, str], ...]


class Unary:
    """One message there, one back: answers its bytes."""
    __slots__ = ("method", "request", "deadline", "metadata")

    def __init__(self, method: str, request: bytes, deadline: Optional[float], metadata: Metadata) -> None:
        self.method, self.request, self.metadata = method, request, metadata
        self.deadline = deadline  # On time.monotonic.


class Upload:
    """Messages there, made when they are wanted; one back."""
    __slots__ = ("method", "parts", "deadline", "metadata")

    def __init__(self, method: str, parts: Callable[[], Iterator[bytes]], deadline: Optional[float], metadata: Metadata) -> None:
        self.method, self.parts, self.deadline, self.metadata = method, parts, deadline, metadata


class Download:
    """One message there; `take` gets each that comes back, and ends the call by answering False."""
    __slots__ = ("method", "request", "take", "deadline", "metadata")

    def __init__(self, method: str, request: bytes, take: Callable[[bytes], Optional[bool]], deadline: Optional[float],
                 metadata: Metadata) -> None:
        self.method, self.request, self.take, self.deadline, self.metadata = method, request, take, deadline, metadata


class Pause:
    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Blocking:
    """Something short that may wait for a local socket or a small file."""
    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work


Step = Union[Unary, Upload, Download, Pause, Blocking]
Steps = Generator[Step, Any, _T]

# gRPC forks well only when it is told so before it starts; hpvm/__init__.py does where it is imported first.
_can_fork = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "0").lower() in ("1", "true", "yes")
_fork_count = 0


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


def fork_count() -> int:
    """How many forks lie between this process and the one that imported the package."""
    return _fork_count


def remaining(deadline: Optional[float]) -> Optional[float]:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def channel_arguments(credentials: Credentials) -> List[Tuple[str, Any]]:
    arguments: List[Tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        # A server that comes back is found again within a second.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # A call that waits in silence learns that its server's machine is gone.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # A channel of its own for each client: otherwise clients share a connection, and its limits.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if credentials.server_name:
        arguments.append(("grpc.ssl_target_name_override", credentials.server_name))
    return arguments


def _read(path: str, what: str) -> Optional[bytes]:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        raise errors.InvalidArgumentError(f'The {what} "{path}" cannot be read: {error.strerror}.') from None


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    ca = credentials.ca_file
    if not ca and os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
        ca = "/etc/ssl/certs/ca-certificates.crt"  # The system's, where gRPC would take its own.
    return grpc.ssl_channel_credentials(_read(ca, "file of authorities"), _read(credentials.key_file, "private key"),
                                        _read(credentials.certificate_file, "certificate"))


def _end_interrupted_call(interrupt: BaseException) -> None:
    """An interrupt leaves gRPC's blocking call unfinished, and no child of a later fork could use gRPC then. The call is in a
    frame of gRPC's own; it is cancelled, and its end is taken."""
    trace = interrupt.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        # Of other frames nothing is asked: what their f_locals answers stays with them, the interrupt included, and a circle
        # of references would keep the call until somebody collects garbage.
        call: Any = frame.f_locals.get("call") if frame.f_globals.get("__name__") == "grpc._channel" else None
        if hasattr(call, "next_event") and hasattr(call, "cancel"):
            try:
                call.cancel(1, "The caller was interrupted.")
                call.next_event()
            except Exception:  # Another version of gRPC's: then the connection is as it is.
                pass
            return


class Channel:
    """A connection for threads. After a fork the child has one of its own."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials) -> None:
        self._endpoint, self._credentials = endpoint, credentials
        self._lock = threading.Lock()
        self._closed = False
        self._open()

    def _open(self) -> None:
        arguments = channel_arguments(self._credentials)
        if self._endpoint.tls:
            self._channel = grpc.secure_channel(self._endpoint.target, channel_credentials(self._credentials), arguments)
        else:
            self._channel = grpc.insecure_channel(self._endpoint.target, arguments)
        self._forks = _fork_count
        self._unary: "dict[str, Any]" = {}

    def _reopen_after_fork(self) -> None:
        if not _can_fork:
            raise errors.FailedPreconditionError(
                "This process was forked from one in which gRPC was at work without support for that. Import hpvm before "
                "grpc, set GRPC_ENABLE_FORK_SUPPORT=1 before the program starts, or start processes by spawn "
                "(multiprocessing.set_start_method).")
        self._lock = threading.Lock()
        self._open()

    def get(self) -> grpc.Channel:
        if self._closed:
            raise errors.ClosedError("The client is closed.")
        if self._forks != _fork_count:
            self._reopen_after_fork()
        return self._channel

    def await_ready(self, timeout: float) -> None:
        """Raises UnavailableError, or UnauthenticatedError where a certificate is not believed."""
        try:
            grpc.channel_ready_future(self.get()).result(timeout=timeout)
        except grpc.FutureTimeoutError:
            raise no_answer(self._endpoint, timeout, self._why()) from None

    def _why(self) -> str:
        try:
            self.get().unary_unary("/hpvm.v1.Hpvm/ServerInfo")(b"", timeout=0.5)
        except grpc.RpcError as error:
            return error.details() or ""
        return ""

    def unary(self, step: Unary) -> bytes:
        channel = self.get()
        call = self._unary.get(step.method)
        if call is None:
            call = self._unary[step.method] = channel.unary_unary(step.method)
        try:
            return call(step.request, timeout=remaining(step.deadline), metadata=step.metadata)
        except grpc.RpcError as error:
            raise self.explain(error) from None
        except ValueError as error:  # gRPC's word for a channel that another thread has closed.
            raise errors.ClosedError(f"The client is closed: {error}") from None
        except BaseException as interrupt:
            _end_interrupted_call(interrupt)
            raise

    def upload(self, step: Upload) -> bytes:
        try:
            return self.get().stream_unary(step.method)(step.parts(), timeout=remaining(step.deadline), metadata=step.metadata)
        except grpc.RpcError as error:
            raise self.explain(error) from None
        except ValueError as error:
            raise errors.ClosedError(f"The client is closed: {error}") from None
        except BaseException as interrupt:
            _end_interrupted_call(interrupt)
            raise

    def download(self, step: Download) -> None:
        call = None
        try:
            call = self.stream(step.method, step.request, step.deadline, step.metadata)
            for part in call:
                if step.take(part) is False:
                    break
        except grpc.RpcError as error:
            raise self.explain(error) from None
        finally:
            if call is not None:
                call.cancel()

    def stream(self, method: str, request: bytes, deadline: Optional[float], metadata: Metadata) -> Any:
        """A call of gRPC whose iterator has the answers' bytes. The caller cancels it."""
        try:
            return self.get().unary_stream(method)(request, timeout=remaining(deadline), metadata=metadata)
        except ValueError as error:
            raise errors.ClosedError(f"The client is closed: {error}") from None

    def explain(self, error: grpc.RpcError) -> errors.HpvmError:
        if self._closed:
            return errors.ClosedError("The client was closed during the call.")
        return errors.from_rpc(error)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._forks == _fork_count:
                    self._channel.close()

    def drive(self, steps: "Steps[_T]") -> _T:
        """Carries the steps out on this thread."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._perform(step)
                except BaseException as error:  # An interrupt too: what was made on the server is given back first.
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _perform(self, step: Step) -> Any:
        if type(step) is Unary:
            return self.unary(step)
        if isinstance(step, Upload):
            return self.upload(step)
        if isinstance(step, Download):
            return self.download(step)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        assert isinstance(step, Blocking)
        return step.work()


class AsyncChannel:
    """The same for one event loop of asyncio."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials) -> None:
        self._endpoint = endpoint
        arguments = channel_arguments(credentials)
        self._channel = (grpc.aio.secure_channel(endpoint.target, channel_credentials(credentials), arguments)
                         if endpoint.tls else grpc.aio.insecure_channel(endpoint.target, arguments))
        self._closed = False
        self._forks = _fork_count

    def get(self) -> Any:
        if self._closed:
            raise errors.ClosedError("The client is closed.")
        if self._forks != _fork_count:
            raise errors.FailedPreconditionError(
                "This process was forked since the client was made, and an event loop does not survive that. Make the client "
                "in the child.")
        return self._channel

    async def await_ready(self, timeout: float) -> None:
        try:
            await asyncio.wait_for(self.get().channel_ready(), timeout)
        except asyncio.TimeoutError:
            raise no_answer(self._endpoint, timeout, "") from None

    async def drive(self, steps: "Steps[_T]") -> _T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._perform(step)
                except BaseException as error:  # An interrupt too: what was made on the server is given back first.
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Blocking):
            return await asyncio.get_running_loop().run_in_executor(None, step.work)
        channel = self.get()
        try:
            if isinstance(step, Unary):
                return await channel.unary_unary(step.method)(step.request, timeout=remaining(step.deadline),
                                                              metadata=step.metadata)
            if isinstance(step, Upload):
                return await channel.stream_unary(step.method)(step.parts(), timeout=remaining(step.deadline),
                                                               metadata=step.metadata)
            call = self.stream(step.method, step.request, step.deadline, step.metadata)
            try:
                async for part in call:
                    if step.take(part) is False:
                        break
            finally:
                call.cancel()
            return None
        except grpc.RpcError as error:
            if self._closed:
                raise errors.ClosedError("The client was closed during the call.") from None
            raise errors.from_rpc(error) from None
        except asyncio.CancelledError:
            if self._closed:
                raise errors.ClosedError("The client was closed during the call.") from None
            raise
        except grpc.aio.UsageError as error:
            raise errors.ClosedError(f"The client is closed: {error}") from None

    def stream(self, method: str, request: bytes, deadline: Optional[float], metadata: Metadata) -> Any:
        return self.get().unary_stream(method)(request, timeout=remaining(deadline), metadata=metadata)

    def close(self) -> Awaitable[None]:
        self._closed = True
        return self._channel.close()  # type: ignore[no-any-return]


def no_answer(endpoint: Endpoint, timeout: float, why: str) -> errors.HpvmError:
    """Why a channel does not connect, from what gRPC says of a try."""
    server = f'The server at "{endpoint.target}"'
    if "CERTIFICATE_VERIFY_FAILED" in why or "certificate verify failed" in why:
        return errors.UnauthenticatedError(
            f"{server} shows a certificate that no authority vouches for, or one that is not valid now. Its own authority's "
            "certificate is given with ca_file.")
    if "is not in peer certificate" in why or "Hostname Verification Check failed" in why:
        return errors.UnauthenticatedError(f"{server} shows a certificate for another name. The name that it is made for is "
                                           "given with server_name.")
    if "WRONG_VERSION_NUMBER" in why or "packet length too long" in why:
        return errors.UnavailableError(f"{server} does not speak TLS; it is called without https:// and without certificates.")
    if "CERTIFICATE_REQUIRED" in why:
        return errors.UnauthenticatedError(f"{server} wants a certificate of its callers (certificate_file, key_file).")
    hint = "" if endpoint.tls or endpoint.unix_path or "Socket closed" not in why else (
        f" Somebody is there and closes the connection; a server with TLS is called as https://{endpoint.target}.")
    return errors.UnavailableError(
        f'No hpvmd answers at "{endpoint.target}" within {timeout:g} s{" over TLS" if endpoint.tls else ""}. Start one with '
        f"`hpvmd --dev`, or name one: hpvm.connect(\"unix:/path\"), $HPVM_SERVER or a profile.{hint}")
