// SPDX-License-Identifier: Apache-2.0
#include "tests/schedsim/execution.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/order.h"
#include "scheduler/testing/plan_shape.h"

namespace hpvm::schedsim {
namespace {

using graph::FlatValueId;
using scheduler::ByteRange;
using scheduler::IntervalMap;
using scheduler::Segment;
using scheduler::SegmentState;
using scheduler::Step;
using scheduler::StorageId;

constexpr int64_t kNotRun = std::numeric_limits<int64_t>::min();
constexpr size_t kFaultsMax = 8;

// Whose bytes some bytes of memory are: of which value, at the same place. kNothing where nobody knows.
struct Holder {
  static constexpr uint32_t kNothing = 0xffffffffu, kZero = 0xfffffffeu;
  uint32_t writer = kNothing;  // The value whose maker wrote them last, or whose content was bound.
  uint64_t shift = 0;          // The address of the storage's first byte.
  friend bool operator==(const Holder&, const Holder&) = default;
};

// Who touches bytes, and until when.
struct Busy {
  int64_t written_until = kNotRun, read_until = kNotRun;
};

class Executor {
 public:
  explicit Executor(const ExecutionInput& input)
      : in_(input), flat_(input.plan_input.flat), plan_(input.plan), contents_(flat_.values.size()) {
    out_.states.assign(plan_.body.segment_count, SegmentState::kUntouched);
    out_.task_ns.assign(input.plan_input.tasks.size(), -1);
    start_.assign(plan_.steps.size(), kNotRun);
    end_.assign(plan_.steps.size(), kNotRun);
  }

  Execution Run() {
    Time();
    NameContents();
    Replay();
    CheckEnd();
    return std::move(out_);
  }

 private:
  void Add(const std::string& property, const std::string& sentence) {
    if (out_.faults.size() < kFaultsMax) {
      out_.faults.push_back(property + ": " + sentence);
    }
  }

  uint32_t LaneOf(const Segment& segment) const {
    return segment.device * static_cast<uint32_t>(kLanes) + static_cast<uint32_t>(segment.lane);
  }
  bool IsInline(const Segment& segment) const {
    return in_.plan_input.devices[segment.device].space == scheduler::kHostSpace;
  }
  bool IsLost(const Segment& segment, int64_t at) const {
    return in_.lost_at >= 0 && segment.device == in_.lost_device && at >= in_.lost_at;
  }
  bool IsStopped(int64_t at) const { return in_.stop_at >= 0 && at >= in_.stop_at; }

  // When each segment and step begins and ends. A segment waits for earlier ones only, so one pass does.
  void Time() {
    const uint32_t first = plan_.body.first_segment;
    std::vector<int64_t> segment_end(plan_.body.segment_count, kNotRun);
    std::map<uint32_t, std::vector<int64_t>> lanes;  // Ends of a lane's segments.
    std::map<uint32_t, bool> is_poisoned;
    int64_t thread = 0;
    bool is_submitting = true;
    for (uint32_t s = 0; s < plan_.body.segment_count && is_submitting; ++s) {
      const Segment& segment = plan_.segments[first + s];
      const uint32_t lane = LaneOf(segment);
      std::vector<int64_t>& done = lanes[lane];
      int64_t ready = done.empty() ? 0 : done.back();
      bool fails = is_poisoned[lane];
      for (uint32_t w = 0; w < segment.wait_count; ++w) {
        const uint32_t other = plan_.waits[segment.first_wait + w].segment;
        if (other < first || other >= first + s) {
          Add("ends", "Segment " + std::to_string(first + s) + " waits for segment " + std::to_string(other) +
                          ", which does not come before it.");
          return;
        }
        fails = fails || segment_end[other - first] == kNotRun;
        ready = std::max(ready, segment_end[other - first]);
      }
      if (IsInline(segment)) {
        // The thread waits itself; what it waits for in vain ends the run.
        is_submitting = !fails;
        thread = std::max(thread, ready);
        ready = thread;
      } else if (done.size() >= in_.in_flight_max) {
        thread = std::max(thread, done[done.size() - in_.in_flight_max]);
      }
      is_submitting = is_submitting && !IsStopped(thread);
      if (!is_submitting || fails) {
        is_poisoned[lane] = true;
        continue;
      }
      ready = std::max(ready, thread);
      if (RunSegment(segment, ready, &segment_end[s])) {
        done.push_back(segment_end[s]);
        out_.states[s] = SegmentState::kDone;
        thread = IsInline(segment) ? segment_end[s] : thread;
      } else {
        is_poisoned[lane] = true;
        segment_end[s] = kNotRun;
        is_submitting = !IsInline(segment);
      }
    }
    out_.is_complete = std::all_of(segment_end.begin(), segment_end.end(), [](int64_t end) { return end != kNotRun; });
  }

  bool RunSegment(const Segment& segment, int64_t at, int64_t* end) {
    for (uint32_t i = segment.first_step; i < segment.first_step + segment.step_count; ++i) {
      if (IsLost(segment, at) || IsStopped(at)) {
        return false;
      }
      start_[i] = at;
      at += in_.duration(plan_.steps[i]);
      out_.states[Index(segment)] = SegmentState::kBroken;
      if (IsLost(segment, at)) {
        end_[i] = kNotRun;  // It began, and nobody knows what it did.
        out_.end = std::max(out_.end, in_.lost_at);
        return false;
      }
      end_[i] = at;
      out_.end = std::max(out_.end, at);
      if (plan_.steps[i].kind == Step::Kind::kRun) {
        int64_t& ns = out_.task_ns[plan_.steps[i].task];
        if (ns >= 0) {
          Add("once", "Task " + std::to_string(plan_.steps[i].task) + " runs twice.");
        }
        ns = end_[i] - start_[i];
      }
    }
    *end = at;
    return true;
  }
  size_t Index(const Segment& segment) const {
    return static_cast<size_t>(&segment - plan_.segments.data()) - plan_.body.first_segment;
  }

  // What each value is made of: by range, the value whose maker wrote it.
  void NameContents() {
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      if (!flat_.values[v].producer.valid()) {
        contents_[v].Assign({0, flat_.values[v].bytes}, v);
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
        contents_[p.out.index].Assign(AccessOf(t, port).written, p.out.index);
      }
    }
  }

  scheduler::PortAccess AccessOf(uint32_t task, uint32_t port) const {
    const scheduler::Task& t = in_.plan_input.tasks[task];
    return in_.plan_input.accesses.Of(t.node, t.choice, t.box, port);
  }

  std::pair<uint64_t, uint64_t> Locate(StorageId id) const {
    const scheduler::MemoryRange at = scheduler::Locate(plan_, {.storage = id, .range = {0, 1}});
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

  void Replay() {
    for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
      const scheduler::Storage& storage = plan_.storages[s];
      if (storage.kind == scheduler::Storage::Kind::kInput) {
        BindInput(StorageId(s), storage.port);
      }
    }
    std::vector<Event> events;
    for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
      if (start_[i] != kNotRun) {
        events.push_back({start_[i], false, i});
      }
      if (end_[i] != kNotRun) {
        events.push_back({end_[i], true, i});
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

  // Nobody may write what another step touches meanwhile, nor touch what another one writes. A step may touch the same
  // bytes by several ports, so that all its accesses are looked at before they are noted.
  void Begin(uint32_t index) {
    const int64_t until = end_[index] == kNotRun ? std::numeric_limits<int64_t>::max() : end_[index];
    const std::vector<scheduler::StepAccess> accesses = scheduler::AccessesOf(in_.plan_input, plan_, index);
    for (const scheduler::StepAccess& access : accesses) {
      const auto [memory, address] = Locate(access.storage);
      bool is_busy = false;
      busy_[memory].Visit({address + access.range.begin, address + access.range.end}, [&](ByteRange, const Busy& busy) {
        is_busy = is_busy || busy.written_until > start_[index] || (access.writes && busy.read_until > start_[index]);
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
    } else if (step.kind == Step::Kind::kCopy) {
      Read(index, step);
    }
    if (end_[index] == kNotRun) {
      Spoil(index);
    }
  }

  // A step that never ended leaves nothing behind that anybody could rely on.
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

  // Whether the storage holds the value's bytes; `value` invalid: zeros.
  bool Holds(StorageId storage, FlatValueId value, ByteRange range) {
    bool holds = true;
    const auto [memory, address] = Locate(storage);
    memory_[memory].Visit({address + range.begin, address + range.end},
                          [&, from = address](ByteRange piece, const Holder& holder) {
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

  void Expect(uint32_t task) {
    const scheduler::Task& t = in_.plan_input.tasks[task];
    const uint32_t begin = flat_.nodes[t.node.index].first_port;
    for (uint32_t port = begin; port < scheduler::PortsEnd(flat_, t.node); ++port) {
      const scheduler::PortAccess access = AccessOf(task, port);
      const StorageId storage = plan_.port_storage[plan_.first_port[task] + port - begin];
      bool holds = access.read.is_empty() || Holds(storage, flat_.ports[port].in, access.read);
      holds = holds && (access.overwrites || access.written.is_empty() ||
                        Holds(storage, flat_.ports[port].in, access.written));
      if (!holds) {
        Add("inputs", "Task " + std::to_string(task) + " does not find its data in port " +
                          std::to_string(port - begin) + ".");
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
                             {.writer = flat_.ports[port].out.index, .shift = address});
    }
  }

  void CheckEnd() {
    if (out_.is_complete) {
      for (uint32_t s = 0; s < plan_.storages.size(); ++s) {
        const scheduler::Storage& storage = plan_.storages[s];
        const FlatValueId value =
            storage.kind == scheduler::Storage::Kind::kOutput ? flat_.outputs[storage.port] : FlatValueId();
        if (value.valid() && !Holds(StorageId(s), value, {0, flat_.values[value.index].bytes})) {
          Add("outputs", "Output " + std::to_string(storage.port) + " is not what it should be.");
        }
      }
      for (size_t t = 0; t < out_.task_ns.size(); ++t) {
        if (out_.task_ns[t] < 0) {
          Add("once", "Task " + std::to_string(t) + " does not run.");
        }
      }
      return;
    }
    CheckHeld();
  }

  // What is said to be kept after a break must be there.
  void CheckHeld() {
    const auto held = scheduler::FindHeld({.flat = flat_,
                                           .tasks = in_.plan_input.tasks,
                                           .accesses = in_.plan_input.accesses,
                                           .residency = plan_,
                                           .states = out_.states});
    for (uint32_t v = 0; v < held.size(); ++v) {
      for (const scheduler::HeldPiece& piece : held[v]) {
        if (!Holds(piece.storage, FlatValueId(v), piece.range)) {
          Add("kept", "Value " + std::to_string(v) + " is said to be in storage " +
                          std::to_string(piece.storage.index) + ", and is not.");
        }
      }
    }
  }

  const ExecutionInput& in_;
  const graph::FlatGraph& flat_;
  const scheduler::Residency& plan_;
  Execution out_;
  std::vector<int64_t> start_, end_;                // By step.
  std::vector<IntervalMap<uint32_t>> contents_;     // By value.
  std::map<uint64_t, IntervalMap<Holder>> memory_;
  std::map<uint64_t, IntervalMap<Busy>> busy_;
  std::map<uint32_t, std::vector<std::pair<ByteRange, Holder>>> moving_;  // By step: what a copy has read.
};

}  // namespace

Execution Execute(const ExecutionInput& input) { return Executor(input).Run(); }

}  // namespace hpvm::schedsim
