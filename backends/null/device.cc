// SPDX-License-Identifier: Apache-2.0
#include "backends/null/device.h"

#include <utility>

#include "backends/shared/host_buffer.h"
#include "backends/shared/host_queue.h"
#include "backends/shared/launch_part.h"
#include "base/limits.h"

namespace hpvm {
namespace {

class NullExecutable final : public Executable {
 public:
  explicit NullExecutable(Artifact artifact) : artifact_(std::move(artifact)) {}
  const Artifact& artifact() const override { return artifact_; }

 private:
  const Artifact artifact_;
};

// Counts calls and decides which of them fail.
class FailurePlan {
 public:
  explicit FailurePlan(std::vector<InjectedFailure> failures) : failures_(std::move(failures)) {}
  Status Next(NullCall call) {
    const uint64_t index = counts_[static_cast<size_t>(call)].fetch_add(1, std::memory_order_relaxed);
    for (const InjectedFailure& failure : failures_) {
      if (failure.call == call && failure.index == index) {
        return failure.status;
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<InjectedFailure> failures_;
  std::array<std::atomic<uint64_t>, 5> counts_{};
};

class NullDevice final : public Device, private backends::CommandTarget {
 public:
  NullDevice(Hub& hub, NullOptions options) : Device(hub), plan_(std::move(options.failures)), queue_(hub, *this) {
    info_.id = "null:0";
    info_.kind = DeviceKind::kNull;
    info_.name = "Null device (runs nothing)";
    info_.silicon = "null";
    info_.memory_bytes = 1024 * limits::kGiB;
    info_.allocation_bytes_max = info_.memory_bytes;
    info_.host_visible = true;
    info_.runs_inline = true;
  }

  const DeviceInfo& info() const override { return info_; }
  Support Supports(const KernelNeeds&) const override { return {}; }

  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience&) override {
    HPVMD_RETURN_IF_ERROR(plan_.Next(NullCall::kLoad));
    return std::make_unique<NullExecutable>(std::move(artifact));
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override {
    HPVMD_RETURN_IF_ERROR(plan_.Next(NullCall::kAllocate));
    return backends::AllocateHostBuffer(spec, info_.allocation_bytes_max);
  }
  Status Submit(const Submission& submission) override {
    HPVMD_RETURN_IF_ERROR(plan_.Next(NullCall::kSubmit));
    queue_.Submit(submission);
    return absl::OkStatus();
  }

 private:
  Status Run(const Command& command, const Submission& submission, backends::CommandRecord*) override {
    HPVMD_RETURN_IF_ERROR(plan_.Next(NullCall::kCommand));
    if (const auto* copy = std::get_if<CopyCommand>(&command)) {
      HPVMD_RETURN_IF_ERROR(backends::HostRange(submission, copy->source, copy->source_offset, copy->bytes).status());
      return backends::HostRange(submission, copy->target, copy->target_offset, copy->bytes).status();
    }
    if (const auto* fill = std::get_if<FillCommand>(&command)) {
      return backends::HostRange(submission, fill->target, fill->offset, fill->bytes).status();
    }
    const auto& dispatch = std::get<DispatchCommand>(command);
    HPVMD_RETURN_IF_ERROR(backends::CheckDispatch(dispatch, submission));
    return backends::PartOf(dispatch, submission).status();
  }

  DeviceInfo info_;
  FailurePlan plan_;
  backends::HostQueue queue_;  // Last member, so that it stops before the members that it uses are destroyed.
};

}  // namespace

std::unique_ptr<Device> CreateNullDevice(Hub& hub, NullOptions options) {
  return std::make_unique<NullDevice>(hub, std::move(options));
}

const DeviceFamily kNullFamily = {
    .name = "null", .open = [](std::string_view, Hub& hub, const DeviceOptions&) -> StatusOr<std::unique_ptr<Device>> {
      return CreateNullDevice(hub);
    }};

}  // namespace hpvm
