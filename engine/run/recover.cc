// SPDX-License-Identifier: Apache-2.0
#include "engine/run/recover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/access.h"
#include "engine/plan_spaces.h"
#include "engine/run/run_plans.h"

namespace hpvm::engine {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t AlignUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the address of a storage in host space; null when it cannot be determined.
const uint8_t* AddressOf(const Plan& plan, scheduler::StorageId id, const PortBindings& ports) {
  const scheduler::Storage& storage = plan.residency.storages[id.index];
  return storage.kind == scheduler::Storage::Kind::kTemporary ? HostAddress(plan, id) : ports[storage.port]->data;
}

// Returns the size of the kept values, each aligned.
uint64_t BytesOf(const Plan& broken, const scheduler::Remainder& rest) {
  uint64_t bytes = 0;
  for (const graph::FlatValueId value : rest.kept) {
    bytes += AlignUp(broken.flat.values[value.index].bytes);
  }
  return bytes;
}

}  // namespace

std::optional<uint32_t> LostDevice(const PreparedGraph& graph, const Plan& plan, const StageFailure& failure) {
  if (!absl::IsUnavailable(failure.status) || failure.segment == nullptr) {
    return std::nullopt;
  }
  const uint32_t device = plan.queues[failure.segment->queue].device;
  return device < graph.devices.size() ? std::optional<uint32_t>(device) : std::nullopt;
}

std::vector<bool> Recovery::Keep(PreparedGraph& graph, uint32_t lost, const Plan& broken,
                                 std::span<const scheduler::SegmentState> states, const PortBindings& ports) {
  if (broken.tasks.size() > kAccessEvaluationsMax) {
    // The answers on the launches' accesses would differ from those when the plan was made.
    DropPlansOf(graph, lost);
    Clear();
    return {};
  }
  std::unique_ptr<Plan> old = std::move(plan_);  // An interrupted remainder stays until all is copied.
  const GraphAccesses accesses(graph, broken.flat);
  accesses.Admit(broken.tasks);
  const auto held = scheduler::FindSurviving({broken.flat, broken.tasks, accesses, broken.residency, states});
  std::vector<bool> is_kept(held.size());
  for (size_t value = 0; value < held.size(); ++value) {
    is_kept[value] = !held[value].empty();
  }
  const scheduler::Remainder rest =
      scheduler::BuildRemainder(broken.flat, is_kept, static_cast<uint32_t>(ports.size()));
  std::vector<bool> is_done(broken.flat.nodes.size(), true);
  for (const uint32_t node : rest.node_of) {
    is_done[node] = false;
  }
  const bool is_worth_it =
      rest.node_of.size() < is_done.size() && HasRoom(graph, broken, rest) && Gather(broken, rest, held, ports);
  graph::SymbolValues symbols = broken.symbols;
  old.reset();
  DropPlansOf(graph, lost);
  if (is_worth_it) {
    StatusOr<std::unique_ptr<Plan>> plan =
        BuildPlan(graph, {.symbols = std::move(symbols), .flat = &rest.flat, .host_bytes_held = bytes_});
    if (plan.ok()) {
      plan_ = *std::move(plan);
      return is_done;
    }
  }
  Clear();
  return {};
}

// The copies are made while the broken plan still has its temporaries.
bool Recovery::HasRoom(const PreparedGraph& graph, const Plan& broken, const scheduler::Remainder& rest) const {
  uint64_t bytes = bytes_ + broken.temporary_bytes;
  const uint64_t bytes_max = SpacesOf(graph, Grants::kIgnored).spaces[scheduler::kHostSpace].bytes_max;
  return bytes <= bytes_max && BytesOf(broken, rest) <= bytes_max - bytes;
}

// Copies the kept values together, because the broken plan is dropped, and outputs may be written before their
// readers run.
bool Recovery::Gather(const Plan& broken, const scheduler::Remainder& rest,
                      const std::vector<std::vector<scheduler::SurvivingPiece>>& held, const PortBindings& ports) {
  const uint64_t bytes = BytesOf(broken, rest);
  StatusOr<HostMemory> memory = HostMemory::Map(bytes);
  if (!memory.ok()) {
    return false;
  }
  uint8_t* at = memory->data();
  for (const graph::FlatValueId id : rest.kept) {
    const graph::FlatValue& value = broken.flat.values[id.index];
    for (const scheduler::SurvivingPiece& piece : held[id.index]) {
      if (!piece.storage.valid()) {
        continue;  // Zeros, like the new memory.
      }
      const uint8_t* from = AddressOf(broken, piece.storage, ports);
      if (from == nullptr) {
        return false;
      }
      const uint64_t first = broken.residency.storages[piece.storage.index].first;
      std::memcpy(at + piece.range.begin, from + (piece.range.begin - first), piece.range.bytes());
    }
    kept_.push_back({.type = value.type, .shape = value.shape, .data = at, .bytes = value.bytes});
    at += AlignUp(value.bytes);
  }
  memory_.push_back(*std::move(memory));
  bytes_ += bytes;
  return true;
}

void Recovery::Clear() {
  plan_.reset();
  kept_.clear();
  memory_.clear();
  bytes_ = 0;
}

void Recovery::AddPorts(PortBindings* ports) const {
  for (const Binding& binding : kept_) {
    ports->push_back(&binding);
  }
}

}  // namespace hpvm::engine
