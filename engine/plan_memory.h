// SPDX-License-Identifier: Apache-2.0
// The memory of a plan: one arena a space in pieces, and the tables from slot to buffer.
//
// A space of several drivers of one silicon is allocated by the one that exports memory, and imported by the others; a
// piece that only one of them uses is that one's own.
#ifndef HPVMD_ENGINE_PLAN_MEMORY_H_
#define HPVMD_ENGINE_PLAN_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/contract/device.h"
#include "base/status.h"
#include "engine/plan.h"
#include "engine/plan_spaces.h"
#include "engine/prepared_graph.h"

namespace hpvm::engine {

class PlanMemory {
 public:
  // All borrowed; `plan` has its tasks and its residency.
  PlanMemory(const PreparedGraph& prepared, const PlanSpaces& spaces, Plan& plan);

  // Fills in the plan's tables and what owns them. kResourceExhausted, kUnavailable.
  Status Allocate();
  // After a failed Allocate: a driver did not share memory as its facts say; what a driver refused; a device that is
  // lost.
  bool has_failed_to_share() const { return has_failed_to_share_; }
  const DeviceShortage& shortage() const { return shortage_; }
  std::optional<uint32_t> unavailable() const { return unavailable_; }

  SlotView ViewOf(scheduler::StorageId storage) const { return plan_.views[storage.index]; }

 private:
  // What a slot stands for.
  struct Slot {
    bool is_import = false;
    scheduler::SpaceIndex space = scheduler::kHostSpace;
    uint32_t port = 0;
    uint64_t bytes = 0;
    std::vector<bool> users;  // By device.
  };

  void AssignSlots();
  SlotIndex PieceOf(const scheduler::Storage& storage);
  SlotIndex AddSlot(Slot slot);
  void MarkUses();
  void MarkLateExtents();
  void Use(scheduler::StorageId storage, uint32_t device);
  void FindExporters();
  Status FillSlot(SlotIndex slot);
  Status ExportIfShared(SlotIndex slot);
  Status AddBuffer(SlotIndex slot, uint32_t device, uint8_t* data);
  StatusOr<std::unique_ptr<Buffer>> AllocateOn(uint32_t device, const BufferSpec& spec);
  StatusOr<std::unique_ptr<Buffer>> TakeFrom(Device& device, const BufferSpec& spec);
  Status FailToShare(const Status& status, uint64_t bytes, uint32_t device);

  const PreparedGraph& prepared_;
  const PlanSpaces& spaces_;
  Plan& plan_;
  std::vector<Slot> slots_;
  std::vector<std::vector<SlotIndex>> pieces_;  // By space; kNoSlot: nothing lies there.
  std::vector<uint32_t> exporter_;              // By space; kNoDevice: none.
  bool has_failed_to_share_ = false;
  DeviceShortage shortage_;
  std::optional<uint32_t> unavailable_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_MEMORY_H_
