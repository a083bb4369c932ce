// SPDX-License-Identifier: Apache-2.0
// Tests FindSurviving against real bytes: random memory plans are executed up to some moment on simulated memory, and
// the bytes reported as held must be present.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "scheduler/placement/remainder.h"
#include "scheduler/testing/random_plan.h"

namespace hpvm::scheduler {
namespace {

using Bytes = std::vector<uint8_t>;

uint8_t Name(uint32_t value, uint64_t byte) {
  uint64_t hash = (uint64_t{value} << 32 | byte) + 1;
  hash = (hash ^ hash >> 31) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
  return static_cast<uint8_t>(hash >> 56);
}

uint32_t EndPort(const graph::FlatGraph& flat, uint32_t node) {
  return node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
}

// Simulated memory as the steps of a plan leave it.
class Machine {
 public:
  Machine(const ResidencyInput& input, const Residency& plan) : input_(input), plan_(plan) {
    for (size_t i = 0; i < plan.storages.size(); ++i) {
      const Storage& storage = plan.storages[i];
      Bytes& memory = MemoryOf(storage, i);
      memory.resize(std::max<size_t>(memory.size(), storage.offset + storage.bytes), 0xee);
    }
    // The true bytes of every value, whichever launch wrote them.
    truth_.resize(input.flat.values.size());
    for (uint32_t v = 0; v < truth_.size(); ++v) {
      if (!input.flat.values[v].producer.valid()) {
        truth_[v] = Fresh(v);
        for (size_t i = 0; i < plan.storages.size(); ++i) {
          const Storage& storage = plan.storages[i];
          if (storage.kind == Storage::Kind::kInput && storage.port == input.flat.values[v].input) {
            std::copy(truth_[v].begin(), truth_[v].end(), At(StorageId(i), 0));
          }
        }
      }
    }
    std::vector<std::vector<const Task*>> tasks(input.flat.nodes.size());
    for (const Task& task : input.tasks) {
      tasks[task.node.index].push_back(&task);
    }
    for (uint32_t node = 0; node < tasks.size(); ++node) {
      for (uint32_t port = input.flat.nodes[node].first_port; port < EndPort(input.flat, node); ++port) {
        const graph::FlatPort& p = input.flat.ports[port];
        if (!p.out.valid()) {
          continue;
        }
        Bytes& bytes = truth_[p.out.index];
        bytes = p.in.valid() ? truth_[p.in.index] : Bytes(input.flat.values[p.out.index].bytes);
        for (const Task* task : tasks[node]) {
          const ByteRange range = input.accesses.Of(task->node, task->choice, task->box, port).written;
          for (uint64_t b = range.begin; b < range.end; ++b) {
            bytes[b] = Name(p.out.index, b);
          }
        }
      }
    }
  }

  void Run(const Segment& segment, uint32_t steps) {
    for (uint32_t i = 0; i < steps; ++i) {
      const Step& step = plan_.steps[segment.first_step + i];
      if (step.kind == Step::Kind::kCopy) {
        const uint8_t* const from = At(step.source, step.offset);
        const Bytes moved(from, from + step.bytes);
        std::copy(moved.begin(), moved.end(), At(step.target, step.offset));
      } else if (step.kind == Step::Kind::kZero) {
        std::fill_n(At(step.target, step.offset), step.bytes, uint8_t{0});
      } else {
        RunTask(step.task);
      }
    }
  }

  // Address of a byte of the storage's value.
  uint8_t* At(StorageId id, uint64_t byte) {
    const Storage& storage = plan_.storages[id.index];
    return MemoryOf(storage, id.index).data() + (storage.offset + byte - storage.first);
  }
  const Bytes& truth(uint32_t value) const { return truth_[value]; }

 private:
  Bytes Fresh(uint32_t value) const {
    Bytes bytes(input_.flat.values[value].bytes);
    for (uint64_t b = 0; b < bytes.size(); ++b) {
      bytes[b] = Name(value, b);
    }
    return bytes;
  }

  void RunTask(uint32_t index) {
    const Task& task = input_.tasks[index];
    const uint32_t first = input_.flat.nodes[task.node.index].first_port;
    for (uint32_t port = first; port < EndPort(input_.flat, task.node.index); ++port) {
      const graph::FlatPort& p = input_.flat.ports[port];
      const ByteRange range = input_.accesses.Of(task.node, task.choice, task.box, port).written;
      for (uint64_t b = range.begin; p.out.valid() && b < range.end; ++b) {
        *At(plan_.port_storage[plan_.first_port[index] + port - first], b) = Name(p.out.index, b);
      }
    }
  }

  Bytes& MemoryOf(const Storage& storage, size_t id) {
    return memories_[storage.kind == Storage::Kind::kTemporary ? storage.space : (uint64_t{1} << 32) + id];
  }

  const ResidencyInput& input_;
  const Residency& plan_;
  std::map<uint64_t, Bytes> memories_;
  std::vector<Bytes> truth_;
};

// Segments end in any order that their waits allow; some are interrupted.
std::vector<SegmentState> Break(const Residency& plan, std::mt19937& random) {
  std::vector<SegmentState> states(plan.segments.size(), SegmentState::kUntouched);
  const uint32_t chance = random() % 30;
  for (size_t i = 0; i < states.size(); ++i) {
    const Segment& segment = plan.segments[i];
    bool is_ready = true;
    for (uint32_t w = 0; w < segment.wait_count; ++w) {
      is_ready &= states[plan.waits[segment.first_wait + w].segment] == SegmentState::kDone;
    }
    if (is_ready) {
      states[i] = random() % 40 >= chance ? SegmentState::kDone
                  : random() % 2 == 0     ? SegmentState::kBroken
                                          : SegmentState::kUntouched;
    }
  }
  return states;
}

TEST(HeldTest, WhatIsHeldIsThere) {
  uint64_t held_values = 0, values = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    const RandomPlan plan(seed, {.nodes_max = 30, .has_ranges = seed % 4 != 0, .has_budgets = seed % 3 == 0});
    const ResidencyInput input = plan.input();
    const StatusOr<Residency> residency = PlanResidency(input);
    ASSERT_TRUE(residency.ok()) << residency.status();
    std::mt19937 random(seed);
    const bool is_whole = seed % 5 == 0;
    const std::vector<SegmentState> states =
        is_whole ? std::vector<SegmentState>(residency->segments.size(), SegmentState::kDone)
                 : Break(*residency, random);
    Machine machine(input, *residency);
    for (size_t i = 0; i < states.size(); ++i) {
      const Segment& segment = residency->segments[i];
      if (states[i] != SegmentState::kUntouched) {
        const bool is_done = states[i] == SegmentState::kDone;
        machine.Run(segment, is_done ? segment.step_count : random() % (segment.step_count + 1));
      }
    }
    const auto held = FindSurviving({input.flat, input.tasks, input.accesses, *residency, states});
    ASSERT_EQ(held.size(), input.flat.values.size());
    for (uint32_t v = 0; v < held.size(); ++v) {
      values += input.flat.values[v].producer.valid() ? 1 : 0;
      if (held[v].empty()) {
        continue;
      }
      ++held_values;
      Bytes bytes;
      for (const SurvivingPiece& piece : held[v]) {
        ASSERT_EQ(piece.range.begin, bytes.size());
        ASSERT_LT(piece.range.begin, piece.range.end);
        bytes.resize(piece.range.end);
        if (piece.storage.valid()) {
          ASSERT_EQ(residency->storages[piece.storage.index].space, kHostSpace);
          std::copy_n(machine.At(piece.storage, piece.range.begin), piece.range.bytes(),
                      bytes.begin() + static_cast<ptrdiff_t>(piece.range.begin));
        }
      }
      ASSERT_EQ(bytes, machine.truth(v)) << "value " << v;
    }
    for (const graph::FlatValueId value : input.flat.outputs) {
      if (is_whole && value.valid() && input.flat.values[value.index].producer.valid()) {
        EXPECT_FALSE(held[value.index].empty()) << "output " << value.index;
      }
    }
  }
  EXPECT_GT(held_values, values / 20);
}

}  // namespace
}  // namespace hpvm::scheduler
