// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/plan_shape.h"

#include <algorithm>
#include <utility>

namespace hpvm::scheduler {
namespace {

class ShapeChecker {
 public:
  ShapeChecker(const ResidencyInput& input, const Residency& plan) : input_(input), flat_(input.flat), plan_(plan) {}

  std::vector<std::string> Run() {
    CheckStorages();
    CheckSegments();
    CheckTouches();
    if (faults_.empty()) {
      for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
        CheckStep(i);
      }
      CheckSwaps();
    }
    return std::move(faults_);
  }

 private:
  void Require(bool condition, const std::string& fault) {
    if (!condition && faults_.size() < 16) {
      faults_.push_back(fault);
    }
  }

  void CheckStorages() {
    for (size_t s = 0; s < plan_.storages.size(); ++s) {
      const Storage& storage = plan_.storages[s];
      const std::string name = "Storage " + std::to_string(s);
      if (storage.kind != Storage::Kind::kTemporary) {
        Require(storage.space == kHostSpace, name + " is bound by a run and lies outside host memory.");
        continue;
      }
      Require(storage.offset % kStorageAlignment == 0, name + " is not aligned.");
      Require(storage.space < plan_.temporary_bytes.size() &&
                  storage.offset + storage.bytes <= plan_.temporary_bytes[storage.space],
              name + " reaches beyond its arena.");
      if (storage.space < input_.spaces.size() && storage.bytes > 0) {
        const uint64_t piece = input_.spaces[storage.space].piece_bytes_max;
        Require(storage.offset / piece == (storage.offset + storage.bytes - 1) / piece,
                name + " straddles two pieces.");
      }
    }
    for (size_t space = 0; space < std::min(input_.spaces.size(), plan_.temporary_bytes.size()); ++space) {
      Require(plan_.temporary_bytes[space] <= input_.spaces[space].bytes_max,
              "Space " + std::to_string(space) + " holds " + std::to_string(plan_.temporary_bytes[space]) +
                  " bytes; " + std::to_string(input_.spaces[space].bytes_max) + " are allowed.");
    }
  }

  void CheckSegments() {
    uint32_t next_step = 0, next_segment = 0;
    std::vector<uint32_t> runs(input_.tasks.size());
    for (const StepRange* range : {&plan_.prologue, &plan_.body, &plan_.epilogue}) {
      if (range->segment_count == 0) {
        continue;
      }
      Require(range->first_segment == next_segment, "The stages' segments do not follow each other.");
      next_segment = range->first_segment + range->segment_count;
      for (uint32_t s = range->first_segment; s < next_segment && s < plan_.segments.size(); ++s) {
        CheckSegment(s, *range, next_step, runs);
      }
    }
    Require(next_segment == plan_.segments.size(), "Some segments belong to no stage.");
    Require(next_step == plan_.steps.size(), "Some steps are in no segment.");
    for (size_t task = 0; task < runs.size(); ++task) {
      Require(runs[task] == 1, "Task " + std::to_string(task) + " runs " + std::to_string(runs[task]) + " times.");
    }
  }

  void CheckSegment(uint32_t s, const StepRange& stage, uint32_t& next_step, std::vector<uint32_t>& runs) {
    const Segment& segment = plan_.segments[s];
    const std::string name = "Segment " + std::to_string(s);
    Require(segment.step_count > 0 && segment.first_step == next_step, name + " does not follow the one before it.");
    next_step = segment.first_step + segment.step_count;
    for (uint32_t i = segment.first_step; i < next_step && i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      Require(step.device == segment.device && step.lane == segment.lane, name + " has a step of another lane.");
      if (step.kind == Step::Kind::kRun) {
        Require(&stage == &plan_.body, name + " runs a task outside of the body.");
        Require(step.task < runs.size(), name + " runs a task that is not there.");
        if (step.task < runs.size()) {
          ++runs[step.task];
        }
        Require(!step.has_late_extent || i == segment.first_step, name + " has a late extent that is not its first.");
      }
    }
    for (uint32_t w = segment.first_wait; w < segment.first_wait + segment.wait_count; ++w) {
      Require(w < plan_.waits.size() && plan_.waits[w].segment < s && plan_.waits[w].segment >= stage.first_segment,
              name + " waits for a later segment or one of another stage.");
    }
  }

  void CheckTouches() {
    bool is_right =
        plan_.first_touch.size() == plan_.steps.size() + 1 && plan_.first_touch.back() == plan_.touches.size();
    for (size_t i = 0; is_right && i + 1 < plan_.first_touch.size(); ++i) {
      is_right = plan_.first_touch[i] <= plan_.first_touch[i + 1];
    }
    Require(is_right, "The steps' touches are not complete.");
  }

  static bool IsWithin(const Step& step, const Storage& storage, uint64_t room = 0) {
    return step.offset >= storage.first && step.offset + step.bytes + room <= storage.first + storage.bytes;
  }
  bool IsStorage(StorageId id) const { return id.index < plan_.storages.size(); }
  const Storage& At(StorageId id) const { return plan_.storages[id.index]; }

  void CheckStep(uint32_t i) {
    const Step& step = plan_.steps[i];
    const std::string name = "Step " + std::to_string(i);
    if (step.kind == Step::Kind::kRun) {
      return CheckRun(step, name);
    }
    const SpaceIndex own = input_.devices[step.device].space;
    Require(IsStorage(step.target) && (step.kind == Step::Kind::kZero || IsStorage(step.source)),
            name + " names no storage.");
    if (!faults_.empty()) {
      return;
    }
    Require(step.bytes > 0 && IsWithin(step, At(step.target), step.room), name + " reaches beyond its target.");
    Require(At(step.target).kind != Storage::Kind::kInput, name + " writes to an input.");
    if (step.kind == Step::Kind::kZero) {
      return Require(At(step.target).space == own, name + " fills memory that its device does not have.");
    }
    Require(IsWithin(step, At(step.source)), name + " reaches beyond its source.");
    const SpaceIndex from = At(step.source).space, to = At(step.target).space;
    Require((from == own || from == kHostSpace) && (to == own || to == kHostSpace),
            name + " copies between memories that its device does not reach.");
    const bool has_lanes = input_.devices[step.device].has_copy_lanes && from != to;
    const Lane lane = !has_lanes ? Lane::kCompute : to == own ? Lane::kUpload : Lane::kDownload;
    Require(step.lane == lane, name + " is a copy in the wrong lane.");
  }

  void CheckRun(const Step& step, const std::string& name) {
    const Task& task = input_.tasks[step.task];
    Require(step.device == task.device && step.lane == Lane::kCompute, name + " runs its task elsewhere.");
    const uint32_t begin = flat_.nodes[task.node.index].first_port;
    const uint32_t end = PortsEnd(flat_, task.node);
    for (uint32_t port = begin; port < end; ++port) {
      const StorageId id = plan_.port_storage[plan_.first_port[step.task] + port - begin];
      const graph::FlatPort& p = flat_.ports[port];
      Require(IsStorage(id), name + " has a port without a storage.");
      if (!IsStorage(id)) {
        return;
      }
      Require(At(id).space == input_.devices[step.device].space, name + " has a port in another space.");
      Require(At(id).first == 0 && At(id).bytes >= flat_.values[(p.out.valid() ? p.out : p.in).index].bytes,
              name + " has a port whose storage is too small.");
      Require(!p.out.valid() || At(id).kind != Storage::Kind::kInput, name + " writes to an input.");
      for (uint32_t other = begin; other < port; ++other) {
        CheckApart(task, step.task, begin, other, port, name);
      }
    }
  }

  // No port may read bytes that another port writes.
  void CheckApart(const Task& task, uint32_t index, uint32_t begin, uint32_t a, uint32_t b, const std::string& name) {
    const auto range = [&](uint32_t port, ByteRange bytes) -> std::pair<uint64_t, ByteRange> {
      const StorageId id = plan_.port_storage[plan_.first_port[index] + port - begin];
      const bool is_temporary = At(id).kind == Storage::Kind::kTemporary;
      const uint64_t base = is_temporary ? At(id).offset : 0;
      return {is_temporary ? uint64_t{At(id).space} : (uint64_t{1} << 32) + id.index,
              {base + bytes.begin, base + bytes.end}};
    };
    const auto overlap = [&](ByteRange left, ByteRange right) {
      const auto [memory, l] = range(a, left);
      const auto [other, r] = range(b, right);
      return memory == other && !l.is_empty() && !r.is_empty() && l.begin < r.end && r.begin < l.end;
    };
    const PortAccess of_a = input_.accesses.Of(task.node, task.choice, task.box, a);
    const PortAccess of_b = input_.accesses.Of(task.node, task.choice, task.box, b);
    Require(!overlap(of_a.written, of_b.written) && !overlap(of_a.written, of_b.read) &&
                !overlap(of_a.read, of_b.written),
            name + " has ports that share memory.");
  }

  void CheckSwaps() {
    std::vector<bool> is_swapped(plan_.storages.size());
    for (const auto& [a, b] : plan_.swaps) {
      Require(IsStorage(a) && IsStorage(b) && a != b, "A swap names no two storages.");
      if (!faults_.empty()) {
        return;
      }
      Require(At(a).bytes == At(b).bytes && At(a).space == At(b).space &&
                  At(a).kind == Storage::Kind::kTemporary && At(b).kind == Storage::Kind::kTemporary,
              "A swap changes storages of different sizes or spaces.");
      Require(!is_swapped[a.index] && !is_swapped[b.index], "A storage is swapped twice.");
      is_swapped[a.index] = is_swapped[b.index] = true;
    }
    // Swapped memory is exclusive: at odd iterations other storages would see it under another name.
    for (size_t s = 0; s < plan_.storages.size(); ++s) {
      for (size_t o = 0; is_swapped[s] && o < plan_.storages.size(); ++o) {
        const Storage& a = plan_.storages[s];
        const Storage& b = plan_.storages[o];
        Require(s == o || b.kind != Storage::Kind::kTemporary || a.space != b.space || a.bytes == 0 || b.bytes == 0 ||
                    a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset,
                "Storage " + std::to_string(s) + " is swapped and shares memory.");
      }
    }
    Require(plan_.on_host.size() == input_.on_host.size(), "Outputs that the host reads have no storage.");
    for (const StorageId id : plan_.on_host) {
      Require(IsStorage(id) && At(id).space == kHostSpace, "An output that the host reads lies elsewhere.");
    }
  }

  const ResidencyInput& input_;
  const graph::FlatGraph& flat_;
  const Residency& plan_;
  std::vector<std::string> faults_;
};

}  // namespace

uint32_t PortsEnd(const graph::FlatGraph& flat, graph::FlatNodeId node) {
  return node.index + 1 < flat.nodes.size() ? flat.nodes[node.index + 1].first_port
                                            : static_cast<uint32_t>(flat.ports.size());
}

std::vector<StepAccess> AccessesOf(const ResidencyInput& input, const Residency& plan, uint32_t index) {
  std::vector<StepAccess> accesses;
  const auto add = [&](StorageId storage, ByteRange range, bool writes) {
    if (!range.is_empty()) {
      accesses.push_back({storage, range, writes});
    }
  };
  const Step& step = plan.steps[index];
  if (step.kind != Step::Kind::kRun) {
    if (step.kind == Step::Kind::kCopy) {
      add(step.source, {step.offset, step.offset + step.bytes}, false);
    }
    add(step.target, {step.offset, step.offset + step.bytes + step.room}, true);
    return accesses;
  }
  const Task& task = input.tasks[step.task];
  const uint32_t begin = input.flat.nodes[task.node.index].first_port;
  for (uint32_t port = begin; port < PortsEnd(input.flat, task.node); ++port) {
    const PortAccess access = input.accesses.Of(task.node, task.choice, task.box, port);
    const StorageId storage = plan.port_storage[plan.first_port[step.task] + port - begin];
    add(storage, access.read, false);
    add(storage, access.written, true);
  }
  if (step.has_late_extent) {
    for (const LateExtent& extent : plan.late_extents) {
      if (extent.task == step.task) {
        const auto port = static_cast<uint32_t>(input.flat.nodes[task.node.index].extent_port[extent.dimension]);
        add(extent.storage, {0, input.flat.values[input.flat.ports[begin + port].in.index].bytes}, false);
      }
    }
  }
  return accesses;
}

std::vector<std::string> CheckShape(const ResidencyInput& input, const Residency& plan) {
  return ShapeChecker(input, plan).Run();
}

}  // namespace hpvm::scheduler
