// SPDX-License-Identifier: Apache-2.0
// Allocates a plan's memory, one arena per space in pieces, and fills the tables from slot to buffer.
//
// When several drivers of one silicon share a space, the driver that exports memory allocates it and the others
// import it; a piece that only one driver uses is allocated by that driver.
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
  // All arguments are borrowed; `plan` has its tasks and its residency.
  PlanMemory(const PreparedGraph& prepared, const PlanSpaces& spaces, Plan& plan);

  // Fills in the plan's tables and their owners. Fails with kResourceExhausted or kUnavailable.
  Status Allocate();
  // Valid after a failed Allocate: a driver did not share memory as its facts promise; the memory that a driver
  // refused; the device that is lost.
  bool has_failed_to_share() const { return has_failed_to_share_; }
  const DeviceShortage& shortage() const { return shortage_; }
  std::optional<uint32_t> unavailable() const { return unavailable_; }

  SlotView ViewOf(scheduler::StorageId storage) const { return plan_.views[storage.index]; }

 private:
  // The memory that a slot stands for.
  struct Slot {
    bool is_import = false;
    scheduler::SpaceIndex space = scheduler::kHostSpace;
    uint32_t port = 0;
    uint64_t bytes = 0;
    std::vector<bool> users;  // Indexed by device.
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
  std::vector<std::vector<SlotIndex>> pieces_;  // Indexed by space; kNoSlot when nothing lies there.
  std::vector<uint32_t> exporter_;              // Indexed by space; kNoDevice when there is none.
  bool has_failed_to_share_ = false;
  DeviceShortage shortage_;
  std::optional<uint32_t> unavailable_;
};

}  // namespace hpvm::engine

#endif  // HPVMD_ENGINE_PLAN_MEMORY_H_
