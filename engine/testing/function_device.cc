// SPDX-License-Identifier: Apache-2.0
#include "engine/testing/function_device.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "backends/shared/lane_thread.h"
#include "base/hash.h"

namespace hpvm::engine::testing {
namespace {

class FunctionExecutable final : public Executable {
 public:
  FunctionExecutable(Artifact artifact, const KernelFunction& function)
      : artifact_(std::move(artifact)), function_(function) {}
  const Artifact& artifact() const override { return artifact_; }
  const KernelFunction& function() const { return function_; }

 private:
  const Artifact artifact_;
  const KernelFunction& function_;
};

class OwnBuffer final : public Buffer {
 public:
  OwnBuffer(const BufferSpec& spec, bool visible, std::atomic<uint64_t>& held)
      : memory_(spec.import == nullptr && spec.shared == nullptr ? spec.bytes : 0),
        bytes_(spec.bytes),
        data_(spec.shared != nullptr   ? dynamic_cast<const OwnBuffer*>(spec.shared)->data_
              : spec.import == nullptr ? memory_.data()
                                       : spec.import),
        visible_(visible),
        is_exported_(spec.is_exported),
        held_(held) {
    held_ += memory_.size();
    HPVMD_CHECK(spec.shared == nullptr || dynamic_cast<const OwnBuffer*>(spec.shared)->is_exported_);
  }
  ~OwnBuffer() override { held_ -= memory_.size(); }
  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return visible_ ? data_ : nullptr; }
  uint8_t* data() { return data_; }

 private:
  std::vector<uint8_t> memory_;
  uint64_t bytes_;
  uint8_t* data_;
  bool visible_, is_exported_;
  std::atomic<uint64_t>& held_;  // Belongs to the device.
};

class FunctionDevice final : public Device {
 public:
  FunctionDevice(Hub& hub, const KernelFunctions& functions, FunctionDeviceOptions options,
                 FunctionDeviceCounts* counts)
      : Device(hub),
        functions_(functions),
        options_(std::move(options)),
        counts_(counts != nullptr ? *counts : ignored_) {
    info_.id = options_.id;
    info_.kind = options_.kind;
    info_.artifact_kind = options_.artifact_kind;
    info_.name = "C++ functions";
    info_.silicon = options_.silicon.empty() ? options_.id : options_.silicon;
    info_.memory_bytes = options_.memory_bytes;
    info_.allocation_bytes_max =
        options_.allocation_bytes_max != 0 ? options_.allocation_bytes_max : options_.memory_bytes;
    info_.is_emulated = options_.is_emulated;
    info_.gpu = options_.gpu;
    info_.exports_memory = options_.exports_memory;
    info_.imports_memory = options_.imports_memory;
    info_.host_visible = options_.host_visible;
    info_.runs_inline = options_.runs_inline;
    info_.has_copy_lanes = options_.has_copy_lanes;
    info_.operations_per_second = options_.operations_per_second;
    info_.upload_bytes_per_second = info_.download_bytes_per_second = options_.link_bytes_per_second;
  }

  const DeviceInfo& info() const override { return info_; }
  Support Supports(const KernelNeeds& needs) const override {
    if (needs.group[0] * needs.group[1] * needs.group[2] > options_.group_items_max) {
      return {false, "Its groups are smaller."};
    }
    return needs.uses_barrier && !options_.supports_barrier ? Support{false, "It has no barriers."} : Support{};
  }
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience&) override {
    if (options_.refused_entries.contains(artifact.entry)) {
      return Internal("The device cannot load the artifact.");
    }
    if (options_.invalid_entries.contains(artifact.entry)) {
      return InvalidArgument("The driver says no.");
    }
    {
      std::lock_guard lock(mutex_);
      ++counts_.loads;
    }
    const KernelFunction& function = functions_.at(artifact.entry);
    return std::make_unique<FunctionExecutable>(std::move(artifact), function);
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override {
    HPVMD_CHECK(!spec.is_exported || info_.exports_memory);
    HPVMD_CHECK(spec.shared == nullptr || info_.imports_memory);
    if (spec.shared != nullptr && options_.fails_to_import) {
      return Unimplemented("The driver does not import this memory.");
    }
    if (options_.commands_left != nullptr && options_.commands_left->load() == 0) {
      return Unavailable("The device is lost.");
    }
    counts_.exported += spec.is_exported ? 1 : 0;
    counts_.imported += spec.shared != nullptr ? 1 : 0;
    if (spec.import == nullptr && spec.shared == nullptr && spec.bytes > options_.driver_bytes_max - held_) {
      return ResourceExhausted("The driver has no memory.");
    }
    return std::make_unique<OwnBuffer>(spec, info_.host_visible, held_);
  }

  Status Submit(const Submission& submission) override {
    if (options_.submissions_left != nullptr && !CountDown(*options_.submissions_left)) {
      return Unavailable("The device takes nothing further.");
    }
    if (options_.runs_inline) {
      Settle(submission, AwaitAndRun(submission));
      return absl::OkStatus();
    }
    return lanes_[options_.has_copy_lanes ? static_cast<size_t>(submission.lane) : 0].Submit(submission);
  }

 private:
  backends::LaneThread::Runner Runner() {
    return [this](const Submission& submission) { return RunAll(submission); };
  }

  static void Settle(const Submission& submission, const Status& status) {
    for (const TimelinePoint& point : submission.signals) {
      if (status.ok()) {
        point.timeline->Signal(point.value);
      } else {
        point.timeline->Fail(status);
      }
    }
  }

  Status AwaitAndRun(const Submission& submission) {
    for (const TimelinePoint& wait : submission.waits) {
      HPVMD_RETURN_IF_ERROR(wait.timeline->Wait(wait.value, kNever));
    }
    return RunAll(submission);
  }

  // Runs a submission whose wait points are reached.
  Status RunAll(const Submission& submission) {
    if (submission.stop != nullptr && submission.stop->load() != 0) {
      return Cancelled("The submission was stopped before it started.");
    }
    for (const Command& command : submission.commands->commands) {
      // A command that overlaps the loss ends before the memory becomes garbage, or is lost, too.
      std::shared_lock alive(loss_mutex_, std::defer_lock);
      if (options_.commands_left != nullptr) {
        alive.lock();
        if (!CountDown(*options_.commands_left)) {
          alive.unlock();
          return Lose(submission);
        }
      }
      if (const auto* copy = std::get_if<CopyCommand>(&command)) {
        {
          std::lock_guard lock(mutex_);
          ++counts_.copies;
        }
        std::memmove(Data(submission, copy->target) + copy->target_offset,
                     Data(submission, copy->source) + copy->source_offset, copy->bytes);
        if (options_.note_copy) {
          options_.note_copy(copy_meter_, copy->bytes, submission.buffers[copy->source]->host() != nullptr);
        }
      } else if (const auto* fill = std::get_if<FillCommand>(&command)) {
        std::memset(Data(submission, fill->target) + fill->offset, fill->value, fill->bytes);
      } else {
        HPVMD_RETURN_IF_ERROR(RunDispatch(std::get<DispatchCommand>(command), submission));
      }
    }
    return absl::OkStatus();
  }

  // Returns false at the moment of the loss, and from then on.
  static bool CountDown(std::atomic<int64_t>& count) {
    int64_t left = count.load();
    while (left > 0 && !count.compare_exchange_weak(left, left - 1)) {
    }
    return left != 0;
  }

  Status Lose(const Submission& submission) {
    std::unique_lock lock(loss_mutex_);
    for (Buffer* buffer : submission.buffers) {
      if (auto* own = dynamic_cast<OwnBuffer*>(buffer); own != nullptr && !info_.host_visible) {
        std::memset(own->data(), 0xa5, own->bytes());
      }
    }
    return Unavailable("The device is lost.");
  }

  // Returns the data of the device's own buffers, and of host memory on the other side of copies.
  static uint8_t* Data(const Submission& submission, SlotIndex slot) {
    Buffer* buffer = submission.buffers[slot];
    HPVMD_CHECK(buffer != nullptr);
    auto* own = dynamic_cast<OwnBuffer*>(buffer);
    return own != nullptr ? own->data() : buffer->host();
  }

  Status RunDispatch(const DispatchCommand& dispatch, const Submission& submission) {
    const auto& executable = static_cast<const FunctionExecutable&>(*dispatch.executable);
    if (options_.launch_delay.count() > 0) {
      std::this_thread::sleep_for(options_.launch_delay);
    }
    if (options_.lost_entries.contains(executable.artifact().entry)) {
      return Unavailable("The device is lost.");
    }
    std::vector<ir::Argument> arguments;
    for (uint32_t i = 0; i < dispatch.argument_count; ++i) {
      const DispatchArgument& argument = submission.commands->arguments[dispatch.first_argument + i];
      if (argument.is_buffer) {
        HPVMD_CHECK(argument.offset + argument.bytes <= submission.buffers[argument.slot]->bytes());
        HPVMD_CHECK((submission.buffers[argument.slot]->host() != nullptr || argument.bytes == 0) ==
                        info_.host_visible ||
                    argument.bytes == 0);
        arguments.push_back({.data = Data(submission, argument.slot) + argument.offset, .bytes = argument.bytes});
      } else {
        arguments.push_back({.scalar = argument.slot == kNoSlot ? argument.scalar : submission.scalars[argument.slot]});
      }
    }
    const int64_t start = RealClock().Now().count();
    FunctionCall call{.extent = dispatch.extent, .arguments = arguments, .stop = submission.stop};
    HPVMD_RETURN_IF_ERROR(ReadExtents(dispatch, submission, &call.extent));
    std::array<uint64_t, 3> end;
    for (size_t d = 0; d < 3; ++d) {
      const uint64_t behind = call.extent[d] - std::min(call.extent[d], dispatch.first[d]);
      end[d] = dispatch.first[d] + std::min(dispatch.count[d], behind);
    }
    auto& [x, y, z] = call.instance;
    for (z = dispatch.first[2]; z < end[2]; ++z) {
      for (y = dispatch.first[1]; y < end[1]; ++y) {
        for (x = dispatch.first[0]; x < end[0]; ++x) {
          const bool stopped = submission.stop != nullptr && submission.stop->load() != 0;
          const ir::TrapCode code = stopped ? ir::TrapCode::kStopped : executable.function()(call);
          if (code != ir::TrapCode::kNone) {
            submission.failure->node = dispatch.node;
            submission.failure->trap = {.code = code, .instance = call.instance, .function = 0, .source = 117};
            return code == ir::TrapCode::kStopped ? Cancelled("The launch was stopped.") : Aborted("Kernel trapped.");
          }
        }
      }
    }
    TakeTime(start, (end[0] - dispatch.first[0]) * (end[1] - dispatch.first[1]) * (end[2] - dispatch.first[2]));
    submission.timings[dispatch.node] = {start, RealClock().Now().count()};
    return absl::OkStatus();
  }

  void TakeTime(int64_t start, uint64_t instances) const {
    const uint64_t speed = options_.instances_per_second != nullptr ? options_.instances_per_second->load() : 0;
    if (speed > 0) {
      const auto needed = static_cast<int64_t>(static_cast<double>(instances) / static_cast<double>(speed) * 1e9);
      std::this_thread::sleep_for(Time(start + needed) - RealClock().Now());
    }
  }

  static Status ReadExtents(const DispatchCommand& dispatch, const Submission& submission,
                            std::array<uint64_t, 3>* extent) {
    for (size_t d = 0; d < 3; ++d) {
      const ExtentSource& from = dispatch.extent_from[d];
      if (from.slot == kNoSlot) {
        continue;
      }
      uint64_t value = 0;
      HPVMD_CHECK(from.offset + from.bytes <= submission.buffers[from.slot]->bytes());
      std::memcpy(&value, submission.buffers[from.slot]->host() + from.offset, from.bytes);
      if (value > (*extent)[d]) {
        submission.failure->node = dispatch.node;
        return Aborted("The extent (" + std::to_string(value) + ") is larger than its limit (" +
                       std::to_string((*extent)[d]) + ").");
      }
      (*extent)[d] = value;
    }
    return absl::OkStatus();
  }

  std::atomic<uint64_t> held_{0};  // Bytes in the device's own buffers.
  const KernelFunctions& functions_;
  const FunctionDeviceOptions options_;
  FunctionDeviceCounts ignored_;
  FunctionDeviceCounts& counts_;
  DeviceInfo info_;
  std::shared_mutex loss_mutex_;  // Shared while a command runs; exclusive while the memory becomes garbage.
  std::mutex mutex_;
  std::array<backends::LaneThread, kLanes> lanes_{backends::LaneThread(Runner()), backends::LaneThread(Runner()),
                                                  backends::LaneThread(Runner())};
};

}  // namespace

std::unique_ptr<Device> CreateFunctionDevice(Hub& hub, const KernelFunctions& functions, FunctionDeviceOptions options,
                                             FunctionDeviceCounts* counts) {
  return std::make_unique<FunctionDevice>(hub, functions, std::move(options), counts);
}

StatusOr<CompileOutcome> FunctionCompiler::Compile(const CompileRequest& request, Time deadline) {
  std::lock_guard lock(mutex_);
  last = request;
  compiles.fetch_add(1);
  CompileOutcome outcome;
  if (request.stop != nullptr && request.stop->load() != 0) {
    return Cancelled("The compile was cancelled.");
  }
  if (over_limit[request.target].contains(request.entry)) {
    outcome.limit = ResourceExhausted("Compiling takes more processor time than this server's limit (1 s).");
    outcome.diagnostics.push_back(
        {.severity = Severity::kError, .place = "m", .offset = {}, .message = Message(outcome.limit)});
    outcome.cpu = std::chrono::seconds(1);
    return outcome;
  }
  auto refused_here = refused.find(request.target);
  if (!functions_.contains(request.entry) ||
      (refused_here != refused.end() && refused_here->second.contains(request.entry))) {
    outcome.diagnostics.push_back({.severity = Severity::kError,
                                   .place = "module \"" + request.module_name + "\"",
                                   .offset = 8,
                                   .message = "There is no exported function \"" + request.entry + "\"."});
    return outcome;
  }
  Artifact artifact;
  artifact.kind = request.target;
  artifact.module_name = request.module_name;
  if (names_artifacts) {
    artifact.name = HashOf(request.entry + std::to_string(static_cast<int>(request.target)));
  }
  artifact.entry = request.entry;
  artifact.function_names = {request.entry};
  artifact.uses_barrier = barrier_entries.contains(request.entry);
  artifact.gpu.is_native = native_entries.contains(request.entry);
  if (const auto known = bounds.find(request.entry); known != bounds.end()) {
    artifact.bounds = known->second;
  }
  for (const ParamSpec& param : request.params) {
    artifact.params.push_back(
        {.name = param.name, .is_buffer = param.is_buffer, .is_writable = param.is_writable, .type = param.scalar});
  }
  outcome.artifact = std::move(artifact);
  return outcome;
}

}  // namespace hpvm::engine::testing
