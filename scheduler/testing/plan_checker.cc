// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/plan_checker.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "scheduler/residency/order.h"
#include "scheduler/testing/interval_map.h"
#include "scheduler/testing/plan_shape.h"
#include "scheduler/testing/race_detector.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatPort;
using graph::FlatValueId;

// Identity of bytes: the name of their writer.
struct Name {
  enum class Kind : uint8_t { kUnknown, kZero, kInput, kWritten };
  Kind kind = Kind::kUnknown;
  uint32_t iteration = 0;
  uint32_t task = 0, port = 0;  // Task for kWritten, value for kInput.
  friend bool operator==(const Name&, const Name&) = default;
};

std::string Text(const Name& name) {
  switch (name.kind) {
    case Name::Kind::kUnknown:
      return "nothing known";
    case Name::Kind::kZero:
      return "zero";
    case Name::Kind::kInput:
      return "input value " + std::to_string(name.task);
    case Name::Kind::kWritten:
      break;
  }
  return "task " + std::to_string(name.task) + " port " + std::to_string(name.port) + " iteration " +
         std::to_string(name.iteration);
}

// A name in memory, and the offset between buffer and address: buffer = address - shift.
struct Cell {
  Name name;
  uint64_t shift = 0;
};

using Contents = IntervalMap<Name>;

class Checker {
 public:
  Checker(const ResidencyInput& input, const Residency& plan, const CheckOptions& options)
      : input_(input), flat_(input.flat), plan_(plan), options_(options) {}

  std::vector<std::string> Run() {
    faults_ = CheckShape(input_, plan_);
    if (!faults_.empty()) {
      return std::move(faults_);  // Later checks rely on this one.
    }
    place_.resize(plan_.storages.size());
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      place_[s] = s;
    }
    BindInputs();
    Replay(plan_.prologue, 0);
    for (uint32_t i = 0; i < options_.bodies && !IsFull(); ++i) {
      FindContents(i);
      Replay(plan_.body, i);
      CheckOnHost(i);
      for (const auto& [a, b] : plan_.swaps) {
        if (i + 1 < options_.bodies) {
          std::swap(place_[a.index], place_[b.index]);
        }
      }
    }
    Replay(plan_.epilogue, options_.bodies - 1);
    CheckOutputs();
    CheckSegmentOrders();
    if (faults_.size() > options_.faults_max) {
      faults_.resize(options_.faults_max);
    }
    return std::move(faults_);
  }

 private:
  bool IsFull() const { return faults_.size() >= options_.faults_max; }
  void Add(std::string fault) {
    if (!IsFull()) {
      faults_.push_back(std::move(fault));
    }
  }
  uint64_t BytesOf(FlatValueId value) const { return flat_.values[value.index].bytes; }

  // Returns the current location of a storage's bytes: a memory (spaces first, then bound memory), and the address of
  // its value's first byte there.
  std::pair<uint64_t, uint64_t> Locate(StorageId id) const {
    const Storage& storage = plan_.storages[place_[id.index]];
    if (storage.kind != Storage::Kind::kTemporary) {
      return {(uint64_t{1} << 32) + place_[id.index], 0};
    }
    return {storage.space, storage.offset - storage.first};
  }

  void BindInputs() {
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      if (plan_.storages[s].kind != Storage::Kind::kInput) {
        continue;
      }
      for (uint32_t v = 0; v < flat_.values.size(); ++v) {
        if (!flat_.values[v].producer.valid() && flat_.values[v].input == plan_.storages[s].port) {
          memories_[Locate(StorageId(s)).first].Assign({0, flat_.values[v].bytes},
                                                       {.name = {.kind = Name::Kind::kInput, .task = v}});
        }
      }
    }
  }

  // Computes the expected contents of every value in this iteration.
  void FindContents(uint32_t iteration) {
    std::map<uint32_t, Contents> carried;  // Keyed by the value of an input.
    for (const Carry& carry : input_.carries) {
      for (uint32_t v = 0; v < flat_.values.size() && iteration > 0; ++v) {
        if (!flat_.values[v].producer.valid() && flat_.values[v].input == carry.input) {
          carried[v] = contents_[flat_.outputs[carry.output].index];
        }
      }
    }
    contents_.assign(flat_.values.size(), {});
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      if (flat_.values[v].producer.valid()) {
        continue;
      }
      if (const auto it = carried.find(v); it != carried.end()) {
        contents_[v] = it->second;
      } else {
        contents_[v].Assign({0, flat_.values[v].bytes}, {.kind = Name::Kind::kInput, .task = v});
      }
    }
    for (uint32_t task = 0; task < input_.tasks.size(); ++task) {
      const Task& t = input_.tasks[task];
      const bool is_first = task == 0 || input_.tasks[task - 1].node != t.node;
      const uint32_t begin = flat_.nodes[t.node.index].first_port;
      for (uint32_t port = begin; port < PortsEnd(flat_, t.node); ++port) {
        const FlatPort& p = flat_.ports[port];
        if (!p.out.valid()) {
          continue;
        }
        if (is_first && p.in.valid()) {
          contents_[p.out.index] = contents_[p.in.index];
        } else if (is_first) {
          contents_[p.out.index].Assign({0, BytesOf(p.out)}, {.kind = Name::Kind::kZero});
        }
        contents_[p.out.index].Assign(input_.accesses.Of(t.node, t.choice, t.box, port).written,
                                      Written(task, port - begin, iteration));
      }
    }
  }

  static Name Written(uint32_t task, uint32_t port, uint32_t iteration) {
    return {.kind = Name::Kind::kWritten, .iteration = iteration, .task = task, .port = port};
  }

  // Compares bytes of a storage with those of the value; an invalid `value` means zeros.
  void Expect(StorageId storage, FlatValueId value, ByteRange range, const std::string& who) {
    if (range.is_empty() || IsFull()) {
      return;
    }
    const auto [memory, address] = Locate(storage);
    memories_[memory].Visit({address + range.begin, address + range.end}, [&](ByteRange piece, const Cell& cell) {
      const ByteRange bytes{piece.begin - address, piece.end - address};
      const auto compare = [&](ByteRange part, const Name& wanted) {
        const bool is_moved = cell.name.kind != Name::Kind::kZero && cell.shift != address;
        if (cell.name != wanted || is_moved) {
          std::ostringstream text;
          text << who << " finds " << Text(cell.name) << (is_moved ? " (of other bytes)" : "") << " in storage "
               << storage.index << " bytes [" << part.begin << ", " << part.end << "); it should be " << Text(wanted)
               << ".";
          Add(text.str());
        }
      };
      if (value.valid()) {
        contents_[value.index].Visit(bytes, compare);
      } else {
        compare(bytes, {.kind = Name::Kind::kZero});
      }
    });
  }

  void Replay(const StepRange& range, uint32_t iteration) {
    RaceDetector races(input_, plan_, range);
    for (uint32_t s = range.first_segment; s < range.first_segment + range.segment_count && !IsFull(); ++s) {
      races.Begin(s);
      const Segment& segment = plan_.segments[s];
      for (uint32_t i = segment.first_step; i < segment.first_step + segment.step_count; ++i) {
        for (const StepAccess& access : AccessesOf(input_, plan_, i)) {
          const auto [memory, address] = Locate(access.storage);
          std::string race =
              races.Access(memory, {address + access.range.begin, address + access.range.end}, access.writes, i);
          if (!race.empty()) {
            Add(std::move(race));
          }
        }
        RunStep(i, iteration);
      }
    }
  }

  void RunStep(uint32_t index, uint32_t iteration) {
    const Step& step = plan_.steps[index];
    const ByteRange range{step.offset, step.offset + step.bytes};
    if (step.kind == Step::Kind::kRun) {
      return RunTask(step.task, iteration);
    }
    const auto [memory, address] = Locate(step.target);
    if (step.kind == Step::Kind::kZero) {
      memories_[memory].Assign({address + range.begin, address + range.end}, {.name = {.kind = Name::Kind::kZero}});
      return;
    }
    const auto [from, from_address] = Locate(step.source);
    std::vector<std::pair<ByteRange, Cell>> moved;
    memories_[from].Visit({from_address + range.begin, from_address + range.end},
                          [&](ByteRange piece, const Cell& cell) { moved.push_back({piece, cell}); });
    for (auto& [piece, cell] : moved) {
      cell.shift += address - from_address;
      memories_[memory].Assign({piece.begin - from_address + address, piece.end - from_address + address}, cell);
    }
    if (step.room > 0) {
      memories_[memory].Assign({address + range.end, address + range.end + step.room}, {});
    }
  }

  void RunTask(uint32_t task, uint32_t iteration) {
    const Task& t = input_.tasks[task];
    const uint32_t begin = flat_.nodes[t.node.index].first_port;
    const uint32_t end = PortsEnd(flat_, t.node);
    for (uint32_t port = begin; port < end; ++port) {
      const PortAccess access = input_.accesses.Of(t.node, t.choice, t.box, port);
      const StorageId storage = plan_.port_storage[plan_.first_port[task] + port - begin];
      const std::string who = "Task " + std::to_string(task) + " port " + std::to_string(port - begin) +
                              " (iteration " + std::to_string(iteration) + ")";
      Expect(storage, flat_.ports[port].in, access.read, who);
      if (!access.overwrites) {
        Expect(storage, flat_.ports[port].in, access.written, who);
      }
    }
    for (const LateExtent& extent : plan_.late_extents) {
      if (extent.task == task) {
        const auto port = static_cast<uint32_t>(flat_.nodes[t.node.index].extent_port[extent.dimension]);
        const FlatValueId value = flat_.ports[begin + port].in;
        Expect(extent.storage, value, {0, BytesOf(value)}, "The extent of task " + std::to_string(task));
      }
    }
    for (uint32_t port = begin; port < end; ++port) {
      if (!flat_.ports[port].out.valid()) {
        continue;
      }
      const ByteRange written = input_.accesses.Of(t.node, t.choice, t.box, port).written;
      const auto [memory, address] = Locate(plan_.port_storage[plan_.first_port[task] + port - begin]);
      memories_[memory].Assign({address + written.begin, address + written.end},
                               {.name = Written(task, port - begin, iteration), .shift = address});
    }
  }

  void CheckOnHost(uint32_t iteration) {
    for (size_t i = 0; i < input_.on_host.size(); ++i) {
      const FlatValueId value = flat_.outputs[input_.on_host[i]];
      Expect(plan_.on_host[i], value, {0, BytesOf(value)},
             "The host after iteration " + std::to_string(iteration) + " reading output " +
                 std::to_string(input_.on_host[i]));
    }
  }

  void CheckOutputs() {
    std::vector<bool> found(flat_.outputs.size());
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      if (plan_.storages[s].kind == Storage::Kind::kOutput) {
        const uint32_t port = plan_.storages[s].port;
        found[port] = true;
        Expect(StorageId(s), flat_.outputs[port], {0, BytesOf(flat_.outputs[port])}, "Output " + std::to_string(port));
      }
    }
    for (uint32_t port = 0; port < found.size(); ++port) {
      if (flat_.outputs[port].valid() && !found[port]) {
        Add("Output " + std::to_string(port) + " has no storage.");
      }
    }
  }

  // Within each segment, conflicting steps must be ordered by edges of OrderSteps, directly or transitively.
  void CheckSegmentOrders() {
    for (const Segment& segment : plan_.segments) {
      if (segment.step_count > options_.ordered_steps_max || IsFull()) {
        continue;
      }
      const StepOrder order = OrderSteps(plan_, segment, input_.tasks);
      if (order.predecessors.empty()) {
        continue;
      }
      for (std::string& fault : CheckOrder(input_, plan_, segment, order)) {
        Add(std::move(fault));
      }
    }
  }

  const ResidencyInput& input_;
  const FlatGraph& flat_;
  const Residency& plan_;
  const CheckOptions options_;
  std::vector<std::string> faults_;
  std::vector<uint32_t> place_;  // Indexed by storage: the storage whose memory it has now, which swaps change.
  std::map<uint64_t, IntervalMap<Cell>> memories_;
  std::vector<Contents> contents_;  // Indexed by value, in the current iteration.
};

}  // namespace

std::vector<std::string> CheckPlan(const ResidencyInput& input, const Residency& residency,
                                   const CheckOptions& options) {
  return Checker(input, residency, options).Run();
}

}  // namespace hpvm::scheduler
