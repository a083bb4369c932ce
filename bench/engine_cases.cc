// SPDX-License-Identifier: Apache-2.0
// chain/N, wide/N, dag/N: the cost per node of a prepared graph in the engine alone, with coherence and timing on.
#include "bench/engine_cases.h"

#include <string>

#include "base/limits.h"
#include "bench/local_engine.h"
#include "bench/registry.h"
#include "bench/sched/graph_peers.h"
#include "bench/workload.h"

namespace hpvm::bench {
namespace {

// Fewer rounds for longer ones, so that a case takes seconds.
int RoundsFor(uint32_t tasks) { return tasks <= 1'000 ? 40 : tasks <= 10'000 ? 15 : 5; }

// For a million nodes in one document.
graph::Limits RoomyLimits() {
  graph::Limits limits;
  limits.document_bytes_max = 4 * limits::kGiB;
  limits.nodes_max = 2'000'000;
  limits.edges_max = 8'000'000;
  return limits;
}

// The engine's side: every buffer is an input and an output of its own.
class EngineContender final : public GraphPeer {
 public:
  static StatusOr<std::unique_ptr<EngineContender>> Make(const Workload& workload, uint32_t workers) {
    auto contender = std::make_unique<EngineContender>();
    LocalEngine::Options options;
    options.cpu_threads = workers;
    options.graph_limits = RoomyLimits();
    HPVMD_ASSIGN_OR_RETURN(contender->engine_, LocalEngine::Start(options));
    HPVMD_ASSIGN_OR_RETURN(contender->graph_, contender->engine_->Prepare(ToDocument(workload)));
    contender->inputs_ = workload.buffers;
    contender->outputs_.resize(workload.buffers.size());
    contender->BindAll();
    return contender;
  }

  StatusOr<Duration> Run() override {
    for (Elements& output : outputs_) {
      output.fill(0);
    }
    const Time start = RealClock().Now();
    const StatusOr<engine::RunResult> result = engine_->engine().Run(*graph_, request_);
    const Duration elapsed = RealClock().Now() - start;
    HPVMD_RETURN_IF_ERROR(result.status());
    return elapsed;
  }
  const std::vector<Elements>& buffers() const override { return outputs_; }

 private:
  void BindAll() {
    const auto bind = [](Elements& elements) {
      return engine::Binding{.type = ElementType::kU32,
                             .shape = {kBufferElements},
                             .data = reinterpret_cast<uint8_t*>(elements.data()),
                             .bytes = sizeof(Elements)};
    };
    for (size_t i = 0; i < inputs_.size(); ++i) {
      request_.inputs["b" + std::to_string(i)] = bind(inputs_[i]);
      request_.outputs["o" + std::to_string(i)] = bind(outputs_[i]);
    }
  }

  std::unique_ptr<LocalEngine> engine_;
  std::shared_ptr<engine::PreparedGraph> graph_;
  std::vector<Elements> inputs_, outputs_;
  engine::RunRequest request_;
};

}  // namespace

StatusOr<Measurement> MeasureEngine(const Workload& workload, int rounds, uint32_t workers) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<EngineContender> ours, EngineContender::Make(workload, workers));
  return MeasureWorkload(workload, *ours, rounds, workers);
}

void AddEngineCases(std::vector<Case>& cases) {
  struct Shape {
    const char* name;
    Workload (*make)(uint32_t tasks);
  };
  for (const Shape& shape : {Shape{"chain/", MakeChain}, Shape{"wide/", MakeWide}, Shape{"dag/", MakeDag}}) {
    for (uint32_t tasks : {1'000u, 10'000u, 100'000u}) {
      cases.push_back({.suite = "overhead",
                       .name = shape.name + std::to_string(tasks),
                       .metric = "us_per_node",
                       .better = Better::kLower,
                       .run = [make = shape.make, tasks] { return MeasureEngine(make(tasks), RoundsFor(tasks)); }});
    }
  }
}

}  // namespace hpvm::bench
