// SPDX-License-Identifier: Apache-2.0
// Checks a graph document against the code of its modules, as a server does when it prepares the graph: entries,
// numbers and types of parameters, and the width of the elements that kernels read and write.
#ifndef HPVMD_CLIENT_CTL_GRAPH_MODULES_H_
#define HPVMD_CLIENT_CTL_GRAPH_MODULES_H_

#include "client/ctl/document_files.h"

#include "base/diagnostic.h"
#include "base/status.h"
#include "graph/graph.h"

namespace hpvm::ctl {

// Compiles, in a separate process, each kernel of the WebAssembly modules that the document contains or names as files,
// reads the entry points of its SPIR-V modules, and returns the faults with the places of their nodes. OpenCL C, whose
// macros only a compiler expands, and modules that the document names by hash are not read. Returns kNotFound when
// there is a WebAssembly module and no compiler is installed.
StatusOr<Diagnostics> CheckModules(const graph::Graph& graph, const DocumentSource& place);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_GRAPH_MODULES_H_
