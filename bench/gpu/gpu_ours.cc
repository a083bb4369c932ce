// SPDX-License-Identifier: Apache-2.0
// hpvmd as a contender on a GPU: the leaf is compiled for the device, and launches are submitted to it as the engine
// does.
#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/gpu/gpu_contender.h"
#include "compiler/api/variant_text.h"

namespace hpvm::bench {
namespace {

ir::Type TypeOf(int32_t) { return ir::Type::kI32; }
ir::Type TypeOf(float) { return ir::Type::kF32; }
ir::Type TypeOf(double) { return ir::Type::kF64; }

template <typename T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

StatusOr<Artifact> CompileFor(const CpuCase& problem, LocalEngine& rig, bool fast_math) {
  CompileRequest request;
  request.module_name = "kernels";
  request.module = rig.kernels();
  request.module_hash = HashOf(rig.kernels());
  request.entry = problem.name;
  for (const CpuArray& array : problem.arrays) {
    request.params.push_back({.name = array.name, .is_writable = array.access != Access::kIn});
  }
  for (const CpuScalar& scalar : problem.scalars) {
    request.params.push_back({.name = "s" + std::to_string(&scalar - problem.scalars.data()),
                              .is_buffer = false,
                              .scalar = std::visit([](auto value) { return TypeOf(value); }, scalar)});
  }
  request.target = rig.device(0).artifact_kind();
  request.gpu = rig.device(0).info().gpu;
  request.fast_math = fast_math;
  HPVMD_ASSIGN_OR_RETURN(CompileOutcome outcome, rig.compiler().Compile(request, kNever));
  HPVMD_RETURN_IF_ERROR(ToStatus(outcome.diagnostics));
  return *std::move(outcome.artifact);
}

class OursContender final : public GpuContender {
 public:
  OursContender(std::string name, const CpuCase& problem, LocalEngine& rig)
      : GpuContender(std::move(name), problem), device_(rig.device(0)), host_(rig.device(1)) {}

  Status Init(Artifact artifact) {
    HPVMD_ASSIGN_OR_RETURN(kernel_, device_.Load(std::move(artifact)));
    timeline_ = device_.CreateTimeline();
    words_ = ir::FindWordParams(kernel_->artifact().bounds);
    for (size_t i = 0; i < problem().arrays.size(); ++i) {
      const CpuArray& array = problem().arrays[i];
      const uint64_t bytes = array.count * ElementBytes(array.type);
      HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device_.Allocate({.bytes = bytes}));
      buffers_.push_back(std::move(buffer));
      uint8_t* initial = array.access == Access::kOut ? nullptr : array.initial.data();
      HPVMD_ASSIGN_OR_RETURN(initial_.emplace_back(), HostBuffer(initial, bytes));
      HPVMD_ASSIGN_OR_RETURN(results_.emplace_back(),
                             HostBuffer(array.access == Access::kIn ? nullptr : data(i), bytes));
    }
    return Move(/*inputs=*/true, /*all=*/true);
  }

  StatusOr<double> Batch(uint32_t launches) override { return Launches(launches, {}); }

  // Continues as long as the device tries variants: the driver may take longer than `seconds` to build them.
  Status Settle(double seconds) override {
    constexpr double kSecondsMax = 20;
    NodeTiming timing{.is_settled = false};
    double once = 0;
    for (double spent = 0; spent < seconds || (!timing.is_settled && spent < kSecondsMax);) {
      const auto launches = static_cast<uint32_t>(once == 0 ? 1 : std::clamp(0.01 / once, 1.0, 100.0));
      HPVMD_ASSIGN_OR_RETURN(once, Launches(launches, {&timing, 1}));
      spent += once * launches;
    }
    variant_ = timing.variant;
    return absl::OkStatus();
  }
  std::string chosen() const override { return VariantText(kernel_->artifact(), variant_); }

 private:
  StatusOr<double> Launches(uint32_t launches, std::span<NodeTiming> timings) {
    CommandList list;
    for (uint32_t i = 0; i < launches; ++i) {
      AddLaunch(list);
    }
    return Timed(list, launches, timings);
  }
  StatusOr<double> Launch() override {
    HPVMD_RETURN_IF_ERROR(Move(/*inputs=*/true, /*all=*/false));
    CommandList list;
    AddLaunch(list);
    HPVMD_ASSIGN_OR_RETURN(const double seconds, Timed(list, 1, {}));
    HPVMD_RETURN_IF_ERROR(Move(/*inputs=*/false, /*all=*/false));
    return seconds;
  }

  StatusOr<std::unique_ptr<Buffer>> HostBuffer(uint8_t* memory, uint64_t bytes) {
    return memory == nullptr ? std::unique_ptr<Buffer>() : host_.Allocate({.bytes = bytes, .import = memory});
  }

  // Slots: the device's arrays, then the arrays in host memory for one transfer.
  Status Move(bool inputs, bool all) {
    CommandList list;
    std::vector<Buffer*> slots;
    for (const std::unique_ptr<Buffer>& buffer : buffers_) {
      slots.push_back(buffer.get());
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const Access access = problem().arrays[i].access;
      Buffer* host = inputs ? initial_[i].get() : results_[i].get();
      if (host == nullptr || (inputs && !all && access == Access::kIn)) {
        continue;
      }
      const auto device_slot = static_cast<SlotIndex>(i), host_slot = static_cast<SlotIndex>(slots.size());
      slots.push_back(host);
      list.commands.push_back(CopyCommand{.source = inputs ? host_slot : device_slot,
                                          .target = inputs ? device_slot : host_slot,
                                          .bytes = host->bytes(),
                                          .has_indices = inputs && i < words_.size() && words_[i]});
    }
    return Submit(list, slots);
  }

  void AddLaunch(CommandList& list) const {
    DispatchCommand dispatch{.executable = kernel_.get(),
                             .extent = problem().extent,
                             .first_argument = static_cast<uint32_t>(list.arguments.size()),
                             .argument_count = static_cast<uint32_t>(buffers_.size() + problem().scalars.size()),
                             .node = 0};
    if (problem().group[0] != 0) {
      dispatch.group = problem().group;
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      list.arguments.push_back({.slot = static_cast<SlotIndex>(i),
                                .is_buffer = true,
                                .is_output = problem().arrays[i].access == Access::kOut,
                                .bytes = buffers_[i]->bytes()});
    }
    for (const CpuScalar& scalar : problem().scalars) {
      list.arguments.push_back({.scalar = std::visit([](auto value) { return BitsOf(value); }, scalar)});
    }
    list.commands.push_back(dispatch);
  }

  StatusOr<double> Timed(const CommandList& list, uint32_t launches, std::span<NodeTiming> timings) {
    std::vector<Buffer*> slots;
    for (const std::unique_ptr<Buffer>& buffer : buffers_) {
      slots.push_back(buffer.get());
    }
    Status status;
    const double seconds = Seconds([&] { status = Submit(list, slots, timings); });
    HPVMD_RETURN_IF_ERROR(status);
    return seconds / launches;
  }

  Status Submit(const CommandList& list, std::span<Buffer* const> slots, std::span<NodeTiming> timings = {}) {
    const TimelinePoint end{timeline_.get(), ++value_};
    Submission submission;
    submission.commands = &list;
    submission.buffers = slots;
    submission.signals = {&end, 1};
    submission.timings = timings;
    HPVMD_RETURN_IF_ERROR(device_.Submit(submission));
    return timeline_->Wait(value_, kNever);
  }

  Device& device_;
  Device& host_;
  std::unique_ptr<Executable> kernel_;
  std::unique_ptr<Timeline> timeline_;
  uint32_t variant_ = kVariantUnknown;  // The last variant run while it settled.
  std::vector<bool> words_;             // Indexed by array; the engine passes this to devices, too.
  uint64_t value_ = 0;
  // Indexed by array; null when there is nothing to transfer.
  std::vector<std::unique_ptr<Buffer>> buffers_, initial_, results_;
};

}  // namespace

StatusOr<std::unique_ptr<GpuContender>> MakeGpuOurs(const std::string& name, const CpuCase& problem, LocalEngine& rig,
                                                    bool fast_math) {
  HPVMD_ASSIGN_OR_RETURN(Artifact artifact, CompileFor(problem, rig, fast_math));
  auto contender = std::make_unique<OursContender>(name, problem, rig);
  HPVMD_RETURN_IF_ERROR(contender->Init(std::move(artifact)));
  return contender;
}

}  // namespace hpvm::bench
