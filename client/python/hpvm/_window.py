# SPDX-License-Identifier: Apache-2.0
"""Limits the calls in progress of an event loop's client, and the rate at which cancelled calls are reset.

A server closes a connection that resets more than limits.resets_per_second_max calls a second (200 unless configured),
with all calls on it: a program that cancels thousands of tasks at once must not look like an attack. The C++
library does the same (client/send_window.h).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Optional

from hpvm import errors

#: The server's default limit for one connection; gRPC would hold further calls back.
IN_PROGRESS_MAX = 100
#: Resets of calls: the size of a burst, and the rate per second after it.
RESETS_AT_ONCE = 50
RESETS_PER_SECOND = 100


class Window:
    """The window of one event loop."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(IN_PROGRESS_MAX)
        self._next_reset = 0.0  # In time.monotonic; its distance into the past is the available burst.

    async def call(self, begin: Callable[[], Any], deadline: Optional[float]) -> Any:
        """Starts a unary call when its turn comes, and awaits the answer. A caller that is cancelled before its turn
        has sent nothing."""
        try:
            await asyncio.wait_for(self._room.acquire(), None if deadline is None else max(0.0, deadline - time.monotonic()))
        except (TimeoutError, asyncio.TimeoutError):
            raise errors.DeadlineExceededError("The call's timeout passed.") from None
        try:
            call = begin()
        except BaseException:
            self._room.release()
            raise
        ended = asyncio.get_running_loop().create_future()

        def on_end(_: Any) -> None:
            self._room.release()
            if not ended.done():
                ended.set_result(None)

        call.add_done_callback(on_end)
        try:
            await ended
        except asyncio.CancelledError:
            self._break_off(call)
            raise
        return await call

    def _break_off(self, call: Any) -> None:
        now = time.monotonic()
        self._next_reset = max(self._next_reset, now - RESETS_AT_ONCE / RESETS_PER_SECOND) + 1 / RESETS_PER_SECOND
        if self._next_reset <= now:
            call.cancel()
        else:
            asyncio.get_running_loop().call_later(self._next_reset - now, call.cancel)
