// SPDX-License-Identifier: Apache-2.0
#include "engine/run/run_iterations.h"

#include <algorithm>
#include <utility>

#include "engine/run/run_records.h"

namespace hpvm::engine {
namespace {

const graph::Node& Root(const PreparedGraph& graph) { return graph.graph.node(graph.graph.root()); }

// Returns true when kernels may print or report findings, which are noted with the repetition.
bool MaySpeak(const PreparedGraph& graph) {
  return graph.is_checked || std::ranges::any_of(graph.loaded, [](const std::unique_ptr<Executable>& executable) {
           return !executable->artifact().formats.empty();
         });
}

}  // namespace

Iterations::Iterations(const IterationContext& context, Plan& plan)
    : context_(context), plan_(plan), stages_(context.options, plan) {
  timings_.fill(plan.timings);
  totals_.resize(plan.timings.size());
}

Status Iterations::Run(uint32_t last, Progress* progress, RunResult* result) {
  HPVMD_RETURN_IF_ERROR(Import());
  HPVMD_RETURN_IF_ERROR(SetScalars());
  SwapTables();
  reads_between_ = FindReadsBetween();
  if (stages_.has_drivers() && last - progress->repetitions > 1 && !reads_between_) {
    depth_ = StageRunner::kPassesMax;
    const size_t tasks = plan_.timings.size();
    other_timings_.resize((depth_ - 1) * tasks);
    for (size_t i = 1; i < depth_; ++i) {
      timings_[i] = std::span(other_timings_).subspan((i - 1) * tasks, tasks);
    }
  }
  if (plan_.prologue.segment_count > 0) {
    HPVMD_RETURN_IF_ERROR(stages_.Run({&plan_.prologue, plan_.buffers, plan_.timings}));
  }
  first_pass_ = stages_.passes();
  Status status = RunBodies(last, progress, result);
  if (!status.ok() && stages_.failure().pass >= first_pass_) {
    EndUntil(stages_.failure().pass - first_pass_, progress, result);
  }
  HPVMD_RETURN_IF_ERROR(status);
  if (plan_.epilogue.segment_count > 0) {
    HPVMD_RETURN_IF_ERROR(stages_.Run({&plan_.epilogue, tables(), plan_.timings}));
    HPVMD_RETURN_IF_ERROR(stages_.Finish());
  }
  result->moved_bytes += plan_.prologue.moved_bytes + plan_.body.moved_bytes * begun_ + plan_.epilogue.moved_bytes;
  result->spilled_bytes +=
      plan_.prologue.spilled_bytes + plan_.body.spilled_bytes * begun_ + plan_.epilogue.spilled_bytes;
  return absl::OkStatus();
}

Status Iterations::RunBodies(uint32_t last, Progress* progress, RunResult* result) {
  const uint64_t bodies = last - progress->repetitions;
  const uint32_t before = progress->repetitions;
  while (begun_ < bodies && !progress->is_converged) {
    if (context_.options.log != nullptr) {
      context_.log.SetRepetition(before + static_cast<uint32_t>(begun_));
    }
    ++begun_;
    HPVMD_RETURN_IF_ERROR(stages_.Run({&plan_.body, tables(), timings_[(begun_ - 1) % depth_]}));
    HPVMD_RETURN_IF_ERROR(stages_.Finish(stages_.passes() - std::min(stages_.passes(), depth_ - 1)));
    EndUntil(begun_ - std::min(begun_, depth_ - 1), progress, result);
    HPVMD_RETURN_IF_ERROR(CheckDeviceTime(*result));
    if (reads_between_) {
      HPVMD_RETURN_IF_ERROR(ReadBetween(begun_ == bodies, progress));
    }
  }
  HPVMD_RETURN_IF_ERROR(stages_.Finish());
  EndUntil(begun_, progress, result);
  return CheckDeviceTime(*result);
}

Status Iterations::CheckDeviceTime(const RunResult& result) const {
  const Duration most = context_.options.device_time_max;
  Duration sum{0};
  for (const Duration& time : result.device_time) {
    sum += time;
  }
  if (most == Duration{0} || sum <= most) {
    return absl::OkStatus();
  }
  if (context_.options.over_device_time != nullptr) {
    *context_.options.over_device_time = true;
  }
  return ResourceExhausted("The run took " + std::to_string(sum / std::chrono::milliseconds(1)) +
                           " ms of device time; the limit is " + std::to_string(most / std::chrono::milliseconds(1)) +
                           " ms.");
}

// Records the end of the first `bodies` bodies.
void Iterations::EndUntil(uint64_t bodies, Progress* progress, RunResult* result) {
  for (; ended_ < bodies; ++ended_) {
    CountTime(plan_, timings_[ended_ % depth_], totals_, &result->device_time);
    ++progress->repetitions;
  }
}

std::span<const NodeTiming> Iterations::broken_timings() const {
  const uint64_t pass = stages_.failure().pass;
  return timings_[pass < first_pass_ ? 0 : (pass - first_pass_) % depth_];
}

// Memory that is the same as in the last run is still imported.
Status Iterations::Import() {
  for (PortImport& import : plan_.imports) {
    const Binding& binding = *context_.ports[import.port];
    if (import.buffer != nullptr && import.data == binding.data && import.block == binding.block.get()) {
      continue;
    }
    Device& device = *plan_.devices[import.device];
    if (!device.info().host_visible) {
      import.buffer = MakeHostView(binding.data, import.bytes, binding.block);
    } else {
      // An empty tensor has no memory to import.
      StatusOr<std::unique_ptr<Buffer>> buffer =
          device.Allocate({.bytes = import.bytes, .import = import.bytes == 0 ? nullptr : binding.data});
      if (!buffer.ok()) {
        const std::vector<graph::Port>& ports = Root(context_.graph).ports;
        return While(buffer.status(), (import.port < ports.size() ? "importing port \"" + ports[import.port].name + "\""
                                                                  : "importing a value that was computed before") +
                                          " on device " + device.info().id);
      }
      import.buffer = *std::move(buffer);
    }
    import.data = binding.data;
    import.block = binding.block.get();
    plan_.buffers[import.device][import.slot] = import.buffer.get();
  }
  return absl::OkStatus();
}

Status Iterations::SetScalars() {
  for (const ScalarSource& source : plan_.scalar_sources) {
    HPVMD_ASSIGN_OR_RETURN(plan_.scalars[source.slot], ScalarBits(Root(context_.graph).ports[source.port],
                                                                  *context_.ports[source.port], source.type));
  }
  return absl::OkStatus();
}

void Iterations::SwapTables() {
  if (plan_.swaps.empty()) {
    return;
  }
  swapped_ = plan_.buffers;
  for (std::vector<Buffer*>& table : swapped_) {
    for (const auto& [a, b] : plan_.swaps) {
      std::swap(table[a], table[b]);
    }
  }
}

// Returns the tables of the body that began last, or is about to begin.
std::span<const std::vector<Buffer*>> Iterations::tables() const {
  return begun_ % 2 == 0 && begun_ > 0 && !swapped_.empty() ? swapped_ : plan_.buffers;
}

bool Iterations::FindReadsBetween() const {
  return context_.repetition.until.has_value() || !plan_.on_host.empty() ||
         (context_.options.log != nullptr && MaySpeak(context_.graph));
}

// Returns the address at which the host finds an output after a body, before the next one.
const uint8_t* Iterations::OnHost(uint32_t output) const {
  for (const HostOutput& held : plan_.on_host) {
    if (held.port == output) {
      return tables()[held.device][held.slot]->host() + held.offset;
    }
  }
  return context_.ports[output]->data;
}

Status Iterations::ReadBetween(bool is_last, Progress* progress) {
  const graph::Node& root = Root(context_.graph);
  if (const auto until = context_.repetition.until; until.has_value()) {
    progress->is_converged = IsNotZero(root.ports[*until].type, OnHost(*until));
  }
  if (is_last || progress->is_converged) {
    return absl::OkStatus();
  }
  for (const ScalarSource& source : plan_.scalar_sources) {
    for (const scheduler::Carry& carry : plan_.carries) {
      if (carry.input == source.port) {
        Binding binding = *context_.ports[source.port];
        binding.data = const_cast<uint8_t*>(OnHost(carry.output));  // Only read.
        HPVMD_ASSIGN_OR_RETURN(plan_.scalars[source.slot], ScalarBits(root.ports[source.port], binding, source.type));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::engine
