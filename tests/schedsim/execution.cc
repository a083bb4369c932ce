// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/execution.h"

#include <algorithm>
#include <utility>

#include "scheduler/residency/order.h"
#include "scheduler/testing/plan_shape.h"
#include "tests/schedsim/clockwork.h"

namespace hpvm::schedsim {
namespace {

using graph::FlatValueId;
using scheduler::ByteRange;
using scheduler::IntervalMap;
using scheduler::SegmentState;
using scheduler::Step;
using scheduler::StorageId;

constexpr int64_t kNotRun = Clockwork::kNotRun;
constexpr size_t kFaultsMax = 8;

// The value that some bytes of memory hold, at the same position. kNothing when unknown.
struct Holder {
  static constexpr uint32_t kNothing = 0xffffffffu, kZero = 0xfffffffeu;
  uint32_t writer = kNothing;  // The value whose producer wrote them last, or whose contents were bound.
  uint64_t shift = 0;          // The address of the storage's first byte.
};

// A step that accesses bytes, and its end.
struct Busy {
  int64_t written_until = kNotRun, read_until = kNotRun;
};

class Executor {
 public:
  explicit Executor(const ExecutionInput& input)
      : in_(input), flat_(input.plan_input.flat), plan_(input.plan), clock_(input, &out_) {
    out_.task_ns.assign(input.plan_input.tasks.size(), -1);
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      place_.push_back(s);
    }
  }

  Execution Run() {
    NameContents(0);
    BindInputs();
    out_.is_complete = Pass(plan_.prologue, false);
    for (uint32_t i = 0; i < in_.bodies && out_.is_complete; ++i) {
      if (i > 0) {
        NameContents(i);
        for (const auto& [a, b] : plan_.swaps) {
          std::swap(place_[a.index], place_[b.index]);
        }
      }
      std::fill(out_.task_ns.begin(), out_.task_ns.end(), -1);
      out_.is_complete = Pass(plan_.body, true);
      CheckBody(i);
    }
    out_.is_complete = out_.is_complete && Pass(plan_.epilogue, false);
    CheckEnd();
    return std::move(out_);
  }

 private:
  void Add(const std::string& property, const std::string& sentence) {
    if (out_.faults.size() < kFaultsMax) {
      out_.faults.push_back(property + ": " + sentence);
    }
  }

  bool Pass(const scheduler::StepRange& range, bool is_body) {
    const bool is_complete = clock_.Pass(range);
    Replay();
    if (is_body) {
      out_.states = clock_.States();
    }
    return is_complete;
  }

  uint32_t NameOf(uint32_t value, uint32_t iteration) const {
    return iteration * static_cast<uint32_t>(flat_.values.size()) + value;
  }

  // Determines the contents of each value in an iteration: by range, the value whose producer wrote it, and the
  // iteration.
  void NameContents(uint32_t iteration) {
    iteration_ = iteration;
    const std::vector<IntervalMap<uint32_t>> last = std::move(contents_);
    contents_.assign(flat_.values.size(), {});
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      if (flat_.values[v].producer.valid()) {
        continue;
      }
      contents_[v].Assign({0, flat_.values[v].bytes}, v);
      for (const scheduler::Carry& carry : in_.plan_input.carries) {
        if (iteration > 0 && flat_.values[v].input == carry.input) {
          contents_[v] = last[flat_.outputs[carry.output].index];
        }
      }
    }
    const auto& tasks = in_.plan_input.tasks;
    for (uint32_t t = 0; t < tasks.size(); ++t) {
      const bool is_first = t == 0 || tasks[t - 1].node != tasks[t].node;
      const uint32_t node = tasks[t].node.index;
      for (uint32_t port = flat_.nodes[node].first_port; port < scheduler::PortsEnd(flat_, tasks[t].node); ++port) {
        const graph::FlatPort& p = flat_.ports[port];
        if (!p.out.valid()) {
          continue;
        }
        if (is_first && p.in.valid()) {
          contents_[p.out.index] = contents_[p.in.index];
        } else if (is_first) {
          contents_[p.out.index].Assign({0, flat_.values[p.out.index].bytes}, Holder::kZero);
        }
        contents_[p.out.index].Assign(AccessOf(t, port).written, NameOf(p.out.index, iteration));
      }
    }
  }

  scheduler::PortAccess AccessOf(uint32_t task, uint32_t port) const {
    const scheduler::Task& t = in_.plan_input.tasks[task];
    return in_.plan_input.accesses.Of(t.node, t.choice, t.box, port);
  }

  std::pair<uint64_t, uint64_t> Locate(StorageId id) const {
    const StorageId now(place_[id.index]);
    const scheduler::MemoryRange at = scheduler::Locate(plan_, {.storage = now, .range = {0, 1}});
    return {at.memory, at.range.begin};
  }

  struct Event {
    int64_t at = 0;
    bool ends = false;
    uint32_t step = 0;
    bool operator<(const Event& other) const {
      return std::tuple(at, !ends, step) < std::tuple(other.at, !other.ends, other.step);
    }
  };

  void BindInputs() {
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      const scheduler::Storage& storage = plan_.storages[s];
      if (storage.kind == scheduler::Storage::Kind::kInput) {
        BindInput(StorageId(s), storage.port);
      }
    }
  }

  void Replay() {
    moving_.clear();
    std::vector<Event> events;
    for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
      if (clock_.start()[i] != kNotRun) {
        events.push_back({clock_.start()[i], false, i});
      }
      if (clock_.end()[i] != kNotRun) {
        events.push_back({clock_.end()[i], true, i});
      }
    }
    std::sort(events.begin(), events.end());
    for (const Event& event : events) {
      event.ends ? End(event.step) : Begin(event.step);
    }
  }

  void BindInput(StorageId storage, uint32_t port) {
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      if (!flat_.values[v].producer.valid() && flat_.values[v].input == port) {
        const auto [memory, address] = Locate(storage);
        memory_[memory].Assign({address, address + flat_.values[v].bytes}, {.writer = v, .shift = address});
      }
    }
  }

  // No step may write bytes that another step accesses at the same time, nor access bytes that another one writes. A
  // step may access the same bytes by several ports, so all its accesses are checked before they are recorded.
  void Begin(uint32_t index) {
    const int64_t until = clock_.end()[index] == kNotRun ? Clockwork::kNever : clock_.end()[index];
    if (in_.stop_at >= 0 && clock_.start()[index] >= in_.stop_at + clock_.longest()) {
      Add("stop", "Step " + std::to_string(index) + " begins after the run was stopped.");
    }
    const std::vector<scheduler::StepAccess> accesses = scheduler::AccessesOf(in_.plan_input, plan_, index);
    for (const scheduler::StepAccess& access : accesses) {
      const auto [memory, address] = Locate(access.storage);
      bool is_busy = false;
      busy_[memory].Visit({address + access.range.begin, address + access.range.end}, [&](ByteRange, const Busy& busy) {
        is_busy = is_busy || busy.written_until > clock_.start()[index] ||
                  (access.writes && busy.read_until > clock_.start()[index]);
      });
      if (is_busy) {
        Add("order", "Step " + std::to_string(index) + " touches storage " + std::to_string(access.storage.index) +
                         " while another step uses it.");
      }
    }
    for (const scheduler::StepAccess& access : accesses) {
      const auto [memory, address] = Locate(access.storage);
      busy_[memory].Change({address + access.range.begin, address + access.range.end}, [&](Busy& busy) {
        int64_t& mark = access.writes ? busy.written_until : busy.read_until;
        mark = std::max(mark, until);
      });
    }
    const Step& step = plan_.steps[index];
    if (step.kind == Step::Kind::kRun) {
      Expect(step.task);
      if (step.has_late_extent) {
        ExpectExtents(step.task);
      }
    } else if (step.kind == Step::Kind::kCopy) {
      Read(index, step);
    }
    if (clock_.end()[index] == kNotRun) {
      Spoil(index);
    }
  }

  // The results of a step that never ended are undefined.
  void Spoil(uint32_t index) {
    for (const scheduler::StepAccess& access : scheduler::AccessesOf(in_.plan_input, plan_, index)) {
      if (access.writes) {
        const auto [memory, address] = Locate(access.storage);
        memory_[memory].Assign({address + access.range.begin, address + access.range.end}, Holder());
      }
    }
  }

  void Read(uint32_t index, const Step& step) {
    const auto [memory, address] = Locate(step.source);
    auto& moved = moving_[index];
    memory_[memory].Visit({address + step.offset, address + step.offset + step.bytes},
                          [&, from = address](ByteRange piece, const Holder& holder) {
                            moved.push_back({{piece.begin - from, piece.end - from}, holder});
                            moved.back().second.shift -= from;
                          });
  }

  void End(uint32_t index) {
    const Step& step = plan_.steps[index];
    if (step.kind == Step::Kind::kRun) {
      return Write(step.task);
    }
    const auto [memory, address] = Locate(step.target);
    if (step.kind == Step::Kind::kZero) {
      memory_[memory].Assign({address + step.offset, address + step.offset + step.bytes},
                             {.writer = Holder::kZero, .shift = address});
      return;
    }
    for (auto& [range, holder] : moving_[index]) {
      holder.shift += address;
      memory_[memory].Assign({address + range.begin, address + range.end}, holder);
    }
    moving_.erase(index);
  }

  // Returns true when the storage holds the value's bytes; an invalid `value` stands for zeros.
  bool Holds(StorageId storage, FlatValueId value, ByteRange range) {
    bool holds = true;
    const auto [memory, address] = Locate(storage);
    memory_[memory].Visit(
        {address + range.begin, address + range.end}, [&, from = address](ByteRange piece, const Holder& holder) {
          const ByteRange bytes{piece.begin - from, piece.end - from};
          if (!value.valid()) {
            holds = holds && holder.writer == Holder::kZero;
            return;
          }
          contents_[value.index].Visit(bytes, [&](ByteRange, uint32_t wanted) {
            holds = holds && holder.writer == wanted && (wanted == Holder::kZero || holder.shift == from);
          });
        });
    return holds;
  }

  bool IsZero(uint32_t value, ByteRange range) {
    bool is_zero = true;
    contents_[value].Visit(range, [&](ByteRange, uint32_t writer) { is_zero = is_zero && writer == Holder::kZero; });
    return is_zero;
  }

  void Expect(uint32_t task) {
    const scheduler::Task& t = in_.plan_input.tasks[task];
    const uint32_t begin = flat_.nodes[t.node.index].first_port;
    for (uint32_t port = begin; port < scheduler::PortsEnd(flat_, t.node); ++port) {
      const scheduler::PortAccess access = AccessOf(task, port);
      const StorageId storage = plan_.port_storage[plan_.first_port[task] + port - begin];
      bool holds = access.read.is_empty() || Holds(storage, flat_.ports[port].in, access.read);
      holds = holds &&
              (access.overwrites || access.written.is_empty() || Holds(storage, flat_.ports[port].in, access.written));
      if (!holds) {
        Add("inputs",
            "Task " + std::to_string(task) + " does not find its data in port " + std::to_string(port - begin) + ".");
      }
    }
  }

  void ExpectExtents(uint32_t task) {
    const graph::FlatNode& node = flat_.nodes[in_.plan_input.tasks[task].node.index];
    for (const scheduler::LateExtent& extent : plan_.late_extents) {
      if (extent.task == task) {
        const FlatValueId value =
            flat_.ports[node.first_port + static_cast<uint32_t>(node.extent_port[extent.dimension])].in;
        if (!Holds(extent.storage, value, {0, flat_.values[value.index].bytes})) {
          Add("inputs", "Task " + std::to_string(task) + " is not told how many instances it has.");
        }
      }
    }
  }

  void Write(uint32_t task) {
    const scheduler::Task& t = in_.plan_input.tasks[task];
    const uint32_t begin = flat_.nodes[t.node.index].first_port;
    for (uint32_t port = begin; port < scheduler::PortsEnd(flat_, t.node); ++port) {
      if (!flat_.ports[port].out.valid()) {
        continue;
      }
      const ByteRange written = AccessOf(task, port).written;
      const auto [memory, address] = Locate(plan_.port_storage[plan_.first_port[task] + port - begin]);
      memory_[memory].Assign({address + written.begin, address + written.end},
                             {.writer = NameOf(flat_.ports[port].out.index, iteration_), .shift = address});
    }
  }

  void CheckBody(uint32_t iteration) {
    if (!out_.is_complete) {
      return;
    }
    for (size_t i = 0; i < plan_.on_host.size(); ++i) {
      const FlatValueId value = flat_.outputs[in_.plan_input.on_host[i]];
      if (value.valid() && !Holds(plan_.on_host[i], value, {0, flat_.values[value.index].bytes})) {
        Add("on host", "The host does not find output " + std::to_string(in_.plan_input.on_host[i]) +
                           " after iteration " + std::to_string(iteration) + ".");
      }
    }
    for (size_t t = 0; t < out_.task_ns.size(); ++t) {
      if (out_.task_ns[t] < 0) {
        Add("once", "Task " + std::to_string(t) + " does not run.");
      }
    }
  }

  void CheckEnd() {
    if (in_.stop_at >= 0 && out_.end > in_.stop_at + clock_.longest()) {
      Add("stop", "The run goes on after it was stopped.");
    }
    if (!out_.is_complete) {
      return in_.plan_input.carries.empty() ? CheckHeld() : void();
    }
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      const scheduler::Storage& storage = plan_.storages[s];
      const FlatValueId value =
          storage.kind == scheduler::Storage::Kind::kOutput ? flat_.outputs[storage.port] : FlatValueId();
      if (value.valid() && !Holds(StorageId(s), value, {0, flat_.values[value.index].bytes})) {
        Add("outputs", "Output " + std::to_string(storage.port) + " is not what it should be.");
      }
    }
  }

  // Pieces that the plan says are kept after a break must exist.
  void CheckHeld() {
    if (out_.states.empty()) {
      out_.states.assign(plan_.body.segment_count, SegmentState::kUntouched);
    }
    const auto held = scheduler::FindSurviving({.flat = flat_,
                                                .tasks = in_.plan_input.tasks,
                                                .accesses = in_.plan_input.accesses,
                                                .residency = plan_,
                                                .states = out_.states});
    for (uint32_t v = 0; v < held.size(); ++v) {
      for (const scheduler::SurvivingPiece& piece : held[v]) {
        // A piece without a storage stands for zeros that are stored nowhere.
        if (piece.storage.valid() ? !Holds(piece.storage, FlatValueId(v), piece.range) : !IsZero(v, piece.range)) {
          Add("kept", "Value " + std::to_string(v) + " is said to be in storage " +
                          std::to_string(piece.storage.valid() ? piece.storage.index : 0) + ", and is not.");
        }
      }
    }
  }

  const ExecutionInput& in_;
  const graph::FlatGraph& flat_;
  const scheduler::Residency& plan_;
  Execution out_;
  Clockwork clock_;
  uint32_t iteration_ = 0;
  std::vector<uint32_t> place_;                  // Indexed by storage: the place of its present memory.
  std::vector<IntervalMap<uint32_t>> contents_;  // Indexed by value.
  std::map<uint64_t, IntervalMap<Holder>> memory_;
  std::map<uint64_t, IntervalMap<Busy>> busy_;
  std::map<uint32_t, std::vector<std::pair<ByteRange, Holder>>> moving_;  // Keyed by step: the bytes read by a copy.
};

}  // namespace

Execution Execute(const ExecutionInput& input) { return Executor(input).Run(); }

}  // namespace hpvm::schedsim
