# SPDX-License-Identifier: Apache-2.0
"""Credentials of a client. Errors never contain secrets: they name files and places instead."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import NamedTuple, Optional, Tuple

from hpvm.errors import DataLossError, InvalidArgumentError, UnauthenticatedError, UnavailableError


class Credentials(NamedTuple):
    """The credentials of a client. The first of token, token file and ticket that exists goes with every call; a
    certificate is presented in addition."""

    token: str = ""
    token_file: str = ""  # The client reads it again when it changes.
    tls: bool = False  # Implied by https:// and by any of the files below (all PEM).
    ca_file: str = ""  # Authorities that may vouch for the server; "": the system's.
    certificate_file: str = ""
    key_file: str = ""
    server_name: str = ""  # The name in the server's certificate when it is not the host.
    ticket: bool = True  # Over a Unix socket: ask the server who this process is.

    @property
    def wants_tls(self) -> bool:
        return self.tls or bool(self.ca_file or self.certificate_file or self.key_file)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items()
                          if name != "token" and value != self._field_defaults[name])
        return f"Credentials({'token=..., ' if self.token else ''}{shown})"


class Endpoint(NamedTuple):
    target: str
    unix_path: str = ""  # "": TCP.
    host: str = ""
    tls: bool = False


def _is_loopback(host: str) -> bool:
    import ipaddress
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_endpoint(text: str, credentials: Credentials) -> Endpoint:
    """Parses unix:/path, host:port, https://host:port or http://host:port."""
    if bool(credentials.certificate_file) != bool(credentials.key_file):
        raise InvalidArgumentError("A certificate needs its private key, and a private key its certificate "
                                   "(certificate_file, key_file).")
    if text.startswith("unix:"):
        path = re.sub("^//", "", text[5:])
        if not path:
            raise InvalidArgumentError(f'The server\'s address "{text}" has no path after "unix:".')
        if credentials.wants_tls:
            raise InvalidArgumentError(f'TLS and certificates are for TCP; "{text}" is a Unix socket, which the system guards.')
        return Endpoint("unix:" + path, unix_path=path)
    tls = credentials.wants_tls or text.startswith("https://")
    if text.startswith("http://") and tls:
        raise InvalidArgumentError(f'The server\'s address "{text}" says that there is no TLS (http), and certificates were '
                                   "given; write https://.")
    target = re.sub("^(https?://|dns:///)", "", text)
    target = target[:-1] if target.endswith("/") else target
    match = re.fullmatch(r"(\[[^\]/]+\]|[^/:]+):([0-9]+)", target)
    if match is None:
        raise InvalidArgumentError(f'The server\'s address "{text}" is neither unix:/path nor host:port nor https://host:port.')
    host = match.group(1).strip("[]")
    if (credentials.token or credentials.token_file) and not tls and not _is_loopback(host):
        raise InvalidArgumentError(f'A token would travel to "{target}" in clear, where others can read it; use https:// or '
                                   "name the server's authority (ca_file).")
    return Endpoint(target, host=host, tls=tls)


def parse_token(text: str, place: str) -> str:
    """Returns the token without blanks around it. Errors never contain the text."""
    text = text.strip()
    if not text:
        raise InvalidArgumentError(f"{place} is empty.")
    if text.lower().startswith("bearer "):
        raise InvalidArgumentError(f'{place} begins with the word "Bearer"; give the token alone.')
    if not re.fullmatch("hpvm_[0-9a-fA-F]{64}", text):
        raise InvalidArgumentError(f'{place} is not a token: "hpvm_" and 64 hexadecimal digits.')
    return text


class Bearer:
    """The source of a call's authorization. Thread-safe."""

    #: True if `current` returns without waiting.
    is_ready = True

    def current(self) -> str:
        """Returns the secret, or "" for none. May read a small file or ask a local socket."""
        return ""

    def renew(self, used: str) -> bool:
        """Handles a server that does not know `used`. Returns true if `current` would return another secret."""
        return False


class FixedToken(Bearer):
    def __init__(self, token: str) -> None:
        self._token = parse_token(token, "The token")

    def current(self) -> str:
        return self._token


class TokenFile(Bearer):
    """A token that follows its file. When the file vanishes or is half written, the earlier token stays."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._state = self._look()
        self._token = self._read()

    def _look(self) -> Tuple[int, int, int]:
        try:
            facts = os.stat(self._path)
            return facts.st_ino, facts.st_size, facts.st_mtime_ns
        except OSError:
            return 0, -1, 0

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                return parse_token(file.read(4096), f'The token file "{self._path}"')
        except OSError as error:
            raise InvalidArgumentError(f'The token file "{self._path}" cannot be read: {error.strerror}.') from None

    def current(self) -> str:
        state = self._look()
        if state != self._state:
            try:
                self._token, self._state = self._read(), state
            except InvalidArgumentError:
                pass
        return self._token

    def renew(self, used: str) -> bool:
        self._state = (0, -2, 0)
        return self.current() != used


class Ticket(Bearer):
    """A line from the socket beside the server's own, which proves for a while who asked for it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._ticket, self._renew_at, self._ends_at = "", float("-inf"), float("-inf")

    @property
    def is_ready(self) -> bool:  # type: ignore[override]
        return time.monotonic() < self._renew_at

    def current(self) -> str:
        if time.monotonic() < self._renew_at:
            return self._ticket
        with self._lock:
            if time.monotonic() >= self._renew_at:
                try:
                    self._fetch()
                except UnavailableError:
                    # The earlier ticket serves until it expires when no other is available.
                    if time.monotonic() >= self._ends_at:
                        raise
            return self._ticket

    def renew(self, used: str) -> bool:
        with self._lock:
            if self._ticket == used:
                try:
                    self._fetch()
                except (UnavailableError, UnauthenticatedError):
                    return False
            return self._ticket != used

    def _fetch(self) -> None:
        line = self._ask()
        now = time.monotonic()
        if line is None:  # The server does not look at user ids.
            self._ticket, self._renew_at, self._ends_at = "", float("inf"), float("inf")
            return
        if line.startswith("error: "):
            raise UnauthenticatedError(line[7:])
        words = line.split(" ")
        if not re.fullmatch("hpvmt_[!-~]+", words[0]):
            raise DataLossError(f'The program that answers at "{self._path}" does not give tickets; it is not hpvmd.')
        seconds = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        lifetime = seconds or 3600
        self._ticket, self._ends_at, self._renew_at = words[0], now + lifetime, now + lifetime * 0.75

    def _ask(self) -> Optional[str]:
        import socket
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(5)
            try:
                asked.connect(self._path)
                line = b""
                while not line.endswith(b"\n") and len(line) <= 4096:
                    part = asked.recv(512)
                    if not part:
                        raise UnavailableError(f'The server closed "{self._path}" without an answer.')
                    line += part
            except FileNotFoundError:
                return None
            except PermissionError as error:
                raise UnauthenticatedError(f'This process may not ask at "{self._path}" who it is: {error.strerror}.') from None
            except OSError as error:
                if "too long" in str(error):
                    return None  # No server can listen there.
                raise UnavailableError(f'The server did not say at "{self._path}" who this process is: {error}.') from None
        return line.split(b"\n")[0].decode("ascii", "replace")


def make_bearer(credentials: Credentials, endpoint: Endpoint) -> Bearer:
    if credentials.token:
        return FixedToken(credentials.token)
    if credentials.token_file:
        return TokenFile(credentials.token_file)
    if endpoint.unix_path and credentials.ticket:
        return Ticket(endpoint.unix_path + ".auth")
    return Bearer()
