// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_job.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "client/ctl/graph_devices.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/scalar_word.h"

#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/number.h"
#include "graph/flatten.h"
#include "graph/parse.h"

namespace hpvm::ctl {
namespace {

std::string PortNames(const graph::Graph& graph, graph::Access access) {
  std::string names;
  for (const graph::Port& port : graph.node(graph.root()).ports) {
    if (port.access == access) {
      names += (names.empty() ? "\"" : ", \"") + port.name + "\"";
    }
  }
  return names.empty() ? "none" : names;
}

StatusOr<const graph::Port*> FindPort(const graph::Graph& graph, graph::Access access, const std::string& name) {
  for (const graph::Port& port : graph.node(graph.root()).ports) {
    if (port.access == access && port.name == name) {
      return &port;
    }
  }
  bool is_input = access == graph::Access::kIn;
  return InvalidArgument(std::string("The graph has no ") + (is_input ? "input" : "output") + " \"" + name +
                         "\"; it has " + PortNames(graph, access) + ".");
}

// Returns type and shape of a raw file: every extent must follow from the given symbols.
std::optional<TensorHint> HintFor(const graph::Graph& graph, const graph::Port& port,
                                  const std::map<std::string, int64_t>& symbols) {
  graph::SymbolValues values(graph.symbols.size(), 0);
  std::vector<bool> known(graph.symbols.size(), false);
  for (size_t i = 0; i < graph.symbols.size(); ++i) {
    if (auto it = symbols.find(graph.symbols[i]); it != symbols.end()) {
      values[i] = it->second;
      known[i] = true;
    }
  }
  TensorHint hint{port.type, {}};
  for (const graph::Expr& extent : port.shape) {
    for (const graph::Expr::Term& term : extent.terms) {
      if (term.kind == graph::Expr::Kind::kSymbol && !known[static_cast<size_t>(term.value)]) {
        return std::nullopt;
      }
    }
    StatusOr<int64_t> value = graph::Evaluate(extent, values);
    if (!value.ok() || *value < 0) {
      return std::nullopt;
    }
    hint.shape.push_back(static_cast<uint64_t>(*value));
  }
  return hint;
}

Status CheckInput(const graph::Port& port, const Tensor& tensor) {
  std::string want;
  for (const graph::Expr& extent : port.shape) {
    want += (want.empty() ? "" : ", ") + extent.text;
  }
  if (tensor.type != port.type || tensor.shape.size() != port.shape.size()) {
    return InvalidArgument("Input \"" + port.name + "\" is " + Describe(tensor.type, tensor.shape) +
                           ", but the graph declares " + std::string(Name(port.type)) + "[" + want + "].");
  }
  return absl::OkStatus();
}

// Stands in place of a file for the index of an array element; a file of that name is written "./@index".
constexpr char kIndexWord[] = "@index";

Status CheckIndexInput(const graph::Port& port, bool is_array) {
  if (!is_array) {
    return InvalidArgument("Input \"" + port.name + "\" is given as @index, which only `submit --array` has.");
  }
  const bool is_integer = port.type >= ElementType::kI8 && port.type <= ElementType::kU64;
  if (!port.shape.empty() || !is_integer) {
    return InvalidArgument("Input \"" + port.name + "\" cannot be an index: the graph declares " +
                           std::string(Name(port.type)) + " of rank " + std::to_string(port.shape.size()) +
                           ", and an index is an integer of rank 0.");
  }
  return absl::OkStatus();
}

StatusOr<int64_t> ParseInteger(const std::string& text, const std::string& name) {
  const std::optional<int64_t> value = ParseNumber<int64_t>(text);
  if (!value.has_value()) {
    return InvalidArgument("The value of symbol \"" + name + "\" (" + text +
                           ") is not a 64-bit integer. Numbers with fractions come from inputs of rank 0, which a "
                           "scalar names: \"value\": {\"input\": \"" +
                           name + "\"}.");
  }
  return *value;
}

Status ReadModules(const GraphArguments& arguments, GraphJob* job) {
  const auto is_named = [&](const std::string& name) {
    return std::any_of(job->graph.modules.begin(), job->graph.modules.end(),
                       [&](const graph::Module& module) { return module.name == name; });
  };
  for (const auto& [name, bytes] : arguments.module_bytes) {
    if (!is_named(name)) {
      return InvalidArgument("The graph has no module \"" + name + "\".");
    }
    job->modules.bytes[name] = bytes;
  }
  for (const graph::Module& module : job->graph.modules) {
    if (arguments.module_bytes.contains(module.name)) {
      continue;
    }
    if (module.source == graph::Module::Source::kHash) {
      job->modules.hashes[module.name] = ToHex(*module.hash);
    }
    if (module.source != graph::Module::Source::kFile) {
      continue;
    }
    std::string name;
    HPVMD_ASSIGN_OR_RETURN(const std::string bytes, ReadModuleOf(arguments.place, module, &name));
    job->modules.bytes[module.name].assign(bytes.begin(), bytes.end());
  }
  return absl::OkStatus();
}

// Fails before the work is done, not when the results cannot be written.
Status CheckOutputFile(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    return InvalidArgument("The file \"" + file + "\" (--output) is a folder.");
  }
  return absl::OkStatus();
}

// `word` is a file name, or a number for an input of rank 0.
StatusOr<Tensor> ReadInput(const GraphJob& job, const graph::Port& port, const std::string& word) {
  if (port.shape.empty() && IsScalarWord(word)) {
    StatusOr<Tensor> tensor = ScalarTensor(port.type, word);
    return tensor.ok() ? std::move(tensor) : While(tensor.status(), "reading input \"" + port.name + "\"");
  }
  HPVMD_ASSIGN_OR_RETURN(Tensor tensor, ReadTensorFile(word, HintFor(job.graph, port, job.symbols)));
  HPVMD_RETURN_IF_ERROR(While(CheckInput(port, tensor), "reading \"" + word + "\""));
  return tensor;
}

// Reads a symbol's value; also a number for an input of rank 0, so that users need not know which of the two a name
// is.
Status ReadSymbol(const std::string& word, GraphJob* job) {
  HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(word, "--symbol"));
  const std::vector<std::string>& symbols = job->graph.symbols;
  const StatusOr<const graph::Port*> input = FindPort(job->graph, graph::Access::kIn, pair.first);
  const bool is_symbol = std::find(symbols.begin(), symbols.end(), pair.first) != symbols.end();
  if (is_symbol || !input.ok() || !(*input)->shape.empty()) {
    HPVMD_ASSIGN_OR_RETURN(job->symbols[pair.first], ParseInteger(pair.second, pair.first));
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(Tensor tensor, ReadInput(*job, **input, pair.second));
  if (!job->inputs.emplace(pair.first, std::move(tensor)).second) {
    return InvalidArgument("Input \"" + pair.first + "\" is given twice.");
  }
  return absl::OkStatus();
}

Status ReadInputs(const GraphArguments& arguments, GraphJob* job) {
  for (const std::string& word : arguments.inputs) {
    HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(word, "--input"));
    HPVMD_ASSIGN_OR_RETURN(const graph::Port* port, FindPort(job->graph, graph::Access::kIn, pair.first));
    if (job->index_inputs.contains(pair.first)) {
      return InvalidArgument("Input \"" + pair.first + "\" is given twice.");
    }
    if (pair.second == kIndexWord) {
      HPVMD_RETURN_IF_ERROR(CheckIndexInput(*port, arguments.is_array));
      if (!job->index_inputs.insert(pair.first).second || job->inputs.contains(pair.first)) {
        return InvalidArgument("Input \"" + pair.first + "\" is given twice.");
      }
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(Tensor tensor, ReadInput(*job, *port, pair.second));
    if (!job->inputs.emplace(pair.first, std::move(tensor)).second) {
      return InvalidArgument("Input \"" + pair.first + "\" is given twice.");
    }
  }
  for (const graph::Port& port : job->graph.node(job->graph.root()).ports) {
    if (port.access == graph::Access::kIn && !job->inputs.contains(port.name) &&
        !job->index_inputs.contains(port.name)) {
      return InvalidArgument("Input \"" + port.name + "\" is not given; add --input " + port.name + "=FILE.");
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<GraphJob> LoadGraphJob(const GraphArguments& arguments) {
  GraphJob job;
  HPVMD_ASSIGN_OR_RETURN(job.document, ReadDocument(arguments.place));
  HPVMD_ASSIGN_OR_RETURN(job.graph, ParseDocument(arguments.place.document, job.document));
  if (!arguments.devices.empty()) {
    HPVMD_RETURN_IF_ERROR(RestrictDevices(arguments.devices, &job.document));
    HPVMD_ASSIGN_OR_RETURN(job.graph, ParseDocument(arguments.place.document, job.document));
  }
  job.repetition.repeat = arguments.repeat;
  for (const std::string& word : arguments.symbols) {
    HPVMD_RETURN_IF_ERROR(ReadSymbol(word, &job));
  }
  for (const std::string& word : arguments.outputs) {
    HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(word, "--output"));
    HPVMD_RETURN_IF_ERROR(FindPort(job.graph, graph::Access::kOut, pair.first).status());
    HPVMD_RETURN_IF_ERROR(CheckOutputFile(pair.second));
    job.output_files[pair.first] = pair.second;
  }
  for (const std::string& word : arguments.rotate) {
    HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(word, "--rotate"));
    HPVMD_RETURN_IF_ERROR(FindPort(job.graph, graph::Access::kOut, pair.first).status());
    HPVMD_RETURN_IF_ERROR(FindPort(job.graph, graph::Access::kIn, pair.second).status());
    if (!job.repetition.rotations.emplace(pair).second) {
      return InvalidArgument("Output \"" + pair.first + "\" is rotated twice.");
    }
  }
  if (!arguments.until.empty()) {
    HPVMD_RETURN_IF_ERROR(FindPort(job.graph, graph::Access::kOut, arguments.until).status());
    job.repetition.until = arguments.until;
  }
  HPVMD_RETURN_IF_ERROR(ReadModules(arguments, &job));
  HPVMD_RETURN_IF_ERROR(ReadInputs(arguments, &job));
  return job;
}

Status WriteOutputs(const GraphJob& job, const std::map<std::string, Tensor>& outputs) {
  for (const auto& [name, file] : job.output_files) {
    auto it = outputs.find(name);
    if (it == outputs.end()) {
      return Internal("The server did not return output \"" + name + "\".");
    }
    HPVMD_RETURN_IF_ERROR(While(WriteTensorFile(file, it->second), "storing output \"" + name + "\""));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::ctl
