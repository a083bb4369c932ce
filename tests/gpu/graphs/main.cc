// SPDX-License-Identifier: Apache-2.0
// hpvm-gpu-graphs: runs whole graphs on a GPU repeatedly, with each variant of their kernels forced in turn, and
// compares every output with the result of the CPU device.
//
//   hpvm-gpu-graphs --corpus FILE --device opencl:0 --graphs I,... [--runs N] [--cache FOLDER]
//
// Prints lines of JSON for run.py: {"device"} first, {"begin": I} before graph I is touched, {"graph", "wish", ...}
// for each variant, and {"end"} after the last. Exits with 3 when the device is lost, because this process can run
// nothing further on it.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "nlohmann/json.hpp"
#include <CLI/CLI.hpp>

#include "backends/gpu/forced_variant.h"
#include "bench/local_engine.h"
#include "engine/prepared_graph.h"
#include "tests/gpu/graphs/corpus.h"

namespace hpvm::gpu_graphs {
namespace {

using bench::LocalEngine;
using nlohmann::json;
using Outputs = std::map<std::string, std::vector<uint8_t>>;

constexpr int kLost = 3;

struct Options {
  std::string corpus, device, cache, kernels = "gpu_graphs.wasm";
  std::vector<size_t> graphs;  // Positions in the corpus.
  uint32_t runs = 1, cpu_threads = 2;
  bool interprets = false;  // Also compares the CPU's results with the interpreter's.
  double run_seconds_max = 60;
};

void Print(const json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

// The inputs of one graph in host memory.
class Inputs {
 public:
  explicit Inputs(const Case& graph) {
    for (const Input& input : graph.inputs) {
      bytes_.push_back(Fill(graph, input));
      bindings_[input.name] = {input.type, input.shape, bytes_.back().data(), bytes_.back().size()};
    }
  }
  const std::map<std::string, engine::Binding>& bindings() const { return bindings_; }

 private:
  std::vector<std::vector<uint8_t>> bytes_;
  std::map<std::string, engine::Binding> bindings_;
};

StatusOr<Outputs> RunOnce(LocalEngine& local, engine::PreparedGraph& prepared, const Case& graph, const Inputs& inputs,
                          double seconds_max) {
  Outputs outputs;
  engine::RunRequest request;
  request.inputs = inputs.bindings();
  request.symbols = graph.symbols;
  request.repeat = graph.repeat;
  request.rotations = graph.rotations;
  request.until = graph.until;
  request.deadline = RealClock().Now() + std::chrono::milliseconds(static_cast<int64_t>(seconds_max * 1e3));
  request.allocate_output = [&outputs](const std::string& name, ElementType, const std::vector<uint64_t>&,
                                       uint64_t bytes) -> StatusOr<uint8_t*> {
    std::vector<uint8_t>& memory = outputs[name];
    memory.assign(bytes, 0xa5);
    return memory.data();
  };
  HPVMD_RETURN_IF_ERROR(local.engine().Run(prepared, request).status());
  return outputs;
}

// Returns an empty text when all bytes are equal.
std::string Difference(const Outputs& want, const Outputs& got) {
  for (const auto& [name, bytes] : want) {
    const std::vector<uint8_t>& other = got.at(name);
    if (other.size() != bytes.size()) {
      return name + " has " + std::to_string(other.size()) + " bytes instead of " + std::to_string(bytes.size());
    }
    size_t count = 0, first = 0;
    for (size_t i = bytes.size(); i-- > 0;) {
      count += bytes[i] != other[i] ? 1 : 0;
      first = bytes[i] != other[i] ? i : first;
    }
    if (count != 0) {
      return name + ": " + std::to_string(count) + " of " + std::to_string(bytes.size()) +
             " bytes differ, the first at " + std::to_string(first);
    }
  }
  return want.size() == got.size() ? "" : "Other outputs.";
}

// Returns the document with every node restricted to one device.
std::string OnlyOn(const std::string& device, const std::string& document) {
  json root = json::parse(document);
  for (json& node : root.at("nodes")) {
    node["devices"] = {device};
  }
  return root.dump();
}

uint32_t VariantsOf(const engine::PreparedGraph& prepared) {
  size_t most = 0;
  for (const std::unique_ptr<Executable>& loaded : prepared.loaded) {
    most = std::max(most, loaded->artifact().gpu.variants.size());
  }
  return static_cast<uint32_t>(most);
}

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {}

  Status Start() {
    LocalEngine::Options local{
        .kernels = options_.kernels, .cpu_threads = options_.cpu_threads, .cache_folder = options_.cache};
    HPVMD_ASSIGN_OR_RETURN(cpu_, LocalEngine::Start(local));
    if (options_.interprets) {
      local.devices = {"interp"};
      HPVMD_ASSIGN_OR_RETURN(interpreter_, LocalEngine::Start(local));
    }
    local.devices = {options_.device, "cpu"};  // The second is for memory of the host alone.
    local.gpu_forced = &forced_;
    HPVMD_ASSIGN_OR_RETURN(gpu_, LocalEngine::Start(local));
    Print({{"device", gpu_->device(0).info().name}});
    return absl::OkStatus();
  }

  // Returns false when the device is lost.
  bool RunGraph(const Case& graph) {
    const Inputs inputs(graph);
    const StatusOr<Outputs> want = Expect(graph, inputs);
    if (!want.ok()) {
      Print({{"graph", graph.name}, {"broken", Message(want.status())}});
      return true;
    }
    const Time begin = RealClock().Now();
    const StatusOr<std::shared_ptr<engine::PreparedGraph>> prepared =
        gpu_->Prepare(OnlyOn(gpu_->device(0).info().id, graph.document));
    if (!prepared.ok()) {
      Print({{"graph", graph.name}, {"refused", Message(prepared.status())}});
      return prepared.status().code() != absl::StatusCode::kUnavailable;
    }
    const uint32_t variants = VariantsOf(**prepared);
    Print({{"graph", graph.name}, {"variants", variants}, {"prepare_ms", Milliseconds(begin)}});
    // First the device's own choice, then each variant.
    for (uint32_t i = 0; i <= variants; ++i) {
      if (!RunVariant(graph, inputs, *want, **prepared, i == 0 ? kAutoVariant : i - 1)) {
        return false;
      }
    }
    return true;
  }

 private:
  static double Milliseconds(Time since) {
    return std::chrono::duration<double, std::milli>(RealClock().Now() - since).count();
  }

  StatusOr<Outputs> Expect(const Case& graph, const Inputs& inputs) {
    HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<engine::PreparedGraph> prepared, cpu_->Prepare(graph.document));
    HPVMD_ASSIGN_OR_RETURN(Outputs want, RunOnce(*cpu_, *prepared, graph, inputs, options_.run_seconds_max));
    if (interpreter_ != nullptr) {
      HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<engine::PreparedGraph> slow, interpreter_->Prepare(graph.document));
      HPVMD_ASSIGN_OR_RETURN(const Outputs other,
                             RunOnce(*interpreter_, *slow, graph, inputs, options_.run_seconds_max));
      const std::string difference = Difference(other, want);
      if (!difference.empty()) {
        return Internal("The processor's device and the interpreter differ: " + difference + ".");
      }
    }
    return want;
  }

  bool RunVariant(const Case& graph, const Inputs& inputs, const Outputs& want, engine::PreparedGraph& prepared,
                  uint32_t variant) {
    json line = {{"graph", graph.name}, {"wish", variant == kAutoVariant ? json("chosen") : json(variant)}};
    uint32_t runs = 0, differences = 0, losses = 0, failures = 0;
    const Time begin = RealClock().Now();
    for (; runs < options_.runs && losses == 0; ++runs) {
      // Each run has its groups in another shape.
      forced_.Set({variant, variant == kAutoVariant ? 0 : runs});
      const StatusOr<Outputs> got = RunOnce(*gpu_, prepared, graph, inputs, options_.run_seconds_max);
      if (!got.ok()) {
        const bool is_lost = got.status().code() == absl::StatusCode::kUnavailable ||
                             got.status().code() == absl::StatusCode::kDeadlineExceeded;
        ++(is_lost ? losses : failures);
        line["message"] = Message(got.status());
      } else if (const std::string difference = Difference(want, *got); !difference.empty()) {
        ++differences;
        line["message"] = difference;
      }
    }
    const gpu::ForcedVariant::Counts counts = forced_.TakeCounts();
    line.update({{"runs", runs},
                 {"differences", differences},
                 {"losses", losses},
                 {"failures", failures},
                 {"obeyed", counts.obeyed},
                 {"others", counts.others},
                 {"ms", Milliseconds(begin)}});
    Print(line);
    return losses == 0;
  }

  const Options& options_;
  gpu::ForcedVariant forced_;
  std::unique_ptr<LocalEngine> cpu_, interpreter_, gpu_;
};

int Run(const Options& options) {
  std::ifstream file(options.corpus, std::ios::binary);
  const StatusOr<std::vector<Case>> graphs =
      ReadCorpus(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  if (!graphs.ok()) {
    std::fprintf(stderr, "hpvm-gpu-graphs: %s\n", Message(graphs.status()).c_str());
    return 2;
  }
  Runner runner(options);
  if (const Status started = runner.Start(); !started.ok()) {
    std::fprintf(stderr, "hpvm-gpu-graphs: %s\n", Message(started).c_str());
    return 2;
  }
  for (const size_t i : options.graphs) {
    if (i >= graphs->size()) {
      std::fprintf(stderr, "hpvm-gpu-graphs: There is no graph %zu.\n", i);
      return 2;
    }
    Print({{"begin", i}});
    if (!runner.RunGraph((*graphs)[i])) {
      return kLost;
    }
  }
  Print({{"end", true}});
  return 0;
}

}  // namespace
}  // namespace hpvm::gpu_graphs

int main(int argc, char** argv) {
  CLI::App app{"Whole graphs on a GPU, each variant in turn, against the processor's device."};
  hpvm::gpu_graphs::Options options;
  app.add_option("--corpus", options.corpus, "What corpus.py wrote.")->required();
  app.add_option("--device", options.device, "As \"opencl:0\" or \"vulkan:0\".")->required();
  app.add_option("--runs", options.runs, "Of each variant.")->capture_default_str();
  app.add_option("--graphs", options.graphs, "Their places in the corpus, in the order in which they run.")
      ->delimiter(',');
  app.add_option("--cache", options.cache, "Folder of compiled kernels that processes share.");
  app.add_option("--kernels", options.kernels, "The module, beside this program.")->capture_default_str();
  app.add_option("--cpu-threads", options.cpu_threads, "Of the processor's device.")->capture_default_str();
  app.add_flag("--interpret", options.interprets, "Compare the processor's results with the interpreter's, too.");
  CLI11_PARSE(app, argc, argv);
  return hpvm::gpu_graphs::Run(options);
}
