// SPDX-License-Identifier: Apache-2.0
// What a command line says about one run of a graph: the document with its modules, files for inputs and outputs,
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

// The words as typed: "A=a.npy", "n=512".
struct GraphArguments {
  DocumentPlace place;
  std::map<std::string, std::vector<uint8_t>> module_bytes;  // By name, in place of the files that the document names.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> symbols;
  uint32_t repeat = 1;
  std::vector<std::string> rotate;  // "next=now".
  std::string until;
  std::vector<std::string> devices;  // Nodes run on these alone; empty: wherever the document lets them.
  bool is_array = false;             // "x=@index" may stand among the inputs.
};

struct GraphJob {
  std::string document;  // The text.
  graph::Graph graph;
  Modules modules;  // Those that the document names by file or by hash.
  std::map<std::string, Tensor> inputs;
  std::set<std::string> index_inputs;  // Bound to the index of an array's element.
  std::map<std::string, std::string> output_files;
  std::map<std::string, int64_t> symbols;
  Repetition repetition;
};

// Reads and validates the document (every fault is listed), reads its modules (paths are relative to the document's
// folder) and the inputs, and checks names, types, ranks and fixed extents before anything is sent.
StatusOr<GraphJob> LoadGraphJob(const GraphArguments& arguments);

// Writes each output that a file was named for. `outputs` must have them.
Status WriteOutputs(const GraphJob& job, const std::map<std::string, Tensor>& outputs);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_GRAPH_JOB_H_
