// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/sched_graph.h"

#include <utility>
#include <variant>

#include "nlohmann/json.hpp"

#include "base/clock.h"

namespace hpvm::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAccessNames[] = {"in", "out", "inout"};

Json Tensor(ElementType type, uint64_t count) {
  return {{"type", std::string(Name(type))}, {"shape", Json::array({count})}};
}

Json ScalarOf(const std::string& name, const CpuScalar& scalar) {
  if (const auto* integer = std::get_if<int32_t>(&scalar)) {
    return {{"name", name}, {"type", "i32"}, {"value", *integer}};
  }
  const bool is_double = std::holds_alternative<double>(scalar);
  return {{"name", name},
          {"type", is_double ? "f64" : "f32"},
          {"value", std::visit([](auto value) { return static_cast<double>(value); }, scalar)}};
}

Json NodeOf(const GraphNode& node) {
  Json ports = Json::array(), scalars = Json::array();
  for (const GraphPort& port : node.ports) {
    Json entry = Tensor(port.type, port.count);
    entry["name"] = port.name;
    entry["access"] = kAccessNames[static_cast<int>(port.access)];
    ports.push_back(entry);
  }
  for (size_t i = 0; i < node.scalars.size(); ++i) {
    scalars.push_back(ScalarOf("s" + std::to_string(i), node.scalars[i]));
  }
  Json json = {{"ports", ports},
               {"scalars", scalars},
               {"instances", node.extent},
               {"variants", Json::array({{{"module", "m"}, {"entry", node.entry}}})}};
  if (!node.device.empty()) {
    json["devices"] = Json::array({node.device});
  }
  return json;
}

}  // namespace

std::string BenchGraph::Document() const {
  Json graph = {{"hpvm", 1}};
  graph["inputs"] = Json::object();
  for (const auto& [name, input] : inputs) {
    graph["inputs"][name] = Tensor(input.type, input.count);
  }
  graph["outputs"] = Json::object();
  graph["modules"] = {{"m", {{"kind", "wasm"}, {"source", {{"file", "kernels.wasm"}}}}}};
  graph["nodes"] = Json::object();
  graph["edges"] = Json::array();
  for (const GraphNode& node : nodes) {
    graph["nodes"][node.name] = NodeOf(node);
    for (const GraphPort& port : node.ports) {
      if (port.access != Access::kOut) {
        graph["edges"].push_back({{"from", port.from}, {"to", node.name + "." + port.name}});
      }
      if (!port.to.empty()) {
        graph["outputs"][port.to] = Tensor(port.type, port.count);
        graph["edges"].push_back({{"from", node.name + "." + port.name}, {"to", port.to}});
      }
    }
  }
  return graph.dump();
}

StatusOr<BenchRun> BenchRun::Prepare(LocalEngine& engine, const BenchGraph& graph) {
  BenchRun run;
  run.engine_ = &engine;
  HPVMD_ASSIGN_OR_RETURN(run.graph_, engine.Prepare(graph.Document()));
  const auto binding = [&run](ElementType type, uint64_t count, uint8_t* data) {
    const uint64_t bytes = count * ElementBytes(type);
    run.blocks_.all.push_back(std::make_shared<HostBlock>(data, bytes));
    return engine::Binding{
        .type = type, .shape = {count}, .data = data, .bytes = bytes, .block = run.blocks_.all.back()};
  };
  for (const auto& [name, input] : graph.inputs) {
    run.request_.inputs[name] = binding(input.type, input.count, input.data);
  }
  for (const GraphNode& node : graph.nodes) {
    for (const GraphPort& port : node.ports) {
      if (!port.to.empty()) {
        PageMemory& memory =
            run.outputs_.emplace(port.to, PageMemory(port.count * ElementBytes(port.type))).first->second;
        run.request_.outputs[port.to] = binding(port.type, port.count, memory.data());
      }
    }
  }
  return run;
}

StatusOr<double> BenchRun::Run() {
  const Time start = RealClock().Now();
  HPVMD_ASSIGN_OR_RETURN(last_, engine_->engine().Run(*graph_, request_));
  return std::chrono::duration<double>(RealClock().Now() - start).count();
}

}  // namespace hpvm::bench
