// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace hpvm::scheduler {
namespace {

using graph::FlatGraph;
using graph::FlatNodeId;
using graph::FlatPort;
using graph::FlatValueId;

constexpr uint32_t kNever = 0xffffffffu;     // A value that nobody reads.
constexpr uint32_t kAtTheEnd = 0xfffffffeu;  // A value that is a graph output.
constexpr uint32_t kNoOutput = 0xffffffffu;
constexpr uint64_t kAlignment = 64;  // A cache line: temporaries never share one.
// A free storage is taken for a value that fills at least half of it (small ones always), so that reuse does not waste
// memory.
constexpr uint64_t kSlackBytes = 4096;

class Planner {
 public:
  explicit Planner(const ResidencyInput& input)
      : input_(input), flat_(input.flat), spaces_(CountSpaces(input.devices)), free_(spaces_) {
    copies_.resize(flat_.values.size() * spaces_);
    out_.port_storage.resize(flat_.ports.size());
    device_of_.resize(flat_.nodes.size());
    out_.temporary_bytes.resize(spaces_);
    FindDevices();
  }

  StatusOr<Residency> Run() {
    for (const Task& task : input_.tasks) {
      device_of_[task.node.index] = task.device;
    }
    FindLastUses();
    FindOutputChains();
    PlaceInputs();
    for (uint32_t task = 0; task < input_.tasks.size(); ++task) {
      AddNode(task, input_.tasks[task].node.index);
    }
    AddOutputs();
    for (uint64_t bytes : out_.temporary_bytes) {
      if (bytes > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return ResourceExhausted("The graph's temporary buffers need more than 2^63 bytes.");
      }
    }
    CutSegments();
    return std::move(out_);
  }

 private:
  static SpaceIndex CountSpaces(std::span<const DeviceFacts> devices) {
    SpaceIndex count = 1;
    for (const DeviceFacts& device : devices) {
      count = std::max(count, device.space + 1);
    }
    return count;
  }

  // A device that moves data in each space when no node says which.
  void FindDevices() {
    mover_.assign(spaces_, 0);
    for (DeviceIndex i = static_cast<DeviceIndex>(input_.devices.size()); i-- > 0;) {
      mover_[input_.devices[i].space] = i;
    }
  }

  std::pair<uint32_t, uint32_t> Ports(uint32_t node) const {
    const uint32_t end =
        node + 1 < flat_.nodes.size() ? flat_.nodes[node + 1].first_port : static_cast<uint32_t>(flat_.ports.size());
    return {flat_.nodes[node].first_port, end};
  }

  void FindLastUses() {
    last_use_.assign(flat_.values.size(), kNever);
    for (uint32_t node = 0; node < flat_.nodes.size(); ++node) {
      const auto [begin, end] = Ports(node);
      for (uint32_t port = begin; port < end; ++port) {
        if (flat_.ports[port].in.valid()) {
          last_use_[flat_.ports[port].in.index] = node;
        }
      }
    }
    for (FlatValueId value : flat_.outputs) {
      if (value.valid()) {
        last_use_[value.index] = kAtTheEnd;
      }
    }
  }

  // Whether `port` of `node` is the only and last reader of its value.
  bool IsLastReader(uint32_t node, uint32_t port) const {
    const FlatValueId value = flat_.ports[port].in;
    if (last_use_[value.index] != node) {
      return false;
    }
    const auto [begin, end] = Ports(node);
    for (uint32_t other = begin; other < end; ++other) {
      if (other != port && flat_.ports[other].in == value) {
        return false;
      }
    }
    return true;
  }

  // Follows in-place updates back from each output, so that the first value of the chain is already made in the
  // output's memory.
  void FindOutputChains() {
    chain_output_.assign(flat_.values.size(), kNoOutput);
    output_storage_.resize(flat_.outputs.size());
    for (uint32_t k = 0; k < flat_.outputs.size(); ++k) {
      const FlatValueId value = flat_.outputs[k];
      if (!value.valid()) {
        continue;
      }
      output_storage_[k] =
          AddStorage({.kind = Storage::Kind::kOutput, .port = k, .bytes = flat_.values[value.index].bytes});
      if (chain_output_[value.index] == kNoOutput) {
        chain_output_[value.index] = k;
      }
    }
    for (uint32_t node = static_cast<uint32_t>(flat_.nodes.size()); node-- > 0;) {
      const auto [begin, end] = Ports(node);
      for (uint32_t port = begin; port < end; ++port) {
        const FlatPort& p = flat_.ports[port];
        if (p.in.valid() && p.out.valid() && chain_output_[p.out.index] != kNoOutput &&
            chain_output_[p.in.index] == kNoOutput && IsLastReader(node, port)) {
          chain_output_[p.in.index] = chain_output_[p.out.index];
        }
      }
    }
  }

  void PlaceInputs() {
    for (uint32_t v = 0; v < flat_.values.size(); ++v) {
      const graph::FlatValue& value = flat_.values[v];
      if (!value.producer.valid()) {
        CopyIn(FlatValueId(v), kHostSpace) =
            AddStorage({.kind = Storage::Kind::kInput, .port = value.input, .bytes = value.bytes});
      }
    }
  }

  StorageId& CopyIn(FlatValueId value, SpaceIndex space) { return copies_[size_t{value.index} * spaces_ + space]; }

  StorageId AddStorage(const Storage& storage) {
    out_.storages.push_back(storage);
    return StorageId(out_.storages.size() - 1);
  }

  // Memory for `value` in `space`: its output's, a free temporary, or a new one.
  StorageId Allocate(FlatValueId value, SpaceIndex space) {
    if (space == kHostSpace && chain_output_[value.index] != kNoOutput) {
      return output_storage_[chain_output_[value.index]];
    }
    return Temporary(flat_.values[value.index].bytes, space);
  }

  StorageId Temporary(uint64_t wanted, SpaceIndex space) {
    const uint64_t bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment;
    auto it = free_[space].lower_bound(bytes);
    if (it != free_[space].end() && (it->first <= kSlackBytes || it->first / 2 <= bytes)) {
      const StorageId storage = it->second.back();
      it->second.pop_back();
      if (it->second.empty()) {
        free_[space].erase(it);
      }
      return storage;
    }
    // Saturates: Run refuses it.
    uint64_t& total = out_.temporary_bytes[space];
    total = bytes > ~uint64_t{0} - total ? ~uint64_t{0} : total + bytes;
    return AddStorage({.kind = Storage::Kind::kTemporary, .space = space, .bytes = bytes});
  }

  void Free(FlatValueId value) {
    for (SpaceIndex space = 0; space < spaces_; ++space) {
      StorageId& storage = CopyIn(value, space);
      if (storage.valid() && out_.storages[storage.index].kind == Storage::Kind::kTemporary) {
        free_[space][out_.storages[storage.index].bytes].push_back(storage);
      }
      storage = StorageId();
    }
  }

  void AddCopy(DeviceIndex device, StorageId source, StorageId target, uint64_t bytes) {
    if (bytes == 0 || source == target) {
      return;
    }
    ++out_.copies;
    out_.steps.push_back(
        {.kind = Step::Kind::kCopy, .device = device, .source = source, .target = target, .bytes = bytes});
  }

  // Fills `target`, which lies in the space of `device`, with the value; through host memory when it is only elsewhere.
  void Fetch(FlatValueId value, DeviceIndex device, StorageId target) {
    const uint64_t bytes = flat_.values[value.index].bytes;
    const SpaceIndex space = input_.devices[device].space;
    if (CopyIn(value, space).valid()) {
      return AddCopy(device, CopyIn(value, space), target, bytes);
    }
    if (CopyIn(value, kHostSpace).valid()) {
      return AddCopy(device, CopyIn(value, kHostSpace), target, bytes);
    }
    for (SpaceIndex other = 1; other < spaces_; ++other) {
      if (!CopyIn(value, other).valid()) {
        continue;
      }
      const DeviceIndex mover = MoverOf(value, other);
      if (space == kHostSpace) {
        return AddCopy(mover, CopyIn(value, other), target, bytes);
      }
      CopyIn(value, kHostSpace) = Temporary(bytes, kHostSpace);
      AddCopy(mover, CopyIn(value, other), CopyIn(value, kHostSpace), bytes);
      return AddCopy(device, CopyIn(value, kHostSpace), target, bytes);
    }
    HPVMD_CHECK(bytes == 0 && "A value is read before it is written.");
  }

  // Which device takes a value out of `space`: of several that share it, the one that made the value, which need not
  // wait for another, and whose memory need not be shared for this.
  DeviceIndex MoverOf(FlatValueId value, SpaceIndex space) const {
    const FlatNodeId producer = flat_.values[value.index].producer;
    const DeviceIndex maker = producer.valid() ? device_of_[producer.index] : mover_[space];
    return input_.devices[maker].space == space ? maker : mover_[space];
  }

  void AddNode(uint32_t task, uint32_t node) {
    const DeviceIndex device = device_of_[node];
    const SpaceIndex space = input_.devices[device].space;
    const auto [begin, end] = Ports(node);
    out_.first_port.push_back(begin);
    for (uint32_t port = begin; port < end; ++port) {
      const FlatPort& p = flat_.ports[port];
      out_.port_storage[port] = !p.out.valid() ? Read(p.in, device, space)
                                : p.in.valid() ? Update(node, port, device, space)
                                               : Create(p.out, device, space);
    }
    out_.steps.push_back({.kind = Step::Kind::kRun, .device = device, .task = task});
    for (uint32_t port = begin; port < end; ++port) {
      const FlatPort& p = flat_.ports[port];
      if (p.out.valid()) {
        CopyIn(p.out, space) = out_.port_storage[port];
      }
    }
    for (uint32_t port = begin; port < end; ++port) {
      const FlatPort& p = flat_.ports[port];
      if (p.in.valid() && last_use_[p.in.index] == node) {
        Free(p.in);
      }
      if (p.out.valid() && last_use_[p.out.index] == kNever) {
        Free(p.out);
      }
    }
  }

  StorageId Read(FlatValueId value, DeviceIndex device, SpaceIndex space) {
    if (!CopyIn(value, space).valid()) {
      const StorageId target = Temporary(flat_.values[value.index].bytes, space);
      Fetch(value, device, target);
      CopyIn(value, space) = target;
    }
    return CopyIn(value, space);
  }

  StorageId Create(FlatValueId value, DeviceIndex device, SpaceIndex space) {
    const StorageId storage = Allocate(value, space);
    if (flat_.values[value.index].bytes > 0) {
      out_.steps.push_back(
          {.kind = Step::Kind::kZero, .device = device, .target = storage, .bytes = flat_.values[value.index].bytes});
    }
    return storage;
  }

  StorageId Update(uint32_t node, uint32_t port, DeviceIndex device, SpaceIndex space) {
    const FlatPort& p = flat_.ports[port];
    const StorageId held = CopyIn(p.in, space);
    if (held.valid() && out_.storages[held.index].kind != Storage::Kind::kInput && IsLastReader(node, port)) {
      ++out_.in_place;
      CopyIn(p.in, space) = StorageId();  // The memory passes to the new value.
      return held;
    }
    const StorageId storage = Allocate(p.out, space);
    Fetch(p.in, device, storage);
    return storage;
  }

  void AddOutputs() {
    for (uint32_t k = 0; k < flat_.outputs.size(); ++k) {
      if (flat_.outputs[k].valid() && CopyIn(flat_.outputs[k], kHostSpace) != output_storage_[k]) {
        Fetch(flat_.outputs[k], mover_[kHostSpace], output_storage_[k]);
      }
    }
  }

  void CutSegments() {
    const size_t device_count = input_.devices.size();
    written_.assign(out_.storages.size(), kNever);
    read_.assign(out_.storages.size() * device_count, kNever);
    wait_for_.assign(device_count, kNever);
    last_on_.assign(device_count, kNever);
    for (uint32_t i = 0; i < out_.steps.size(); ++i) {
      const Step& step = out_.steps[i];
      if (out_.segments.empty() || out_.segments.back().device != step.device) {
        CloseWaits();
        out_.segments.push_back({.device = step.device, .first_step = i});
        // A device's segments run in order: its timeline then says of all earlier ones that they are done, too.
        WaitFor(last_on_[step.device]);
        last_on_[step.device] = static_cast<uint32_t>(out_.segments.size() - 1);
      }
      ++out_.segments.back().step_count;
      if (step.kind != Step::Kind::kRun) {
        Touch(step.source, false);
        Touch(step.target, true);
        continue;
      }
      const auto [begin, end] = Ports(input_.tasks[step.task].node.index);
      for (uint32_t port = begin; port < end; ++port) {
        Touch(out_.port_storage[port], flat_.ports[port].out.valid());
      }
    }
    CloseWaits();
    out_.body.segment_count = static_cast<uint32_t>(out_.segments.size());
  }

  // Notes that the last segment reads or writes `storage`, and what it must wait for.
  void Touch(StorageId storage, bool writes) {
    if (!storage.valid()) {
      return;
    }
    const uint32_t segment = static_cast<uint32_t>(out_.segments.size() - 1);
    const size_t device_count = input_.devices.size();
    WaitFor(written_[storage.index]);
    uint32_t* readers = &read_[storage.index * device_count];
    if (writes) {
      for (size_t d = 0; d < device_count; ++d) {
        WaitFor(readers[d]);
      }
      written_[storage.index] = segment;
    }
    readers[out_.segments.back().device] = segment;
  }

  void WaitFor(uint32_t segment) {
    if (segment == kNever || segment + 1 == out_.segments.size()) {
      return;
    }
    uint32_t& latest = wait_for_[out_.segments[segment].device];
    latest = latest == kNever ? segment : std::max(latest, segment);
  }

  void CloseWaits() {
    if (out_.segments.empty()) {
      return;
    }
    Segment& segment = out_.segments.back();
    segment.first_wait = static_cast<uint32_t>(out_.waits.size());
    for (uint32_t& latest : wait_for_) {
      if (latest != kNever) {
        out_.waits.push_back({latest});
        ++segment.wait_count;
        latest = kNever;
      }
    }
  }

  const ResidencyInput& input_;
  const FlatGraph& flat_;
  const SpaceIndex spaces_;
  std::vector<DeviceIndex> mover_;                                // By space.
  std::vector<std::map<uint64_t, std::vector<StorageId>>> free_;  // By space, by size.
  std::vector<StorageId> copies_;                                 // By value and space: where it is valid.
  std::vector<DeviceIndex> device_of_;                            // By flat node.
  std::vector<uint32_t> last_use_;                                // By value.
  std::vector<uint32_t> chain_output_;     // By value: the output whose memory its chain ends in.
  std::vector<StorageId> output_storage_;  // By output.
  // While segments are cut: the last segment that wrote a storage, that read it (by device), and what the open one
  // waits for (by device), and the last segment of each device.
  std::vector<uint32_t> written_, read_, wait_for_, last_on_;
  Residency out_;
};

}  // namespace

StatusOr<Residency> PlanResidency(const ResidencyInput& input, uint32_t*) { return Planner(input).Run(); }

}  // namespace hpvm::scheduler
