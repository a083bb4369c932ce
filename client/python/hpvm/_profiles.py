# SPDX-License-Identifier: Apache-2.0
"""Reads profiles: named servers and credentials in ~/.config/hpvm/profiles.toml, as hpvmctl does.

    default = "lab"

    [profile.lab]
    server = "https://gpu.example.org:50061"
    token_file = "~/.config/hpvm/lab.token"
    ca_file = "~/.config/hpvm/ca.pem"
"""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, NamedTuple, Optional

from hpvm._credentials import Credentials
from hpvm.errors import InvalidArgumentError

_KEYS = ("server", "tenant", "token_file", "ca_file", "certificate_file", "key_file", "server_name")
_FILES = ("token_file", "ca_file", "certificate_file", "key_file")
_SOCKET = "/run/hpvmd/hpvmd.sock"


class Place(NamedTuple):
    """The server to connect to, and the tenant and credentials to use."""
    server: str
    tenant: str
    credentials: Credentials


def profile_file() -> pathlib.Path:
    """Returns $HPVM_PROFILES, else profiles.toml in the user's configuration folder."""
    named = os.environ.get("HPVM_PROFILES")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return pathlib.Path(base) / "hpvm" / "profiles.toml"


def _load(path: pathlib.Path) -> Dict[str, Any]:
    try:
        import tomllib  # Python 3.11.
    except ImportError:
        import tomli as tomllib  # type: ignore
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InvalidArgumentError(f'The profiles "{path}" cannot be read: {error.strerror}.') from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f'The profiles "{path}" are not TOML: {error}.') from None


def _find(name: Optional[str], path: pathlib.Path) -> Dict[str, str]:
    document = _load(path)
    profiles = document.get("profile", {})
    wanted = name or document.get("default", "")
    if not wanted:
        return {}
    if not isinstance(profiles, dict) or not isinstance(profiles.get(wanted), dict):
        known = ", ".join(sorted(profiles)) if isinstance(profiles, dict) and profiles else "none"
        raise InvalidArgumentError(f'The profiles "{path}" have no profile "{wanted}"; there are: {known}.')
    profile = profiles[wanted]
    for key, value in profile.items():
        if key not in _KEYS:
            raise InvalidArgumentError(f'Profile "{wanted}" in "{path}" has the unknown key "{key}"; keys are '
                                       f"{', '.join(_KEYS)}.")
        if not isinstance(value, str):
            raise InvalidArgumentError(f'Profile "{wanted}" in "{path}": "{key}" has to be a string.')
    return {key: os.path.expanduser(value) if key in _FILES else value for key, value in profile.items()}


def find_place(server: Optional[str], profile: Optional[str], tenant: Optional[str],
               credentials: Optional[Credentials]) -> Place:
    """Chooses the arguments first, then the environment ($HPVM_SERVER, $HPVM_TENANT, $HPVM_TOKEN, $HPVM_TOKEN_FILE,
    $HPVM_CA, $HPVM_CERT, $HPVM_KEY, $HPVM_SERVER_NAME), then the profile, then the usual addresses of a server."""
    env = {key: value for key, value in os.environ.items() if key.startswith("HPVM_") and value}
    name = profile or env.get("HPVM_PROFILE", "")
    path = profile_file()
    found: Dict[str, str] = {}
    # A server without a profile is named: the default profile is for another server.
    if name or (not server and "HPVM_SERVER" not in env and path.exists()):
        found = _find(name, path)
    default = "unix:" + _SOCKET if os.path.exists(_SOCKET) else "127.0.0.1:50061"
    # A profile that the call names comes before the environment.
    place = server or (found.get("server") if profile else None) or env.get("HPVM_SERVER") or found.get("server") or default
    is_unix = place.startswith("unix:")

    def pick(key: str, variable: str) -> str:
        value = (found.get(key) if profile else None) or env.get(variable) or found.get(key) or ""
        return "" if is_unix and key not in ("token_file",) else value

    if credentials is None:
        token = "" if (profile and found.get("token_file")) else env.get("HPVM_TOKEN", "")
        credentials = Credentials(
            token=token, token_file="" if token else pick("token_file", "HPVM_TOKEN_FILE"), ca_file=pick("ca_file", "HPVM_CA"),
            certificate_file=pick("certificate_file", "HPVM_CERT"), key_file=pick("key_file", "HPVM_KEY"),
            server_name=pick("server_name", "HPVM_SERVER_NAME"))
    who = tenant if tenant is not None else env.get("HPVM_TENANT") or found.get("tenant") or ""
    return Place(place, who, credentials)
