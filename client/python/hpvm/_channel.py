# SPDX-License-Identifier: Apache-2.0
"""Makes calls, from threads and from asyncio.

Each operation of the library is written once, as a generator that yields steps (a call, an upload, a pause) and receives the
result of each. `drive` and `drive_async` execute the steps. A step that fails is thrown into its generator as an HpvmError.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
import weakref
from typing import Any, Awaitable, Callable, Generator, Iterator, List, Optional, Tuple, TypeVar, Union

import grpc

from hpvm import errors
from hpvm._credentials import Credentials, Endpoint
from hpvm._window import Window

_T = TypeVar("_T")

#: Size of one message, which is the server's default limit (limits.message_bytes_max).
MESSAGE_BYTES_MAX = (4 << 20) + (64 << 10)

Metadata = Tuple[Tuple[str, str], ...]


class Unary:
    """A unary call: sends one message and results in the bytes of the answer."""
    __slots__ = ("method", "request", "deadline", "metadata")

    def __init__(self, method: str, request: bytes, deadline: Optional[float], metadata: Metadata) -> None:
        self.method, self.request, self.metadata = method, request, metadata
        self.deadline = deadline  # In time.monotonic.


class Upload:
    """A client-streaming call: sends messages, which are made on demand, and results in one answer."""
    __slots__ = ("method", "parts", "deadline", "metadata")

    def __init__(self, method: str, parts: Callable[[], Iterator[bytes]], deadline: Optional[float], metadata: Metadata) -> None:
        self.method, self.parts, self.deadline, self.metadata = method, parts, deadline, metadata


class Download:
    """A server-streaming call: sends one message. `take` receives each answer, and ends the call when it returns
    False."""
    __slots__ = ("method", "request", "take", "deadline", "metadata")

    def __init__(self, method: str, request: bytes, take: Callable[[bytes], Optional[bool]], deadline: Optional[float],
                 metadata: Metadata) -> None:
        self.method, self.request, self.take, self.deadline, self.metadata = method, request, take, deadline, metadata


class Pause:
    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Blocking:
    """Short work that may wait for a local socket or a small file."""
    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work


Step = Union[Unary, Upload, Download, Pause, Blocking]
Steps = Generator[Step, Any, _T]

# gRPC supports forks only if its environment variable is set before it starts; hpvm/__init__.py sets it if hpvm is
# imported first.
_can_fork = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "0").lower() in ("1", "true", "yes")
_fork_count = 0


_channels: "weakref.WeakSet[Channel]" = weakref.WeakSet()
_resting: "List[Channel]" = []  # Channels at rest from before a fork until after it.

#: Seconds that a fork waits for threads of gRPC that have no work left. They end within milliseconds.
_THREADS_END_S = 1.0
#: Native threads that are neither Python's nor gRPC's.
_foreign_threads: "set[int]" = set()


def _native_threads() -> "set[int]":
    """Returns the ids of this process's threads that Python did not start; the empty set where /proc is missing."""
    try:
        ids = {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return set()
    return ids - {thread.native_id for thread in threading.enumerate()}


def _before_fork() -> None:
    """A child that is forked while a thread of gRPC lives may end with exit code 64, or hang in its first call, because
    the child does not have the thread. Connections without calls are therefore closed before a fork, and the fork waits
    until gRPC's threads have ended; the next call opens the connection again, in the parent as in the child."""
    channels = list(_channels)
    _resting.extend(channel for channel in channels if channel._rest())
    is_idle = len(_resting) == len(channels)
    until = time.monotonic() + _THREADS_END_S
    while time.monotonic() < until:
        has_managed = any("(managed_target)" in thread.name for thread in threading.enumerate())
        # With a call in progress, gRPC's threads go on, and gRPC brings them through the fork by itself.
        if not has_managed and not (is_idle and _native_threads() - _foreign_threads):
            return
        time.sleep(0.001)
    if is_idle:
        _foreign_threads.update(_native_threads())  # Another library's: the next fork does not wait for them.


def _after_fork() -> None:
    while _resting:
        _resting.pop()._wake()


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1
    _resting.clear()
    for channel in list(_channels):
        channel._forget()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_count_fork)


def fork_count() -> int:
    """Returns the number of forks between the process that imported the package and this one."""
    return _fork_count


def remaining(deadline: Optional[float]) -> Optional[float]:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def channel_arguments(credentials: Credentials) -> List[Tuple[str, Any]]:
    arguments: List[Tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        # Finds a server that comes back within a second.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Lets a call that waits in silence notice that its server's machine is gone.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # Gives each client a channel of its own: otherwise clients would share a connection and its limits.
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
        ca = "/etc/ssl/certs/ca-certificates.crt"  # The system's file; gRPC would use its own.
    return grpc.ssl_channel_credentials(_read(ca, "file of authorities"), _read(credentials.key_file, "private key"),
                                        _read(credentials.certificate_file, "certificate"))


def _end_interrupted_call(interrupt: BaseException) -> None:
    """Cancels gRPC's blocking call, which an interrupt leaves unfinished, and takes its end; otherwise no child of a
    later fork could use gRPC. The call is a local variable of one of gRPC's frames."""
    trace = interrupt.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        # Other frames are not read: their f_locals would stay with them, the interrupt included, and a reference cycle
        # would keep the call until the garbage collector runs.
        call: Any = frame.f_locals.get("call") if frame.f_globals.get("__name__") == "grpc._channel" else None
        if hasattr(call, "next_event") and hasattr(call, "cancel"):
            try:
                call.cancel(1, "The caller was interrupted.")
                call.next_event()
            except Exception:  # Another version of gRPC: the connection stays as it is.
                pass
            return


class Channel:
    """A connection for threads, opened on demand. After a fork the child opens its own."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials) -> None:
        self._endpoint, self._credentials = endpoint, credentials
        self._lock = threading.Lock()
        self._closed = False
        self._channel: Any = None
        self._calls = 0  # Calls in progress; guarded by the lock.
        self._unary: "dict[str, Any]" = {}
        self._forked = False
        _channels.add(self)

    def _open(self) -> None:
        if all(channel._channel is None for channel in list(_channels)):
            _foreign_threads.update(_native_threads())
        arguments = channel_arguments(self._credentials)
        if self._endpoint.tls:
            self._channel = grpc.secure_channel(self._endpoint.target, channel_credentials(self._credentials), arguments)
        else:
            self._channel = grpc.insecure_channel(self._endpoint.target, arguments)

    def _forget(self) -> None:
        """Resets the channel in the child of a fork: the connection, the calls and the holder of the lock belong to the
        parent."""
        self._lock = threading.Lock()
        self._unary, self._channel = {}, None
        self._calls, self._forked = 0, True

    def check_open(self) -> None:
        if self._closed:
            raise errors.ClosedError("The client is closed.")

    def _begin(self) -> Any:
        """Returns gRPC's channel for a call; `_end` ends that call."""
        self.check_open()
        if self._forked and not _can_fork:
            raise errors.FailedPreconditionError(
                "This process was forked from one in which gRPC was at work without support for that. Import hpvm before "
                "grpc, set GRPC_ENABLE_FORK_SUPPORT=1 before the program starts, or start processes by spawn "
                "(multiprocessing.set_start_method).")
        with self._lock:
            self.check_open()
            if self._channel is None:
                self._open()
            self._calls += 1
            return self._channel

    def _end(self) -> None:
        with self._lock:
            self._calls -= 1

    def _rest(self) -> bool:
        """Closes the connection before a fork unless a call is in progress, and lets no call begin until _wake. Returns
        true if it closed the connection."""
        # The fork may come from a signal handler that interrupted the lock's holder.
        if not self._lock.acquire(timeout=1):
            return False
        if self._calls > 0:
            self._lock.release()
            return False
        self._unary.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        return True

    def _wake(self) -> None:
        self._lock.release()

    def await_ready(self, timeout: float) -> None:
        """Raises UnavailableError, or UnauthenticatedError when a certificate is not trusted."""
        channel = self._begin()
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout)
        except grpc.FutureTimeoutError:
            raise no_answer(self._endpoint, timeout, self._why(channel)) from None
        finally:
            self._end()

    def _why(self, channel: Any) -> str:
        try:
            channel.unary_unary("/hpvm.v1.Hpvm/ServerInfo")(b"", timeout=0.5)
        except grpc.RpcError as error:
            return error.details() or ""
        return ""

    def unary(self, step: Unary) -> bytes:
        channel = self._begin()
        try:
            call = self._unary.get(step.method)
            if call is None:
                call = self._unary[step.method] = channel.unary_unary(step.method)
            return call(step.request, timeout=remaining(step.deadline), metadata=step.metadata)
        except BaseException as error:
            raise self._ended_by(error) from None
        finally:
            self._end()

    def upload(self, step: Upload) -> bytes:
        channel = self._begin()
        try:
            return channel.stream_unary(step.method)(step.parts(), timeout=remaining(step.deadline), metadata=step.metadata)
        except BaseException as error:
            raise self._ended_by(error) from None
        finally:
            self._end()

    def _ended_by(self, error: BaseException) -> BaseException:
        """Returns the error that a blocking call raises for this failure."""
        if isinstance(error, grpc.RpcError):
            return self.explain(error)
        if isinstance(error, ValueError):  # gRPC raises it for a channel that another thread has closed.
            return errors.ClosedError(f"The client is closed: {error}")
        _end_interrupted_call(error)
        return error

    def download(self, step: Download) -> None:
        with self.stream(step.method, step.request, step.deadline, step.metadata) as call:
            try:
                for part in call:
                    if step.take(part) is False:
                        break
            except grpc.RpcError as error:
                raise self.explain(error) from None

    @contextlib.contextmanager
    def stream(self, method: str, request: bytes, deadline: Optional[float], metadata: Metadata) -> Iterator[Any]:
        """Yields the bytes of a streaming call's answers, and cancels the call at the end."""
        channel = self._begin()
        try:
            call = channel.unary_stream(method)(request, timeout=remaining(deadline), metadata=metadata)
        except ValueError as error:
            self._end()
            raise errors.ClosedError(f"The client is closed: {error}") from None
        except BaseException:
            self._end()
            raise
        try:
            yield call
        finally:
            call.cancel()
            self._end()

    def explain(self, error: grpc.RpcError) -> errors.HpvmError:
        if self._closed:
            return errors.ClosedError("The client was closed during the call.")
        return errors.from_rpc(error)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._channel is not None:
                    self._channel.close()

    def drive(self, steps: "Steps[_T]") -> _T:
        """Executes the steps on this thread."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._perform(step)
                except BaseException as error:  # Interrupts too: the generator first deletes what it made on the server.
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
    """A connection for one event loop of asyncio."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials) -> None:
        self._endpoint = endpoint
        arguments = channel_arguments(credentials)
        self._channel = (grpc.aio.secure_channel(endpoint.target, channel_credentials(credentials), arguments)
                         if endpoint.tls else grpc.aio.insecure_channel(endpoint.target, arguments))
        self._closed = False
        self._forks = _fork_count
        self._window = Window()

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
                except BaseException as error:  # Interrupts too: the generator first deletes what it made on the server.
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
                return await self._window.call(functools.partial(self._begin_unary, step), step.deadline)
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

    def _begin_unary(self, step: Unary) -> Any:
        return self.get().unary_unary(step.method)(step.request, timeout=remaining(step.deadline), metadata=step.metadata)

    def stream(self, method: str, request: bytes, deadline: Optional[float], metadata: Metadata) -> Any:
        return self.get().unary_stream(method)(request, timeout=remaining(deadline), metadata=metadata)

    def close(self) -> Awaitable[None]:
        self._closed = True
        return self._channel.close()  # type: ignore[no-any-return]


def no_answer(endpoint: Endpoint, timeout: float, why: str) -> errors.HpvmError:
    """Returns the error of a channel that does not connect; `why` is gRPC's text for one attempt."""
    server = f'The server at "{endpoint.target}"'
    if "CERTIFICATE_VERIFY_FAILED" in why or "certificate verify failed" in why:
        return errors.UnauthenticatedError(
            f"{server} shows a certificate that no authority has signed, or one that is not valid now. Give the certificate "
            "of the server's own authority with ca_file.")
    if "is not in peer certificate" in why or "Hostname Verification Check failed" in why:
        return errors.UnauthenticatedError(f"{server} shows a certificate for another name. Give the name in the certificate "
                                           "with server_name.")
    if "WRONG_VERSION_NUMBER" in why or "packet length too long" in why:
        return errors.UnavailableError(f"{server} does not speak TLS; give its address without https://, and leave out certificates.")
    if "CERTIFICATE_REQUIRED" in why:
        return errors.UnauthenticatedError(f"{server} requires a client certificate; give one with certificate_file and key_file.")
    hint = "" if endpoint.tls or endpoint.unix_path or "Socket closed" not in why else (
        f" A program listens there, but closes the connection; if it is a server with TLS, its address is https://{endpoint.target}.")
    return errors.UnavailableError(
        f'No hpvmd answers at "{endpoint.target}" within {timeout:g} s{" over TLS" if endpoint.tls else ""}. Start one with '
        f"`hpvmd --dev`, or name one: hpvm.connect(\"unix:/path\"), $HPVM_SERVER or a profile.{hint}")
