// SPDX-License-Identifier: Apache-2.0
// One run of a graph as the command line describes it: the document with its modules, files for inputs and outputs,
// symbols.
#ifndef HPVMD_CLIENT_CTL_GRAPH_JOB_H_
#define HPVMD_CLIENT_CTL_GRAPH_JOB_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/ctl/document_files.h"

#include "base/status.h"
#include "graph/graph.h"
#include "hpvm/client.h"
#include "hpvm/repetition.h"
#include "hpvm/tensor.h"

namespace hpvm::ctl {

// GraphArguments holds the words as typed: "A=a.npy", "n=512".
struct GraphArguments {
  DocumentSource place;
  std::map<std::string, std::vector<uint8_t>> module_bytes;  // Replaces the document's files; keyed by name.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> symbols;
  uint32_t repeat = 1;
  std::vector<std::string> rotate;  // "next=now".
  std::string until;
  std::vector<std::string> devices;  // Nodes run only on these devices; wherever the document allows when empty.
  bool is_array = false;             // Inputs may be "x=@index".
};

struct GraphJob {
  std::string document;  // Text of the document.
  graph::Graph graph;
  Modules modules;  // Modules that the document names by file or by hash.
  std::map<std::string, Tensor> inputs;
  std::set<std::string> index_inputs;  // Bound to the index of an array element.
  std::map<std::string, std::string> output_files;
  std::map<std::string, int64_t> symbols;
  Repetition repetition;
};

// Reads and validates the document (listing every error), reads its modules (paths are relative to the document's
// folder) and the inputs, and checks names, types, ranks and fixed extents before anything is sent.
StatusOr<GraphJob> LoadGraphJob(const GraphArguments& arguments);

// Writes each output that has a file. `outputs` must contain them.
Status WriteOutputs(const GraphJob& job, const std::map<std::string, Tensor>& outputs);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_GRAPH_JOB_H_
