# SPDX-License-Identifier: Apache-2.0
"""Administration: tenants, tokens, usage, the audit, the configuration, hosts. The calls return the server's messages
(hpvm.v1.admin_pb2, hpvm.v1.operations_pb2)."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, TypeVar

from google.protobuf.message import Message

from hpvm import _holdings, errors
from hpvm._channel import Download, Steps, Unary
from hpvm._runs import deadline_of
from hpvm.v1 import admin_pb2, operations_pb2

_Answer = TypeVar("_Answer", bound=Message)
_ROLES = {"user": 1, "operator": 2, "admin": 3}
_INTAKES = {"open": 1, "cordoned": 2, "draining": 3}


@dataclasses.dataclass(frozen=True)
class NewToken:
    """A new token. The server never shows its secret again."""
    token: admin_pb2.Token
    secret: str = dataclasses.field(repr=False)


def _day_of(date: Optional[datetime.date]) -> int:
    return 0 if date is None else (date - datetime.date(1970, 1, 1)).days


class Admin:
    """The administrator's calls, over a client's connection. Thread-safe. Calls that change something are sent once."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def _call(self, method: str, request: Message, answer: Type[_Answer], timeout: Optional[float],
              service: str = "Admin") -> _Answer:
        core, deadline = self._client._core, deadline_of(timeout)

        def steps() -> "Steps[bytes]":
            return (yield from core.attempt(lambda metadata: Unary(f"/hpvm.v1.{service}/{method}", request.SerializeToString(),
                                                                   deadline, metadata)))
        return answer.FromString(self._client._drive(steps()))

    def _pages(self, method: str, request: Any, answer: Any, items: str, timeout: Optional[float],
               service: str = "Admin") -> List[Any]:
        found: List[Any] = []
        request.page_size = 1000
        while True:
            page = self._call(method, request, answer, timeout, service)
            found.extend(getattr(page, items))
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def create_tenant(self, name: str, *, weight: int = 0, quota: Optional[Mapping[str, int]] = None,
                      devices: Sequence[str] = (), uids: Sequence[int] = (), gids: Sequence[int] = (),
                      certificate_names: Sequence[str] = (), sandbox_level_min: int = 0,
                      timeout: Optional[float] = None) -> admin_pb2.Tenant:
        """Creates a tenant. Raises AlreadyExistsError when the name is taken. A weight of 0 is the server's default."""
        tenant = admin_pb2.Tenant(name=name, weight=weight, quota=dict(quota or {}), devices=devices, uids=uids, gids=gids,
                                  certificate_names=certificate_names, sandbox_level_min=sandbox_level_min)
        return self._call("CreateTenant", admin_pb2.CreateTenantRequest(tenant=tenant), admin_pb2.CreateTenantResponse,
                          timeout).tenant

    def tenants(self, *, timeout: Optional[float] = None) -> List[admin_pb2.Tenant]:
        """Returns the tenants by name."""
        return self._pages("ListTenants", admin_pb2.ListTenantsRequest(), admin_pb2.ListTenantsResponse, "tenants", timeout)

    def tenant(self, name: str = "", *, timeout: Optional[float] = None) -> admin_pb2.Tenant:
        """Returns one tenant; "": the caller's tenant."""
        return self._call("GetTenant", admin_pb2.GetTenantRequest(name=name), admin_pb2.GetTenantResponse, timeout).tenant

    def update_tenant(self, name: str, *, disabled: Optional[bool] = None, disabled_reason: str = "",
                      weight: Optional[int] = None, quota: Optional[Mapping[str, Optional[int]]] = None,
                      devices: Optional[Sequence[str]] = None, uids: Optional[Sequence[int]] = None,
                      gids: Optional[Sequence[int]] = None, certificate_names: Optional[Sequence[str]] = None,
                      sandbox_level_min: Optional[int] = None, timeout: Optional[float] = None) -> admin_pb2.Tenant:
        """Changes the given settings of a tenant and keeps the others. A quota of None returns to the server's
        default."""
        limits: Dict[str, Optional[int]] = dict(quota or {})
        request = admin_pb2.UpdateTenantRequest(
            name=name, disabled_reason=disabled_reason, set_quota={key: value for key, value in limits.items() if value is not None},
            reset_quota=[key for key, value in limits.items() if value is None])
        for key, value in (("disabled", disabled), ("weight", weight), ("sandbox_level_min", sandbox_level_min)):
            if value is not None:
                setattr(request, key, value)
        for key, values in (("devices", devices), ("uids", uids), ("gids", gids), ("certificate_names", certificate_names)):
            if values is not None:
                part = getattr(request, key)
                part.SetInParent()
                part.values.extend(values)
        return self._call("UpdateTenant", request, admin_pb2.UpdateTenantResponse, timeout).tenant

    def create_token(self, tenant: str = "", *, role: str = "user", name: str = "", lifetime: float = 0.0,
                     timeout: Optional[float] = None) -> NewToken:
        """Creates a token. `role`: user, operator or admin. `lifetime`: seconds; 0: 90 days."""
        if role not in _ROLES:
            raise errors.InvalidArgumentError(f'There is no role "{role}"; roles are {", ".join(_ROLES)}.')
        request = admin_pb2.CreateTokenRequest(tenant=tenant, role=_ROLES[role], name=name,  # type: ignore[arg-type]
                                               lifetime_ns=int(lifetime * 1e9))
        response = self._call("CreateToken", request, admin_pb2.CreateTokenResponse, timeout)
        return NewToken(response.token, response.secret)

    def tokens(self, tenant: str = "", *, timeout: Optional[float] = None) -> List[admin_pb2.Token]:
        """Returns the tokens, the newest first."""
        return list(self._call("ListTokens", admin_pb2.ListTokensRequest(tenant=tenant), admin_pb2.ListTokensResponse,
                               timeout).tokens)

    def revoke_token(self, token_id: str, *, timeout: Optional[float] = None) -> str:
        """Revokes a token. Returns the name of its tenant."""
        return str(self._call("RevokeToken", admin_pb2.RevokeTokenRequest(id=token_id), admin_pb2.RevokeTokenResponse,
                              timeout).tenant)

    def usage(self, tenant: str = "", *, timeout: Optional[float] = None) -> admin_pb2.GetUsageResponse:
        """Returns what a tenant uses of its quota; "": the caller's tenant."""
        usage: admin_pb2.GetUsageResponse = self._client._drive(_holdings.usage(self._client._core, tenant, deadline_of(timeout)))
        return usage

    def overview(self, running_max: int = 100, *, timeout: Optional[float] = None) -> operations_pb2.GetOverviewResponse:
        """Returns devices, tenants and the runs in progress: of all tenants for administrators, of their own tenant for
        others."""
        return self._call("GetOverview", operations_pb2.GetOverviewRequest(running_max=running_max),
                          operations_pb2.GetOverviewResponse, timeout, "Operations")

    def set_intake(self, closed: bool, reason: str = "", *, timeout: Optional[float] = None) -> operations_pb2.SetIntakeResponse:
        """Opens or closes the intake of work. A closed server takes jobs, which wait, and refuses runs. The setting
        survives restarts."""
        return self._call("SetIntake", operations_pb2.SetIntakeRequest(closed=closed, reason=reason),
                          operations_pb2.SetIntakeResponse, timeout, "Operations")

    def set_device_pause(self, device: str, paused: bool, reason: str = "", *,
                         timeout: Optional[float] = None) -> operations_pb2.SetDevicePauseResponse:
        """Pauses or resumes a device. The server starts no work on a paused device. Resuming also lifts the fence that
        a fault of the device has set. The setting survives restarts. Raises NotFoundError."""
        return self._call("SetDevicePause", operations_pb2.SetDevicePauseRequest(device=device, paused=paused, reason=reason),
                          operations_pb2.SetDevicePauseResponse, timeout, "Operations")

    def accounts(self, tenant: str = "", *, first: Optional[datetime.date] = None, last: Optional[datetime.date] = None,
                 timeout: Optional[float] = None) -> List[operations_pb2.Account]:
        """Returns the usage of a tenant by day; "": the caller's tenant, "*": all tenants, by day and tenant. Days are
        in UTC, first and last included; the default is the last 30. `account.day` counts from 1970: datetime.date(1970,
        1, 1) + timedelta(account.day)."""
        request = operations_pb2.ListAccountsRequest(tenant=tenant, first_day=_day_of(first), last_day=_day_of(last))
        return self._pages("ListAccounts", request, operations_pb2.ListAccountsResponse, "accounts", timeout, "Operations")

    def config(self, *, timeout: Optional[float] = None) -> operations_pb2.GetConfigResponse:
        """Returns the server's configuration in force, as TOML with its hash."""
        return self._call("GetConfig", operations_pb2.GetConfigRequest(), operations_pb2.GetConfigResponse, timeout,
                          "Operations")

    def hosts(self, *, timeout: Optional[float] = None) -> List[operations_pb2.Host]:
        """Returns the hosts of the cluster by name. Raises FailedPreconditionError when the server is not part of a
        cluster."""
        return list(self._call("ListHosts", operations_pb2.ListHostsRequest(), operations_pb2.ListHostsResponse, timeout,
                               "Operations").hosts)

    def set_host_intake(self, host: str, intake: str, *, timeout: Optional[float] = None) -> operations_pb2.Host:
        """Sets whether a host of the cluster takes jobs. `intake`: "open"; "cordoned", which takes no more jobs; or
        "draining", which also gives back those that it has. The setting survives restarts of the host. Raises
        NotFoundError."""
        if intake not in _INTAKES:
            raise errors.InvalidArgumentError(f'There is no intake "{intake}"; intakes are {", ".join(_INTAKES)}.')
        request = operations_pb2.SetHostIntakeRequest(host=host, intake=_INTAKES[intake])  # type: ignore[arg-type]
        return self._call("SetHostIntake", request, operations_pb2.SetHostIntakeResponse, timeout, "Operations").host

    def audit(self, *, from_sequence: int = 0, tenant: str = "", count_max: int = 0,
              timeout: Optional[float] = None) -> List[Dict[str, Any]]:
        """Returns records of the audit, the oldest first."""
        request = admin_pb2.ReadAuditRequest(from_sequence=from_sequence, tenant=tenant, records_max=count_max)
        records: List[Dict[str, Any]] = []

        def take(message: bytes) -> None:
            records.extend(json.loads(record) for record in admin_pb2.ReadAuditResponse.FromString(message).records)

        core, deadline = self._client._core, deadline_of(timeout)
        self._client._drive(core.attempt(lambda metadata: Download("/hpvm.v1.Admin/ReadAudit", request.SerializeToString(), take,
                                                                   deadline, metadata)))
        return records
