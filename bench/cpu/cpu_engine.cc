// SPDX-License-Identifier: Apache-2.0
// hpvmd as a contender: a document with one node, prepared and run by the engine on the CPU device.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/cpu/cpu_contender.h"
#include "bench/cpu/cpu_watch.h"
#include "bench/local_engine.h"

namespace hpvm::bench {
namespace {

constexpr const char* kAccessNames[] = {"in", "out", "inout"};

void Append(std::string& list, const std::string& item) {
  list += list.empty() ? "" : ",";
  list += item;
}

std::string ScalarType(int32_t) { return "i32"; }
std::string ScalarType(float) { return "f32"; }
std::string ScalarType(double) { return "f64"; }

std::string Quoted(const std::string& name) { return "\"" + name + "\":"; }

std::string Dimensions(const std::array<uint64_t, 3>& extent) {
  return "[" + std::to_string(extent[0]) + "," + std::to_string(extent[1]) + "," + std::to_string(extent[2]) + "]";
}

// Graph inputs and outputs have the arrays' names; an output is "out_" followed by its name.
std::string Document(const CpuCase& problem, const std::string& math) {
  std::string inputs, outputs, ports, scalars, edges;
  for (const CpuArray& array : problem.arrays) {
    const std::string tensor = Quoted("type") + "\"" + std::string(Name(array.type)) + "\"," + Quoted("shape") + "[" +
                               std::to_string(array.count) + "]";
    Append(ports, "{" + Quoted("name") + "\"" + array.name + "\"," + Quoted("access") + "\"" +
                      kAccessNames[static_cast<int>(array.access)] + "\"," + tensor + "}");
    if (array.access != Access::kOut) {
      Append(inputs, Quoted(array.name) + "{" + tensor + "}");
      Append(edges, "{\"from\":\"" + array.name + "\",\"to\":\"node." + array.name + "\"}");
    }
    if (array.access != Access::kIn) {
      Append(outputs, Quoted("out_" + array.name) + "{" + tensor + "}");
      Append(edges, "{\"from\":\"node." + array.name + "\",\"to\":\"out_" + array.name + "\"}");
    }
  }
  for (const CpuScalar& scalar : problem.scalars) {
    char number[40];
    std::snprintf(number, sizeof(number), "%.17g", std::visit([](auto v) { return static_cast<double>(v); }, scalar));
    Append(scalars, "{\"name\":\"s" + std::to_string(&scalar - problem.scalars.data()) + "\",\"type\":\"" +
                        std::visit([](auto v) { return ScalarType(v); }, scalar) + "\",\"value\":" + number + "}");
  }
  return "{\"hpvm\":1,\"inputs\":{" + inputs + "},\"outputs\":{" + outputs +
         "},\"modules\":{\"m\":{\"kind\":\"wasm\",\"source\":{\"file\":\"cpu_kernels.wasm\"}}},"
         "\"nodes\":{\"node\":{\"ports\":[" +
         ports + "],\"scalars\":[" + scalars + "],\"instances\":" + Dimensions(problem.extent) +
         (problem.group[0] == 0 ? "" : ",\"group\":" + Dimensions(problem.group)) + ",\"math\":\"" + math +
         "\",\"variants\":[{\"module\":\"m\",\"entry\":\"" + problem.name + "\"}]}},\"edges\":[" + edges + "]}";
}

class EngineContender final : public CpuContender {
 public:
  EngineContender(std::string name, const CpuCase& problem, LocalEngine& engine, VariantWatch& watch,
                  std::shared_ptr<engine::PreparedGraph> graph)
      : CpuContender(std::move(name), problem),
        engine_(engine),
        watch_(watch),
        kernel_(watch.last_loaded()),
        graph_(std::move(graph)) {
    for (size_t i = 0; i < problem.arrays.size(); ++i) {
      const CpuArray& array = problem.arrays[i];
      engine::Binding binding{.type = array.type,
                              .shape = {array.count},
                              .data = array.initial.data(),
                              .bytes = array.count * ElementBytes(array.type)};
      if (array.access != Access::kOut) {
        request_.inputs[array.name] = binding;
      }
      if (array.access != Access::kIn) {
        binding.data = data(i);
        request_.outputs["out_" + array.name] = binding;
      }
    }
  }

  // Runs until the device has settled on a variant, then a few more times.
  Status Settle(double seconds) override {
    double spent = 0;
    for (int launch = 0, after = 0; launch < 2 || (after < 3 && spent < seconds); ++launch) {
      HPVMD_ASSIGN_OR_RETURN(const double once, Run());
      spent += once;
      after += watch_.HasSettled(kernel_) ? 1 : 0;
    }
    return absl::OkStatus();
  }
  std::string chosen() const override { return watch_.Chosen(kernel_); }

 private:
  bool copies() const override { return true; }
  // Returns the launch's duration from the job's record: from the first tile to the last. `hpvm-bench overhead`
  // measures the engine's share.
  StatusOr<double> Launch() override {
    HPVMD_ASSIGN_OR_RETURN(const engine::RunResult result, engine_.engine().Run(*graph_, request_));
    if (result.nodes.size() != 1) {
      return Internal("The run has " + std::to_string(result.nodes.size()) + " node records; it should have 1.");
    }
    return static_cast<double>(result.nodes[0].end_ns - result.nodes[0].start_ns) * 1e-9;
  }

  LocalEngine& engine_;
  VariantWatch& watch_;
  Sha256 kernel_;
  std::shared_ptr<engine::PreparedGraph> graph_;
  engine::RunRequest request_;
};

class LocalCpuEngine final : public CpuEngine {
 public:
  Status Start() {
    const auto wrap = [this](std::unique_ptr<Device> device) { return watch_.Wrap(std::move(device)); };
    HPVMD_ASSIGN_OR_RETURN(engine_,
                           LocalEngine::Start({.kernels = "bench_cpu/kernels.wasm", .tuning = &watch_, .wrap = wrap}));
    return absl::OkStatus();
  }
  StatusOr<std::unique_ptr<CpuContender>> Prepare(const CpuCase& problem, const std::string& math) override {
    HPVMD_ASSIGN_OR_RETURN(std::shared_ptr<engine::PreparedGraph> graph, engine_->Prepare(Document(problem, math)));
    return std::make_unique<EngineContender>(math == "fast" ? "ours_fast" : "ours", problem, *engine_, watch_,
                                             std::move(graph));
  }
  uint32_t threads() const override { return engine_->engine().devices()[0].compute_units; }
  std::string device() const override { return engine_->engine().devices()[0].name; }

 private:
  VariantWatch watch_;
  std::unique_ptr<LocalEngine> engine_;
};

}  // namespace

StatusOr<std::unique_ptr<CpuEngine>> CpuEngine::Start() {
  auto engine = std::make_unique<LocalCpuEngine>();
  HPVMD_RETURN_IF_ERROR(engine->Start());
  return engine;
}

}  // namespace hpvm::bench
