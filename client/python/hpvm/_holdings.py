# SPDX-License-Identifier: Apache-2.0
"""The steps of operations on what a tenant holds on the server: modules, prepared graphs, buffers and its quota.

Lists survive an outage of the server. Deletions are sent once, because a repeated one would report that nothing was found."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, List, Optional, Union

from hpvm._channel import Steps
from hpvm._core import Core
from hpvm.graph import Source, read_source
from hpvm.v1 import buffer_pb2, graph_pb2

if TYPE_CHECKING:
    from hpvm.v1 import admin_pb2


def put_module(core: Core, source: Source, name: str, deadline: Optional[float]) -> "Steps[str]":
    called = name or ("module" if isinstance(source, (bytes, bytearray)) else os.path.basename(os.fspath(source)))
    return (yield from core.put_module(read_source(source, pathlib.Path(), called), called, deadline))


def modules(core: Core, deadline: Optional[float]) -> "Steps[List[graph_pb2.StoredModule]]":
    return (yield from core.pages("ListModules", graph_pb2.ListModulesRequest(), graph_pb2.ListModulesResponse, "modules", deadline))


def delete_module(core: Core, module: Union[str, graph_pb2.StoredModule], deadline: Optional[float]) -> "Steps[int]":
    request = graph_pb2.DeleteModuleRequest(sha256=getattr(module, "sha256", module))
    return int((yield from core.once("DeleteModule", request, graph_pb2.DeleteModuleResponse, deadline)).freed_bytes)


def prepared_graphs(core: Core, deadline: Optional[float]) -> "Steps[List[graph_pb2.PreparedGraph]]":
    return (yield from core.pages("ListGraphs", graph_pb2.ListGraphsRequest(), graph_pb2.ListGraphsResponse, "graphs", deadline))


def buffers(core: Core, deadline: Optional[float]) -> "Steps[List[buffer_pb2.Buffer]]":
    return (yield from core.pages("ListBuffers", buffer_pb2.ListBuffersRequest(), buffer_pb2.ListBuffersResponse, "buffers",
                                  deadline))


def usage(core: Core, tenant: str, deadline: Optional[float]) -> "Steps[admin_pb2.GetUsageResponse]":
    from hpvm.v1 import admin_pb2
    request = admin_pb2.GetUsageRequest(tenant=tenant)
    return (yield from core.call("GetUsage", request, admin_pb2.GetUsageResponse, deadline, service="Admin"))
