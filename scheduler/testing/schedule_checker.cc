// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/schedule_checker.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hpvm::scheduler {
namespace {

// A range that is present from some time on.
struct There {
  ByteRange range;
  Duration since{0};
};

class Checker {
 public:
  Checker(const PlacementInput& input, const Placement& placement)
      : input_(input), flat_(input.flat), placement_(placement), tasks_of_(flat_.nodes.size()) {
    for (uint32_t t = 0; t < placement.tasks.size(); ++t) {
      tasks_of_[placement.tasks[t].node.index].push_back(t);
    }
  }

  StatusOr<Duration> Run() {
    HPVMD_RETURN_IF_ERROR(CheckOnce());
    for (uint32_t t = 0; t < placement_.tasks.size(); ++t) {
      HPVMD_RETURN_IF_ERROR(CheckOrder(t));
      HPVMD_RETURN_IF_ERROR(CheckTime(t));
      NoteWrites(placement_.tasks[t]);
    }
    HPVMD_RETURN_IF_ERROR(CheckTransfers());
    for (uint32_t t = 0; t < placement_.tasks.size(); ++t) {
      HPVMD_RETURN_IF_ERROR(CheckReads(t));
      HPVMD_RETURN_IF_ERROR(CheckUpdates(t));
    }
    HPVMD_RETURN_IF_ERROR(CheckResources());
    return Makespan();
  }

 private:
  static std::string Name(const Task& task) {
    return "Task of node " + std::to_string(task.node.index) + " on device " + std::to_string(task.device) + " at " +
           std::to_string(task.start.count()) + " ns";
  }
  uint32_t EndPort(uint32_t node) const {
    return node + 1 < flat_.nodes.size() ? flat_.nodes[node + 1].first_port : static_cast<uint32_t>(flat_.ports.size());
  }
  SpaceIndex SpaceOf(const Task& task) const { return input_.devices[task.device].space; }
  static uint64_t Volume(const Box& box) { return box.count[0] * box.count[1] * box.count[2]; }

  PortAccess Access(const Task& task, uint32_t port) const {
    if (task.is_part) {
      return input_.accesses->Of(task.node, task.choice, task.box, port);
    }
    const graph::FlatPort& p = flat_.ports[port];
    const ByteRange whole{0, flat_.values[(p.out.valid() ? p.out : p.in).index].bytes};
    return {.read = p.in.valid() ? whole : ByteRange(), .written = p.out.valid() ? whole : ByteRange()};
  }

  // Parts are disjoint boxes inside the node's box that together fill it.
  Status CheckOnce() const {
    for (uint32_t node = 0; node < flat_.nodes.size(); ++node) {
      const Box whole{.count = flat_.nodes[node].extent};
      uint64_t volume = 0;
      for (const uint32_t a : tasks_of_[node]) {
        const Task& task = placement_.tasks[a];
        volume += Volume(task.box);
        for (int d = 0; d < 3; ++d) {
          if (task.box.first[d] + task.box.count[d] > whole.count[d]) {
            return Internal(Name(task) + " runs instances that there are not.");
          }
        }
        for (const uint32_t b : tasks_of_[node]) {
          const Box& other = placement_.tasks[b].box;
          bool meets = a != b;
          for (int d = 0; d < 3; ++d) {
            meets = meets && task.box.first[d] < other.first[d] + other.count[d] &&
                    other.first[d] < task.box.first[d] + task.box.count[d];
          }
          if (meets) {
            return Internal(Name(task) + " runs instances of another part.");
          }
        }
      }
      if (!tasks_of_[node].empty() && tasks_of_[node].back() - tasks_of_[node].front() >= tasks_of_[node].size()) {
        return Internal("Parts of node " + std::to_string(node) + " do not stand side by side.");
      }
      if (volume != Volume(whole) || tasks_of_[node].empty()) {
        return Internal("Node " + std::to_string(node) + " runs " + std::to_string(volume) + " instances of " +
                        std::to_string(Volume(whole)) + ".");
      }
    }
    return absl::OkStatus();
  }

  Status CheckOrder(uint32_t t) const {
    const Task& task = placement_.tasks[t];
    for (uint32_t port = flat_.nodes[task.node.index].first_port; port < EndPort(task.node.index); ++port) {
      const graph::FlatValueId in = flat_.ports[port].in;
      const graph::FlatNodeId producer = in.valid() ? flat_.values[in.index].producer : graph::FlatNodeId();
      if (producer.valid() && tasks_of_[producer.index].back() > t) {
        return Internal(Name(task) + " stands before node " + std::to_string(producer.index) + ", which it reads.");
      }
    }
    return absl::OkStatus();
  }

  // Allowed times of a task: with all lanes, or with one.
  std::pair<Duration, Duration> Times(const Task& task) const {
    const DeviceFacts& device = input_.devices[task.device];
    const PortWork ports(flat_);
    const WorkModel& works = input_.works == nullptr ? static_cast<const WorkModel&>(ports) : *input_.works;
    const Work work = works.Of(task.node, task.choice, task.box);
    const Duration all = std::max(input_.costs.Run(work, task.device, device).time, Duration(1));
    const uint64_t width = std::min<uint64_t>(device.lanes, std::max<uint64_t>(work.instances, 1));
    if (width == 1 || all < std::chrono::microseconds(20)) {
      return {all, device.lanes > 1 ? all : Duration::max()};
    }
    const Duration launch = std::min(Duration(static_cast<int64_t>(device.launch_ns)), all);
    return {all, launch + (all - launch) * static_cast<int64_t>(width)};
  }

  Status CheckTime(uint32_t t) const {
    const Task& task = placement_.tasks[t];
    const std::vector<Candidate>& candidates = input_.candidates[flat_.nodes[task.node.index].leaf.index];
    if (task.choice >= candidates.size() || candidates[task.choice].device != task.device) {
      return Internal(Name(task) + " is not one of the node's candidates.");
    }
    const auto [all, one] = Times(task);
    if (task.start < Duration(0) || (task.end - task.start != all && task.end - task.start != one)) {
      return Internal(Name(task) + " takes " + std::to_string((task.end - task.start).count()) + " ns instead of " +
                      std::to_string(all.count()) + " or " + std::to_string(one.count()) + ".");
    }
    return absl::OkStatus();
  }

  void NoteWrites(const Task& task) {
    for (uint32_t port = flat_.nodes[task.node.index].first_port; port < EndPort(task.node.index); ++port) {
      if (flat_.ports[port].out.valid()) {
        const ByteRange written = Access(task, port).written;
        there_[{flat_.ports[port].out.index, SpaceOf(task)}].push_back({written, task.end});
        made_[flat_.ports[port].out.index].push_back(written);
      }
    }
  }

  // Returns true when the bytes are in the space at that time. Bytes that no task wrote are those of the updated value.
  bool IsThere(graph::FlatValueId value, ByteRange range, SpaceIndex space, Duration at) {
    const graph::FlatNodeId producer = flat_.values[value.index].producer;
    if (range.is_empty() || (!producer.valid() && space == kHostSpace)) {
      return true;
    }
    std::vector<ByteRange> missing = {range};
    for (const There& there : there_[{value.index, space}]) {
      if (there.since <= at) {
        missing = Without(missing, there.range);
      }
    }
    graph::FlatValueId old;
    if (producer.valid()) {
      for (uint32_t p = flat_.nodes[producer.index].first_port; p < EndPort(producer.index); ++p) {
        old = flat_.ports[p].out == value ? flat_.ports[p].in : old;
      }
    }
    for (const ByteRange& part : missing) {
      std::vector<ByteRange> kept = {part};
      for (const ByteRange& made : made_[value.index]) {
        kept = Without(kept, made);
      }
      uint64_t bytes = 0;
      for (const ByteRange& one : kept) {
        bytes += one.bytes();
        if (old.valid() && !IsThere(old, one, space, at)) {
          return false;
        }
      }
      if (bytes != part.bytes() || (!old.valid() && space != kHostSpace)) {
        return false;
      }
    }
    return true;
  }

  static std::vector<ByteRange> Without(const std::vector<ByteRange>& ranges, const ByteRange& taken) {
    if (taken.is_empty()) {
      return ranges;
    }
    std::vector<ByteRange> out;
    for (const ByteRange& range : ranges) {
      for (const ByteRange& rest : {ByteRange{range.begin, std::min(range.end, taken.begin)},
                                    ByteRange{std::max(range.begin, taken.end), range.end}}) {
        if (!rest.is_empty()) {
          out.push_back(rest);
        }
      }
    }
    return out;
  }

  Status CheckTransfers() {
    std::vector<PlannedTransfer> transfers = placement_.transfers;
    std::sort(transfers.begin(), transfers.end(), [](const auto& a, const auto& b) { return a.end < b.end; });
    for (const PlannedTransfer& t : transfers) {
      if (!IsThere(t.value, t.range, t.from, t.start)) {
        return Internal("Value " + std::to_string(t.value.index) + " is copied from where it is not.");
      }
      if (t.end - t.start < input_.costs.Transfer(t.range.bytes(), t.from, t.to) || (t.from != 0) == (t.to != 0)) {
        return Internal("Value " + std::to_string(t.value.index) + " is copied too quickly.");
      }
      there_[{t.value.index, t.to}].push_back({t.range, t.end});
    }
    return absl::OkStatus();
  }

  Status CheckReads(uint32_t t) {
    const Task& task = placement_.tasks[t];
    for (uint32_t port = flat_.nodes[task.node.index].first_port; port < EndPort(task.node.index); ++port) {
      const graph::FlatValueId in = flat_.ports[port].in;
      if (in.valid() && !IsThere(in, Access(task, port).read, SpaceOf(task), task.start)) {
        return Internal(Name(task) + " starts without value " + std::to_string(in.index) + ".");
      }
    }
    return absl::OkStatus();
  }

  // The last task that updates a value waits for the readers that precede it in the graph.
  Status CheckUpdates(uint32_t t) {
    const Task& writer = placement_.tasks[t];
    if (writer.is_part) {
      return absl::OkStatus();
    }
    if (last_.empty()) {
      FindReaders();
    }
    for (uint32_t port = flat_.nodes[writer.node.index].first_port; port < EndPort(writer.node.index); ++port) {
      const graph::FlatPort& p = flat_.ports[port];
      if (!p.in.valid() || !p.out.valid() || last_[p.in.index] != writer.node.index) {
        continue;
      }
      for (const uint32_t node : readers_[p.in.index]) {
        for (const uint32_t r : tasks_of_[node]) {
          const Task& reader = placement_.tasks[r];
          if (node != writer.node.index && !reader.is_part &&
              (r > t || writer.start < (SpaceOf(reader) == SpaceOf(writer) ? reader.end : reader.start))) {
            return Internal(Name(writer) + " replaces what node " + std::to_string(node) + " reads yet.");
          }
        }
      }
    }
    return absl::OkStatus();
  }

  void FindReaders() {
    last_.assign(flat_.values.size(), 0);
    readers_.resize(flat_.values.size());
    for (uint32_t node = 0; node < flat_.nodes.size(); ++node) {
      for (uint32_t port = flat_.nodes[node].first_port; port < EndPort(node); ++port) {
        if (flat_.ports[port].in.valid()) {
          last_[flat_.ports[port].in.index] = node;
          readers_[flat_.ports[port].in.index].insert(node);
        }
      }
    }
  }

  // A silicon never has more lanes in use than it has, nor is a link's direction used twice at once.
  Status CheckResources() const {
    std::map<std::pair<int, uint32_t>, std::map<Duration, int64_t>> used;  // Changes at a time.
    std::map<uint32_t, int64_t> lanes;
    std::map<SpaceIndex, const DeviceFacts*> movers;
    for (const DeviceFacts& device : input_.devices) {
      lanes[device.silicon] = std::max<int64_t>(lanes[device.silicon], device.lanes);
      movers.try_emplace(device.space, &device);
    }
    const auto use = [&](std::pair<int, uint32_t> what, Duration start, Duration end, int64_t count) {
      used[what][start] += count;
      used[what][end] -= count;
    };
    for (const Task& task : placement_.tasks) {
      const DeviceFacts& device = input_.devices[task.device];
      const bool has_one = device.lanes > 1 && task.end - task.start == Times(task).second;
      use({0, device.silicon}, task.start, task.end, has_one ? 1 : lanes[device.silicon]);
    }
    for (const PlannedTransfer& t : placement_.transfers) {
      const SpaceIndex space = t.from == kHostSpace ? t.to : t.from;
      const DeviceFacts& mover = *movers.at(space);
      if (mover.has_copy_lanes) {
        use({t.from == kHostSpace ? 1 : 2, space}, t.start, t.end, 1);
      } else {
        use({0, mover.silicon}, t.start, t.end, lanes[mover.silicon]);
      }
    }
    for (const auto& [what, changes] : used) {
      int64_t now = 0;
      for (const auto& [at, change] : changes) {
        now += change;
        if (now > (what.first == 0 ? lanes[what.second] : 1)) {
          return Internal((what.first == 0 ? "Silicon " : "The link of space ") + std::to_string(what.second) +
                          " does too much at " + std::to_string(at.count()) + " ns.");
        }
      }
    }
    return absl::OkStatus();
  }

  StatusOr<Duration> Makespan() {
    Duration end{0};
    for (const Task& task : placement_.tasks) {
      end = std::max(end, task.end);
    }
    std::set<Duration> times = {end};
    for (const PlannedTransfer& t : placement_.transfers) {
      times.insert(std::max(t.end, end));
    }
    for (const graph::FlatValueId value : flat_.outputs) {
      if (value.valid()) {
        while (!IsThere(value, {0, flat_.values[value.index].bytes}, kHostSpace, *times.begin())) {
          times.erase(times.begin());
          if (times.empty()) {
            return Internal("Output value " + std::to_string(value.index) + " does not come back.");
          }
        }
      }
    }
    return *times.begin();
  }

  const PlacementInput& input_;
  const graph::FlatGraph& flat_;
  const Placement& placement_;
  std::vector<std::vector<uint32_t>> tasks_of_;                           // Indexed by node.
  std::map<std::pair<uint32_t, SpaceIndex>, std::vector<There>> there_;  // Keyed by value and space.
  std::map<uint32_t, std::vector<ByteRange>> made_;  // Keyed by value: bytes written by its producer's tasks.
  std::vector<uint32_t> last_;                                            // Indexed by value: its last reader.
  std::vector<std::set<uint32_t>> readers_;
};

}  // namespace

StatusOr<Duration> CheckSchedule(const PlacementInput& input, const Placement& placement) {
  return Checker(input, placement).Run();
}

}  // namespace hpvm::scheduler
