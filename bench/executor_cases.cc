// SPDX-License-Identifier: Apache-2.0
// chain/N/executor, wide/N/executor, dag/N/executor: the engine's cases through an executor process and its private
// socket.
#include <fstream>
#include <future>
#include <iterator>

#include "base/hash.h"
#include "bench/processes.h"
#include "bench/registry.h"
#include "bench/sched/graph_peers.h"
#include "bench/workload.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kHandle = 1;

class ExecutorContender final : public GraphPeer {
 public:
  static StatusOr<std::unique_ptr<ExecutorContender>> Make(const Workload& workload) {
    auto contender = std::make_unique<ExecutorContender>();
    HPVMD_ASSIGN_OR_RETURN(contender->hub_, supervisor::ExecutorHub::Create());
    supervisor::ExecutorOptions options;
    options.program = ProgramFolder() + "/hpvm-executor";
    HPVMD_ASSIGN_OR_RETURN(contender->link_, supervisor::ExecutorLink::Start(*contender->hub_, options));
    HPVMD_RETURN_IF_ERROR(contender->link_->WaitReady(RealClock().Now() + std::chrono::seconds(20)).status());
    HPVMD_RETURN_IF_ERROR(contender->Prepare(ToDocument(workload)));
    contender->inputs_ = workload.buffers;
    contender->outputs_.resize(workload.buffers.size());
    contender->Bind();
    return contender;
  }

  StatusOr<Duration> Run() override {
    std::promise<StatusOr<supervisor::RunReply>> answer;
    const Time start = RealClock().Now();
    link_->Run(run_, [&](StatusOr<supervisor::RunReply> reply) { answer.set_value(std::move(reply)); });
    HPVMD_ASSIGN_OR_RETURN(supervisor::RunReply reply, answer.get_future().get());
    const Duration elapsed = RealClock().Now() - start;
    HPVMD_RETURN_IF_ERROR(reply.status());
    for (const internal::OutputTensor& output : reply.done.outputs()) {
      const size_t index = std::stoul(output.name().substr(1));
      const std::span<const uint8_t> data = reply.DataOf(output);
      if (index >= outputs_.size() || data.size() != sizeof(Elements)) {
        return Internal("The executor sent an output that was not asked for.");
      }
      __builtin_memcpy(outputs_[index].data(), data.data(), sizeof(Elements));
    }
    return elapsed;
  }
  const std::vector<Elements>& buffers() const override { return outputs_; }

 private:
  Status Prepare(const std::string& document) {
    std::ifstream stream(ProgramFolder() + "/bench_kernels.wasm", std::ios::binary);
    const std::vector<uint8_t> kernels(std::istreambuf_iterator<char>(stream), {});
    supervisor::PrepareInput input;
    input.handle = kHandle;
    input.document.bytes = {reinterpret_cast<const uint8_t*>(document.data()), document.size()};
    input.modules.push_back({"m", HashOf(kernels), {kernels, -1, 0}});
    std::promise<StatusOr<internal::Prepared>> answer;
    link_->Prepare(input, [&](StatusOr<internal::Prepared> reply) { answer.set_value(std::move(reply)); });
    HPVMD_ASSIGN_OR_RETURN(internal::Prepared reply, answer.get_future().get());
    HPVMD_RETURN_IF_ERROR(GetStatus(reply.status()));
    return ToStatus(GetDiagnostics(reply.diagnostics()));
  }

  void Bind() {
    run_.handle = kHandle;
    run_.options.set_node_records_max(0);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      run_.inputs.push_back({"b" + std::to_string(i),
                             ElementType::kU32,
                             {kBufferElements},
                             {reinterpret_cast<const uint8_t*>(inputs_[i].data()), sizeof(Elements)},
                             std::nullopt});
    }
  }

  std::unique_ptr<supervisor::ExecutorHub> hub_;
  std::unique_ptr<supervisor::ExecutorLink> link_;  // After hub_, so destroyed first.
  std::vector<Elements> inputs_, outputs_;
  supervisor::RunInput run_;
};

StatusOr<Measurement> Measure(const Workload& workload) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<ExecutorContender> ours, ExecutorContender::Make(workload));
  return MeasureWorkload(workload, *ours, 15);
}

}  // namespace

void AddExecutorCases(std::vector<Case>& cases) {
  const auto add = [&](const char* name, Workload (*make)(uint32_t)) {
    cases.push_back(
        {.suite = "overhead", .name = name, .metric = "us_per_node", .better = Better::kLower, .run = [make] {
           return Measure(make(10'000));
         }});
  };
  add("chain/10000/executor", MakeChain);
  add("wide/10000/executor", MakeWide);
  add("dag/10000/executor", MakeDag);
}

}  // namespace hpvm::bench
