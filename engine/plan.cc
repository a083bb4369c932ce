// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/prepared_graph.h"

namespace hpvm {
namespace {

using scheduler::Step;
using scheduler::Storage;

// Instances of one launch. Devices index them with 64 bits; no device finishes more in a lifetime.
constexpr uint64_t kInstancesMax = uint64_t{1} << 62;
// GPUs count instances of a dimension with signed 32-bit numbers.
constexpr uint64_t kGpuExtentMax = (uint64_t{1} << 31) - 1;
constexpr uint32_t kNoDevice = 0xffffffffu;

bool IsGpuCode(ArtifactKind kind) { return kind == ArtifactKind::kOpenCl || kind == ArtifactKind::kVulkan; }

class HostView final : public Buffer {
 public:
  HostView(uint8_t* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return data_; }

 private:
  uint8_t* data_;  // Borrowed.
  uint64_t bytes_;
};

Status CheckExtents(const PreparedGraph& prepared, const graph::FlatGraph& flat) {
  for (const graph::FlatNode& node : flat.nodes) {
    uint64_t instances = 1;
    for (uint64_t extent : node.extent) {
      if (__builtin_mul_overflow(instances, extent, &instances) || instances > kInstancesMax) {
        return InvalidArgument("Node \"" + graph::PathOf(prepared.graph, node) + "\" has too many instances (" +
                               std::to_string(node.extent[0]) + " x " + std::to_string(node.extent[1]) + " x " +
                               std::to_string(node.extent[2]) + "); at most 2^62 are allowed.");
      }
    }
  }
  return absl::OkStatus();
}

class Builder {
 public:
  explicit Builder(const PreparedGraph& prepared) : prepared_(prepared), plan_(std::make_unique<Plan>()) {
    plan_->devices = prepared.devices;
  }

  // After a failed Build: a driver did not share memory as its facts say.
  bool has_failed_to_share() const { return has_failed_to_share_; }
  const DeviceShortage& shortage() const { return shortage_; }
  void Discard() { plan_.reset(); }

  StatusOr<std::unique_ptr<Plan>> Build(graph::SymbolValues symbols) {
    plan_->symbols = std::move(symbols);
    HPVMD_ASSIGN_OR_RETURN(plan_->flat, graph::Flatten(prepared_.graph, plan_->symbols));
    HPVMD_RETURN_IF_ERROR(CheckExtents(prepared_, plan_->flat));
    HPVMD_RETURN_IF_ERROR(PlaceNodes());
    HPVMD_ASSIGN_OR_RETURN(
        residency_,
        scheduler::PlanResidency({.flat = plan_->flat,
                                  .devices = prepared_.facts,
                                  .spaces = {},
                                  .tasks = plan_->tasks,
                                  .accesses = scheduler::WholeBuffers(plan_->flat)}));
    HPVMD_RETURN_IF_ERROR(CheckMemory());
    HPVMD_RETURN_IF_ERROR(AllocateBuffers());
    WriteSegments();
    HPVMD_RETURN_IF_ERROR(ResetTimelines(*plan_));
    plan_->timings.resize(plan_->flat.nodes.size());
    return std::move(plan_);
  }

 private:
  Status PlaceNodes() {
    const scheduler::StaticCosts costs;
    uint32_t unplaced = 0;
    StatusOr<scheduler::Placement> placement = scheduler::Place(
        {.flat = plan_->flat,
         .devices = prepared_.facts,
         .candidates = prepared_.candidates,
         .costs = costs,
         .can_run = [&](uint32_t node,
                        const scheduler::Candidate& candidate) { return CheckLaunch(node, candidate).ok(); }},
        &unplaced);
    if (!placement.ok()) {
      return ExplainUnplaced(unplaced, std::move(placement).status());
    }
    plan_->fallback_nodes = placement->fallback_nodes;
    plan_->device_of.resize(plan_->flat.nodes.size());
    plan_->executables.resize(plan_->flat.nodes.size());
    for (const scheduler::Task& task : placement->tasks) {
      const uint32_t node = task.node.index;
      plan_->device_of[node] = task.device;
      plan_->executables[node] = prepared_.executables[plan_->flat.nodes[node].leaf.index][task.choice];
    }
    plan_->tasks = std::move(placement->tasks);
    return absl::OkStatus();
  }

  // Whether the sizes of a launch keep to the limits of a candidate's device.
  Status CheckLaunch(uint32_t index, const scheduler::Candidate& candidate) const {
    const graph::FlatNode& node = plan_->flat.nodes[index];
    const Device& device = *plan_->devices[candidate.device];
    const DeviceInfo& info = device.info();
    HPVMD_RETURN_IF_ERROR(CheckBuffers(index, device));
    if (IsGpuCode(device.artifact_kind())) {
      for (const uint64_t extent : node.extent) {
        if (extent > kGpuExtentMax) {
          return FailedPrecondition("The launch's extent (" + std::to_string(extent) +
                                    ") is larger than the limit of device " + info.id + " (" +
                                    std::to_string(kGpuExtentMax) + " in each dimension).");
        }
      }
    }
    if (node.group[0] == 0) {
      return absl::OkStatus();
    }
    const Artifact& artifact = ExecutableOf(node.leaf.index, candidate).artifact();
    KernelNeeds needs{
        .kind = artifact.kind, .uses_barrier = artifact.uses_barrier, .uses_group_memory = artifact.uses_group_memory};
    for (size_t d = 0; d < 3; ++d) {
      needs.group[d] = std::max<uint64_t>(node.group[d], 1);
    }
    const Support support = device.Supports(needs);
    return support.ok ? absl::OkStatus() : FailedPrecondition("Device " + info.id + ": " + support.reason);
  }

  Status CheckBuffers(uint32_t index, const Device& device) const {
    const DeviceInfo& info = device.info();
    uint64_t limit = info.allocation_bytes_max != 0 ? info.allocation_bytes_max : std::numeric_limits<uint64_t>::max();
    if (IsGpuCode(device.artifact_kind()) && info.gpu.buffer_bytes_max != 0) {
      limit = std::min(limit, info.gpu.buffer_bytes_max);
    }
    const graph::FlatNode& node = plan_->flat.nodes[index];
    for (uint32_t port = node.first_port; port < EndPort(index); ++port) {
      const graph::FlatPort& p = plan_->flat.ports[port];
      const uint64_t bytes = plan_->flat.values[(p.out.valid() ? p.out : p.in).index].bytes;
      if (bytes > limit) {
        return ResourceExhausted("Buffer \"" + prepared_.graph.node(node.leaf).ports[port - node.first_port].name +
                                 "\" (" + std::to_string(bytes) + " bytes) is larger than the limit of device " +
                                 info.id + " (" + std::to_string(limit) + " bytes).");
      }
    }
    return absl::OkStatus();
  }

  const Executable& ExecutableOf(uint32_t leaf, const scheduler::Candidate& candidate) const {
    const std::vector<scheduler::Candidate>& candidates = prepared_.candidates[leaf];
    return *prepared_.executables[leaf][static_cast<size_t>(&candidate - candidates.data())];
  }

  // The first candidate's reason, being that of the device preferred, and those of others that differ.
  Status ExplainUnplaced(uint32_t index, Status why) const {
    const graph::FlatNode& node = plan_->flat.nodes[index];
    std::string reasons;
    for (const scheduler::Candidate& candidate : prepared_.candidates[node.leaf.index]) {
      const Status reason = CheckLaunch(index, candidate);
      if (!reason.ok() && reasons.find(Message(reason)) == std::string::npos) {
        why = reasons.empty() ? reason : why;
        reasons += (reasons.empty() ? "" : " ") + Message(reason);
      }
    }
    return While(reasons.empty() ? why : Status(why.code(), reasons),
                 "placing node \"" + graph::PathOf(prepared_.graph, node) + "\"");
  }

  // Temporaries against what each device has. Host memory is one space, of which the smallest of its devices counts;
  // devices of one silicon have one memory, whether or not they share a space.
  Status CheckMemory() const {
    for (size_t i = 0; i < plan_->devices.size(); ++i) {
      const DeviceInfo& info = plan_->devices[i]->info();
      const bool is_used = std::find(plan_->device_of.begin(), plan_->device_of.end(), i) != plan_->device_of.end();
      const uint64_t bytes = is_used ? TemporariesBeside(i) : 0;
      if (info.memory_bytes != 0 && bytes > info.memory_bytes) {
        return ResourceExhausted("The graph's temporary buffers (" + std::to_string(bytes) +
                                 " bytes) are larger than the memory of device " + info.id + " (" +
                                 std::to_string(info.memory_bytes) + " bytes).");
      }
    }
    return absl::OkStatus();
  }

  // In the device's space, and in those of other devices with the same memory; saturates.
  uint64_t TemporariesBeside(size_t device) const {
    std::vector<scheduler::SpaceIndex> spaces = {prepared_.facts[device].space};
    const std::string& silicon = plan_->devices[device]->info().silicon;
    for (size_t other = 0; other < plan_->devices.size(); ++other) {
      const scheduler::SpaceIndex space = prepared_.facts[other].space;
      // Host memory is what the system gives, whatever a driver for the processor says of it.
      if (!silicon.empty() && plan_->devices[other]->info().silicon == silicon && space != scheduler::kHostSpace &&
          std::find(spaces.begin(), spaces.end(), space) == spaces.end()) {
        spaces.push_back(space);
      }
    }
    uint64_t bytes = 0;
    for (const scheduler::SpaceIndex space : spaces) {
      const uint64_t more = residency_.temporary_bytes[space];
      bytes = more > ~uint64_t{0} - bytes ? ~uint64_t{0} : bytes + more;
    }
    return bytes;
  }

  Status AllocateBuffers() {
    const size_t slots = residency_.storages.size();
    plan_->buffers.assign(plan_->devices.size(), std::vector<Buffer*>(slots));
    plan_->temporary_bytes = residency_.temporary_bytes[scheduler::kHostSpace];
    HPVMD_ASSIGN_OR_RETURN(plan_->host, HostMemory::Map(plan_->temporary_bytes));
    MarkUses();
    FindExporters();
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const Storage& storage = residency_.storages[slot];
      uint8_t* data = plan_->host.data() == nullptr ? nullptr : plan_->host.data() + storage.offset;
      HPVMD_RETURN_IF_ERROR(ExportIfShared(storage, slot));
      for (uint32_t device = 0; device < plan_->devices.size(); ++device) {
        if (used_[device][slot] && plan_->buffers[device][slot] == nullptr) {
          HPVMD_RETURN_IF_ERROR(AddBuffer(storage, slot, device, data));
        }
      }
    }
    return absl::OkStatus();
  }

  // Which device's commands name which storage.
  void MarkUses() {
    used_.assign(plan_->devices.size(), std::vector<bool>(residency_.storages.size()));
    for (const Step& step : residency_.steps) {
      std::vector<bool>& used = used_[step.device];
      if (step.kind != Step::Kind::kRun) {
        used[step.target.index] = true;
        if (step.source.valid()) {
          used[step.source.index] = true;
        }
        continue;
      }
      const uint32_t node = plan_->tasks[step.task].node.index;
      for (uint32_t port = plan_->flat.nodes[node].first_port; port < EndPort(node); ++port) {
        used[residency_.port_storage[port].index] = true;
      }
    }
  }

  // By space: the device whose memory the others there import.
  void FindExporters() {
    for (uint32_t i = static_cast<uint32_t>(plan_->devices.size()); i-- > 0;) {
      const scheduler::SpaceIndex space = prepared_.facts[i].space;
      exporter_.resize(std::max<size_t>(exporter_.size(), space + 1), kNoDevice);
      if (space != scheduler::kHostSpace && plan_->devices[i]->info().exports_memory) {
        exporter_[space] = i;
      }
    }
  }

  // Memory that devices besides the space's exporter use is the exporter's; AddBuffer lets them import it.
  Status ExportIfShared(const Storage& storage, uint32_t slot) {
    if (storage.kind != Storage::Kind::kTemporary || storage.space == scheduler::kHostSpace) {
      return absl::OkStatus();
    }
    size_t users = 0;
    for (size_t device = 0; device < plan_->devices.size(); ++device) {
      users += used_[device][slot] ? 1 : 0;
    }
    const uint32_t exporter = exporter_[storage.space];
    if (users < 2 || exporter == kNoDevice) {
      return absl::OkStatus();
    }
    StatusOr<std::unique_ptr<Buffer>> buffer =
        Allocate(*plan_->devices[exporter], {.bytes = storage.bytes, .is_exported = true});
    if (!buffer.ok()) {
      return FailToShare(buffer.status(), storage, exporter);
    }
    plan_->exported.push_back(*std::move(buffer));
    plan_->buffers[exporter][slot] = plan_->exported.back().get();
    return absl::OkStatus();
  }

  // Within the tenant's limits; a driver that has no more gets what graphs that do not run hold, and a second chance.
  StatusOr<std::unique_ptr<Buffer>> Allocate(Device& device, const BufferSpec& spec) {
    if (prepared_.memory == nullptr || device.info().host_visible || spec.shared != nullptr) {
      return device.Allocate(spec);
    }
    HPVMD_RETURN_IF_ERROR(prepared_.memory->Take(device, spec.bytes, &plan_->device_bytes));
    StatusOr<std::unique_ptr<Buffer>> buffer = device.Allocate(spec);
    if (absl::IsResourceExhausted(buffer.status())) {
      if (prepared_.memory->Reclaim(device, 0) > 0) {
        buffer = device.Allocate(spec);
      }
      if (absl::IsResourceExhausted(buffer.status())) {
        shortage_ = {device.info().id, spec.bytes};
      }
    }
    return buffer;
  }

  Status FailToShare(const Status& status, const Storage& storage, uint32_t device) {
    has_failed_to_share_ = !absl::IsResourceExhausted(status);
    return While(status, "allocating a shared temporary buffer of " + std::to_string(storage.bytes) +
                             " bytes on device " + plan_->devices[device]->info().id);
  }

  // Of the space's exporter, when it has made it for others.
  const Buffer* SharedBuffer(const Storage& storage, uint32_t slot) const {
    const uint32_t exporter = exporter_[storage.space];
    return storage.space == scheduler::kHostSpace || exporter == kNoDevice ? nullptr : plan_->buffers[exporter][slot];
  }

  Status AddBuffer(const Storage& storage, uint32_t slot, uint32_t device, uint8_t* data) {
    Device& owner = *plan_->devices[device];
    if (storage.kind != Storage::Kind::kTemporary) {
      plan_->imports.push_back({.port = storage.port,
                                .device = device,
                                .slot = slot,
                                .bytes = storage.bytes,
                                .data = nullptr,
                                .buffer = nullptr});
      return absl::OkStatus();
    }
    if (storage.space == scheduler::kHostSpace && !owner.info().host_visible) {
      plan_->owned.push_back(MakeHostView(data, storage.bytes));
    } else {
      const BufferSpec spec{.bytes = storage.bytes,
                            .import = storage.space == scheduler::kHostSpace ? data : nullptr,
                            .shared = SharedBuffer(storage, slot)};
      StatusOr<std::unique_ptr<Buffer>> buffer = Allocate(owner, spec);
      if (!buffer.ok() && spec.shared != nullptr) {
        return FailToShare(buffer.status(), storage, device);
      }
      if (!buffer.ok()) {
        return While(buffer.status(), "allocating a temporary buffer of " + std::to_string(storage.bytes) +
                                          " bytes on device " + owner.info().id);
      }
      plan_->owned.push_back(*std::move(buffer));
    }
    plan_->buffers[device][slot] = plan_->owned.back().get();
    return absl::OkStatus();
  }

  uint32_t EndPort(uint32_t node) const {
    return node + 1 < plan_->flat.nodes.size() ? plan_->flat.nodes[node + 1].first_port
                                               : static_cast<uint32_t>(plan_->flat.ports.size());
  }

  void WriteSegments() {
    plan_->timeline_steps.assign(plan_->devices.size(), 0);
    plan_->segments.reserve(residency_.segments.size());
    for (const scheduler::Segment& segment : residency_.segments) {
      PlanSegment& out = plan_->segments.emplace_back();
      out.device = segment.device;
      out.signal = ++plan_->timeline_steps[segment.device];
      out.commands.commands.reserve(segment.step_count);
      for (uint32_t i = 0; i < segment.wait_count; ++i) {
        const PlanSegment& earlier = plan_->segments[residency_.waits[segment.first_wait + i].segment];
        out.waits.push_back({.device = earlier.device, .value = earlier.signal});
      }
      for (uint32_t i = 0; i < segment.step_count; ++i) {
        WriteStep(residency_.steps[segment.first_step + i], out.commands);
      }
      if (!plan_->devices[segment.device]->info().runs_inline) {
        out.note = Describe(out);
      }
    }
  }

  // "node "a" or one of the 3 after it on device opencl:0".
  std::string Describe(const PlanSegment& segment) const {
    const DispatchCommand* first = nullptr;
    size_t count = 0;
    for (const Command& command : segment.commands.commands) {
      if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
        first = first == nullptr ? dispatch : first;
        ++count;
      }
    }
    const std::string on = " on device " + plan_->devices[segment.device]->info().id;
    if (first == nullptr) {
      return "copies" + on;
    }
    return "node \"" + graph::PathOf(prepared_.graph, plan_->flat.nodes[first->node]) + "\"" +
           (count > 1 ? " or one of the " + std::to_string(count - 1) + " after it" : "") + on;
  }

  void WriteStep(const Step& step, CommandList& out) {
    switch (step.kind) {
      case Step::Kind::kCopy:
        out.commands.push_back(
            CopyCommand{.source = step.source.index, .target = step.target.index, .bytes = step.bytes});
        return;
      case Step::Kind::kZero:
        out.commands.push_back(FillCommand{.target = step.target.index, .bytes = step.bytes});
        return;
      case Step::Kind::kRun:
        WriteDispatch(plan_->tasks[step.task].node.index, out);
        return;
    }
  }

  void WriteDispatch(uint32_t index, CommandList& out) {
    const graph::FlatNode& node = plan_->flat.nodes[index];
    if (node.extent[0] == 0 || node.extent[1] == 0 || node.extent[2] == 0) {
      return;  // No instances, nothing to do; its ports keep what they were given.
    }
    const graph::Node& leaf = prepared_.graph.node(node.leaf);
    DispatchCommand dispatch{.executable = plan_->executables[index],
                             .extent = node.extent,
                             .first_argument = static_cast<uint32_t>(out.arguments.size()),
                             .argument_count = static_cast<uint32_t>(leaf.params.size()),
                             .node = index};
    for (int d = 0; d < 3; ++d) {
      dispatch.group[d] = std::max<uint64_t>(node.group[d], 1);
    }
    for (uint32_t param : leaf.params) {
      out.arguments.push_back(param < leaf.ports.size() ? BufferArgument(node.first_port + param)
                                                        : ScalarArgument(node.first_scalar + param -
                                                                         static_cast<uint32_t>(leaf.ports.size())));
    }
    out.commands.push_back(dispatch);
  }

  DispatchArgument BufferArgument(uint32_t port) const {
    const graph::FlatPort& p = plan_->flat.ports[port];
    const graph::FlatValueId value = p.out.valid() ? p.out : p.in;
    return {.slot = residency_.port_storage[port].index,
            .is_buffer = true,
            .is_output = p.access == graph::Access::kOut && !p.in.valid(),
            .bytes = plan_->flat.values[value.index].bytes};
  }

  DispatchArgument ScalarArgument(uint32_t scalar) {
    const graph::FlatScalar& s = plan_->flat.scalars[scalar];
    if (s.input < 0) {
      return {.scalar = s.bits};
    }
    // One slot a (port, type), however many nodes read it.
    for (const ScalarSource& source : plan_->scalar_sources) {
      if (source.port == static_cast<uint32_t>(s.input) && source.type == s.type) {
        return {.slot = source.slot};
      }
    }
    const uint32_t slot = static_cast<uint32_t>(plan_->scalars.size());
    plan_->scalars.push_back(0);
    plan_->scalar_sources.push_back({.slot = slot, .port = static_cast<uint32_t>(s.input), .type = s.type});
    return {.slot = slot};
  }

  const PreparedGraph& prepared_;
  std::unique_ptr<Plan> plan_;
  scheduler::Residency residency_;
  std::vector<std::vector<bool>> used_;  // By device, by storage.
  std::vector<uint32_t> exporter_;       // By space; kNoDevice: none.
  bool has_failed_to_share_ = false;
  DeviceShortage shortage_;
};

}  // namespace

std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes) { return std::make_unique<HostView>(data, bytes); }

StatusOr<HostMemory> HostMemory::Map(uint64_t bytes) {
  HostMemory memory;
  if (bytes == 0) {
    return memory;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("The host has no memory for the graph's temporary buffers (" + std::to_string(bytes) +
                             " bytes).");
  }
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  return memory;
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

StatusOr<std::unique_ptr<Plan>> BuildPlan(PreparedGraph& prepared, graph::SymbolValues symbols) {
  Builder builder(prepared);
  StatusOr<std::unique_ptr<Plan>> plan = builder.Build(symbols);
  prepared.shortage = builder.shortage();
  if (plan.ok() || !builder.has_failed_to_share()) {
    return plan;
  }
  builder.Discard();
  prepared.shares_memory = AssignSpaces(prepared, /*may_share=*/false);
  Builder unshared(prepared);
  plan = unshared.Build(std::move(symbols));
  prepared.shortage = unshared.shortage();
  return plan;
}

Status ResetTimelines(Plan& plan) {
  plan.timelines.clear();
  plan.timelines.resize(plan.devices.size());
  plan.timeline_base.assign(plan.devices.size(), 0);
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    if (plan.timeline_steps[i] > 0) {
      HPVMD_ASSIGN_OR_RETURN(plan.timelines[i], plan.devices[i]->CreateTimeline());
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm
