// SPDX-License-Identifier: Apache-2.0
// Method: memory that a run binds, and storages that iterations exchange, get a slot each; all others share a slot
// with their piece of the space's arena. Steps mark the devices that use a slot; then each slot is allocated, and
// imported by the other users.
// Invariants: a temporary lies in one piece, since the arena lets none cross a piece's end. Both slots of a swap
// have the same users. A shared slot of a device's memory belongs to the space's exporter and is allocated before
// anyone imports it.
// Every phase is one pass over storages, steps, or slots and devices. A refused allocation is tried once more,
// after idle graphs have given memory back.
#include "engine/plan_memory.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hpvm::engine {
namespace {

using scheduler::kHostSpace;
using scheduler::SpaceIndex;
using scheduler::Step;
using scheduler::Storage;
using scheduler::StorageId;

constexpr uint32_t kNoDevice = 0xffffffffu;

}  // namespace

PlanMemory::PlanMemory(const PreparedGraph& prepared, const PlanSpaces& spaces, Plan& plan)
    : prepared_(prepared), spaces_(spaces), plan_(plan) {}

Status PlanMemory::Allocate() {
  AssignSlots();
  MarkUses();
  MarkLateExtents();
  FindExporters();
  plan_.buffers.assign(plan_.devices.size(), std::vector<Buffer*>(slots_.size()));
  for (SlotIndex slot = 0; slot < slots_.size(); ++slot) {
    HPVMD_RETURN_IF_ERROR(FillSlot(slot));
  }
  return absl::OkStatus();
}

void PlanMemory::AssignSlots() {
  const std::vector<Storage>& storages = plan_.residency.storages;
  std::vector<bool> is_exchanged(storages.size());
  for (const auto& [a, b] : plan_.residency.swaps) {
    is_exchanged[a.index] = is_exchanged[b.index] = true;
  }
  plan_.views.resize(storages.size());
  pieces_.resize(spaces_.spaces.size());
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& storage = storages[i];
    if (storage.kind != Storage::Kind::kTemporary) {
      plan_.views[i] = {AddSlot({.is_import = true, .port = storage.port, .bytes = storage.bytes, .users = {}}), 0};
    } else if (is_exchanged[i]) {
      plan_.views[i] = {AddSlot({.space = storage.space, .bytes = storage.bytes, .users = {}}), 0};
    } else {
      const SlotIndex slot = PieceOf(storage);
      const uint64_t offset = storage.bytes == 0 ? 0 : storage.offset % spaces_.spaces[storage.space].piece_bytes_max;
      slots_[slot].bytes = std::max(slots_[slot].bytes, offset + storage.bytes);
      plan_.views[i] = {slot, offset};
    }
  }
  for (const auto& [a, b] : plan_.residency.swaps) {
    plan_.swaps.push_back({plan_.views[a.index].slot, plan_.views[b.index].slot});
  }
}

SlotIndex PlanMemory::PieceOf(const Storage& storage) {
  const uint64_t piece =
      storage.bytes == 0 ? 0 : storage.offset / spaces_.spaces[storage.space].piece_bytes_max;
  std::vector<SlotIndex>& pieces = pieces_[storage.space];
  if (piece >= pieces.size()) {
    pieces.resize(piece + 1, kNoSlot);
  }
  if (pieces[piece] == kNoSlot) {
    pieces[piece] = AddSlot({.space = storage.space, .users = {}});
  }
  return pieces[piece];
}

SlotIndex PlanMemory::AddSlot(Slot slot) {
  slot.users.assign(plan_.devices.size(), false);
  slots_.push_back(std::move(slot));
  return static_cast<SlotIndex>(slots_.size() - 1);
}

// Marks the slots that each device's commands use.
void PlanMemory::MarkUses() {
  const scheduler::Residency& residency = plan_.residency;
  for (const Step& step : residency.steps) {
    if (step.kind != Step::Kind::kRun) {
      Use(step.target, step.device);
      if (step.source.valid()) {
        Use(step.source, step.device);
      }
      continue;
    }
    const graph::NodeId leaf = plan_.flat.nodes[plan_.tasks[step.task].node.index].leaf;
    const uint32_t first = residency.first_port[step.task];
    for (size_t port = 0; port < prepared_.graph.node(leaf).ports.size(); ++port) {
      Use(residency.port_storage[first + port], step.device);
    }
  }
  // After two slots have traded places, users of one slot use the other's memory.
  for (const auto& [a, b] : plan_.swaps) {
    for (size_t device = 0; device < plan_.devices.size(); ++device) {
      slots_[a].users[device] = slots_[b].users[device] = slots_[a].users[device] || slots_[b].users[device];
    }
  }
}

// Late extents are read through the table of their launch's device.
void PlanMemory::MarkLateExtents() {
  for (const scheduler::LateExtent& late : plan_.residency.late_extents) {
    Use(late.storage, plan_.tasks[late.task].device);
  }
}

void PlanMemory::Use(StorageId storage, uint32_t device) {
  slots_[plan_.views[storage.index].slot].users[device] = true;
}

// Finds, for each space, the device whose memory the other devices import.
void PlanMemory::FindExporters() {
  exporter_.assign(spaces_.spaces.size(), kNoDevice);
  for (uint32_t i = static_cast<uint32_t>(plan_.devices.size()); i-- > 0;) {
    const SpaceIndex space = spaces_.devices[i].space;
    if (space != kHostSpace && plan_.devices[i]->info().exports_memory) {
      exporter_[space] = i;
    }
  }
}

Status PlanMemory::FillSlot(SlotIndex slot) {
  const Slot& s = slots_[slot];
  uint8_t* data = nullptr;
  if (!s.is_import && s.space == kHostSpace) {
    HPVMD_ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Map(s.bytes, prepared_.host_pool));
    data = memory.data();
    plan_.temporary_bytes += s.bytes;
    plan_.host.push_back(std::move(memory));
    plan_.host_of_slot.resize(slots_.size(), nullptr);
    plan_.host_of_slot[slot] = data;
  } else if (!s.is_import) {
    HPVMD_RETURN_IF_ERROR(ExportIfShared(slot));
  }
  for (uint32_t device = 0; device < plan_.devices.size(); ++device) {
    if (s.users[device] && plan_.buffers[device][slot] == nullptr) {
      HPVMD_RETURN_IF_ERROR(AddBuffer(slot, device, data));
    }
  }
  return absl::OkStatus();
}

// When other devices use the memory, the space's exporter allocates it; AddBuffer lets them import it.
Status PlanMemory::ExportIfShared(SlotIndex slot) {
  const Slot& s = slots_[slot];
  const uint32_t exporter = exporter_[s.space];
  if (exporter == kNoDevice || std::count(s.users.begin(), s.users.end(), true) < 2) {
    return absl::OkStatus();
  }
  StatusOr<std::unique_ptr<Buffer>> buffer = AllocateOn(exporter, {.bytes = s.bytes, .is_exported = true});
  if (!buffer.ok()) {
    return FailToShare(buffer.status(), s.bytes, exporter);
  }
  plan_.exported.push_back(*std::move(buffer));
  plan_.buffers[exporter][slot] = plan_.exported.back().get();
  return absl::OkStatus();
}

Status PlanMemory::FailToShare(const Status& status, uint64_t bytes, uint32_t device) {
  has_failed_to_share_ = !absl::IsResourceExhausted(status) && !absl::IsUnavailable(status);
  return While(status, "allocating " + std::to_string(bytes) + " bytes of shared temporary buffers on device " +
                           plan_.devices[device]->info().id);
}

Status PlanMemory::AddBuffer(SlotIndex slot, uint32_t device, uint8_t* data) {
  const Slot& s = slots_[slot];
  Device& owner = *plan_.devices[device];
  if (s.is_import) {
    plan_.imports.push_back(
        {.port = s.port, .device = device, .slot = slot, .bytes = s.bytes, .data = nullptr, .buffer = nullptr});
    return absl::OkStatus();
  }
  if (s.space == kHostSpace && !owner.info().host_visible) {
    // FillSlot has just mapped the memory.
    plan_.owned.push_back(MakeHostView(data, s.bytes, plan_.host.back().block()));
  } else {
    const uint32_t exporter = s.space == kHostSpace ? kNoDevice : exporter_[s.space];
    const BufferSpec spec{.bytes = s.bytes,
                          .import = data,
                          .shared = exporter == kNoDevice ? nullptr : plan_.buffers[exporter][slot]};
    StatusOr<std::unique_ptr<Buffer>> buffer = AllocateOn(device, spec);
    if (!buffer.ok() && spec.shared != nullptr) {
      return FailToShare(buffer.status(), s.bytes, device);
    }
    if (!buffer.ok()) {
      return While(buffer.status(), "allocating " + std::to_string(s.bytes) +
                                        " bytes of temporary buffers on device " + owner.info().id);
    }
    plan_.owned.push_back(*std::move(buffer));
  }
  plan_.buffers[device][slot] = plan_.owned.back().get();
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Buffer>> PlanMemory::AllocateOn(uint32_t device, const BufferSpec& spec) {
  StatusOr<std::unique_ptr<Buffer>> buffer = TakeFrom(*plan_.devices[device], spec);
  if (absl::IsUnavailable(buffer.status()) && device < prepared_.devices.size()) {
    unavailable_ = device;
  }
  return buffer;
}

// Allocates within the tenant's limits; when the driver refuses, reclaims memory of graphs that do not run and tries
// again.
StatusOr<std::unique_ptr<Buffer>> PlanMemory::TakeFrom(Device& device, const BufferSpec& spec) {
  if (prepared_.memory == nullptr || device.info().host_visible || spec.shared != nullptr) {
    return device.Allocate(spec);
  }
  HPVMD_RETURN_IF_ERROR(prepared_.memory->Take(device, spec.bytes, &plan_.device_bytes));
  StatusOr<std::unique_ptr<Buffer>> buffer = device.Allocate(spec);
  if (absl::IsResourceExhausted(buffer.status())) {
    if (prepared_.memory->Reclaim(device, 0) > 0) {
      buffer = device.Allocate(spec);
    }
    // A full spill file is no device shortage that others could relieve.
    if (absl::IsResourceExhausted(buffer.status()) && &device != prepared_.spill.get()) {
      shortage_ = {device.info().id, spec.bytes};
    }
  }
  return buffer;
}

}  // namespace hpvm::engine
