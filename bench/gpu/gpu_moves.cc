// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_moves.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/cpu/cpu_contender.h"
#include "bench/workload.h"

namespace hpvm::bench {
namespace {

constexpr int kRounds = 7;

engine::Binding BindingOf(Elements& elements) {
  return {.type = ElementType::kU32,
          .shape = {kBufferElements},
          .data = reinterpret_cast<uint8_t*>(elements.data()),
          .bytes = sizeof(Elements)};
}

}  // namespace

StatusOr<double> MeasureNodes(LocalEngine& rig, uint32_t count, bool dependent) {
  const Workload workload = dependent ? MakeChain(count) : MakeWide(count);
  HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<engine::PreparedGraph> graph,
                         rig.Prepare(ToDocument(workload, rig.device(0).info().id)));
  std::vector<Elements> inputs = workload.buffers, outputs(workload.buffers.size());
  engine::RunRequest request;
  for (size_t i = 0; i < inputs.size(); ++i) {
    request.inputs["b" + std::to_string(i)] = BindingOf(inputs[i]);
    request.outputs["o" + std::to_string(i)] = BindingOf(outputs[i]);
  }
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    Status status;
    const double seconds = Seconds([&] { status = rig.engine().Run(*graph, request).status(); });
    HPVMD_RETURN_IF_ERROR(status);
    best = round == 0 ? seconds : std::min(best, seconds);
  }
  if (outputs != Evaluate(workload)) {
    return Internal("The graph of " + std::to_string(count) + " tiny nodes computed something else.");
  }
  return best / count;
}

StatusOr<GpuCopies> MeasureGpuCopies(LocalEngine& rig, uint64_t bytes) {
  Device& device = rig.device(0);
  PageMemory memory[2] = {PageMemory(bytes), PageMemory(bytes)};
  for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    std::memcpy(memory[0].data() + i, &i, sizeof(i));
  }
  std::memset(memory[1].data(), 1, bytes);
  std::vector<std::unique_ptr<Buffer>> owned;
  for (PageMemory& one : memory) {
    HPVMD_ASSIGN_OR_RETURN(owned.emplace_back(), rig.device(1).Allocate({.bytes = bytes, .import = one.data()}));
  }
  for (int i = 0; i < 2; ++i) {
    HPVMD_ASSIGN_OR_RETURN(owned.emplace_back(), device.Allocate({.bytes = bytes}));
  }
  std::vector<Buffer*> slots;
  for (const std::unique_ptr<Buffer>& buffer : owned) {
    slots.push_back(buffer.get());
  }
  const std::unique_ptr<Timeline> timeline = device.CreateTimeline();
  uint64_t value = 0;
  Status failed;
  const auto rate = [&](SlotIndex source, SlotIndex target) {
    CommandList list;
    list.commands.push_back(CopyCommand{.source = source, .target = target, .bytes = bytes});
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
      const TimelinePoint end{timeline.get(), ++value};
      Submission submission;
      submission.commands = &list;
      submission.buffers = slots;
      submission.signals = {&end, 1};
      const double seconds = Seconds([&] {
        const Status status = device.Submit(submission);
        failed.Update(status.ok() ? timeline->Wait(end.value, kNever) : status);
      });
      best = std::max(best, static_cast<double>(bytes) / seconds);
    }
    return best;
  };
  GpuCopies copies;
  copies.to_device = rate(0, 2);
  copies.on_device = rate(2, 3);
  copies.from_device = rate(3, 1);
  HPVMD_RETURN_IF_ERROR(failed);
  return std::memcmp(memory[0].data(), memory[1].data(), bytes) == 0
             ? StatusOr<GpuCopies>(copies)
             : Internal("What came back from the device differs from what went there.");
}

}  // namespace hpvm::bench
