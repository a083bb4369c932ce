// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/residency_walk.h"

#include <algorithm>
#include <utility>

namespace hpvm::scheduler {
namespace {

using graph::FlatValueId;

// Approximate speed of moving a value; its memory should be free this much earlier than the task starts.
constexpr uint64_t kMovedBytesPerNs = 10;
// Size of pieces copied between devices through host memory: the upload of one overlaps with the download of the next.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
constexpr uint64_t kPiecesMax = 1024;
// Minimum size of a piece of an output, made by parts, that is copied separately.
constexpr uint64_t kReturnedBytesMin = uint64_t{64} << 10;
static_assert(Arena::kAlignment == kStorageAlignment);

SpaceIndex SpacesOf(const ResidencyInput& input) {
  auto spaces = std::max<SpaceIndex>(1, static_cast<SpaceIndex>(input.spaces.size()));
  for (const DeviceFacts& device : input.devices) {
    spaces = std::max(spaces, device.space + 1);
  }
  return spaces;
}

}  // namespace

ResidencyWalk::ResidencyWalk(const ResidencyInput& input, const CarryLayout& layout)
    : input_(input),
      flat_(input.flat),
      layout_(layout),
      spaces_(SpacesOf(input)),
      copies_(input, layout.reserved, spaces_, out_.storages, uses_) {
  for (const DeviceFacts& device : input.devices) {
    has_copy_lanes_ = has_copy_lanes_ || device.has_copy_lanes;
  }
  uses_ = FindUses(input, copies_.has_budgets() || !input.carries.empty());
  copies_.BeginUses();
  out_.temporary_bytes.resize(spaces_);
  out_.moved_bytes.resize(spaces_);
  FindMovers();
}

void ResidencyWalk::FindMovers() {
  mover_.assign(spaces_, 0);
  for (DeviceIndex i = static_cast<DeviceIndex>(input_.devices.size()); i-- > 0;) {
    mover_[SpaceOf(i)] = i;
  }
  for (SpaceIndex space = 0; space < input_.spaces.size(); ++space) {
    const DeviceIndex mover = input_.spaces[space].mover;
    if (mover < input_.devices.size() && SpaceOf(mover) == space) {
      mover_[space] = mover;
    }
  }
}

// Adds the memory that a run binds.
void ResidencyWalk::AddPorts() {
  output_storage_.resize(flat_.outputs.size());
  for (uint32_t k = 0; k < flat_.outputs.size(); ++k) {
    if (flat_.outputs[k].valid()) {
      out_.storages.push_back({.kind = Storage::Kind::kOutput, .port = k, .bytes = BytesOf(flat_.outputs[k])});
      output_storage_[k] = StorageId(out_.storages.size() - 1);
    }
  }
  for (uint32_t v = 0; v < flat_.values.size(); ++v) {
    const graph::FlatValue& value = flat_.values[v];
    if (!value.producer.valid()) {
      out_.storages.push_back({.kind = Storage::Kind::kInput, .port = value.input, .bytes = value.bytes});
      copies_.Add(FlatValueId(v), {.storage = StorageId(out_.storages.size() - 1),
                                   .is_writable = false,
                                   .device = mover_[kHostSpace],
                                   .valid = RangeSet({0, value.bytes})});
    }
  }
}

StatusOr<Residency> ResidencyWalk::Run(uint32_t* culprit) {
  AddPorts();
  FindCarries();
  BeginCarries();
  body_begin_ = static_cast<uint32_t>(out_.steps.size());
  out_.moved_bytes.assign(spaces_, 0);
  out_.first_port.resize(input_.tasks.size());
  part_begins_.resize(flat_.values.size());
  for (uint32_t group = 0; group < uses_.groups.size(); ++group) {
    if (Status status = AddGroup(uses_.groups[group], group); !status.ok()) {
      if (culprit != nullptr) {
        *culprit = uses_.groups[group].first_task;
      }
      return status;
    }
  }
  start_ = end_ = Duration::max();
  copies_.BeginGroup(kUseAtEnd);
  HPVMD_RETURN_IF_ERROR(AddOnHost());
  const bool iterates = !input_.carries.empty();
  if (iterates) {
    HPVMD_RETURN_IF_ERROR(EndBody());
    body_end_ = static_cast<uint32_t>(out_.steps.size());
  }
  const std::vector<uint64_t> moved = out_.moved_bytes;
  HPVMD_RETURN_IF_ERROR(AddOutputs());
  if (iterates) {
    out_.moved_bytes = moved;
  } else {
    body_end_ = static_cast<uint32_t>(out_.steps.size());
  }
  out_.first_touch.push_back(static_cast<uint32_t>(out_.touches.size()));
  for (SpaceIndex space = 0; space < spaces_; ++space) {
    out_.temporary_bytes[space] = copies_.arena(space).bytes_high();
  }
  HPVMD_RETURN_IF_ERROR(PlaceCarried());
  return std::move(out_);
}

StatusOr<uint32_t> ResidencyWalk::NewCopy(FlatValueId value, SpaceIndex space, Duration start) {
  if (const StorageId carried = CarriedFor(value, space); carried.valid()) {
    return copies_.Add(value, {.space = space, .storage = carried, .is_writable = true});
  }
  if (space == kHostSpace && uses_.chain_output[value.index] != kNoOutput) {
    return copies_.Add(value, {.storage = output_storage_[uses_.chain_output[value.index]], .is_writable = true});
  }
  return NewTemporary(value, space, start, {0, BytesOf(value)});
}

StatusOr<uint32_t> ResidencyWalk::NewTemporary(FlatValueId value, SpaceIndex space, Duration start, ByteRange range) {
  const uint64_t bytes = Arena::Round(range.bytes());
  std::optional<uint64_t> offset = 0;
  if (bytes > 0) {
    offset = copies_.arena(space).Allocate(bytes, start);
  }
  while (!offset) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_room, MakeRoom(space, bytes));
    if (!has_room) {
      return DoesNotFit(space, bytes);
    }
    offset = copies_.arena(space).Allocate(bytes, start);
  }
  // Storages with equal place and size are shared, to limit their number.
  std::vector<StorageId>& same_place = storages_at_[*offset ^ (uint64_t{space} << 56)];
  for (const StorageId storage : same_place) {
    const Storage& s = out_.storages[storage.index];
    if (s.space == space && s.offset == *offset && s.bytes == bytes && s.first == range.begin) {
      return copies_.Add(value, {.space = space, .storage = storage, .is_temporary = true, .is_writable = true});
    }
  }
  out_.storages.push_back({.space = space, .bytes = bytes, .offset = *offset, .first = range.begin});
  same_place.push_back(StorageId(out_.storages.size() - 1));
  return copies_.Add(value, {.space = space, .storage = same_place.back(), .is_temporary = true, .is_writable = true});
}

StatusOr<uint32_t> ResidencyWalk::Ensure(FlatValueId value, DeviceIndex device, const RangeSet& need, bool writes) {
  const SpaceIndex space = SpaceOf(device);
  uint32_t target = kNone;
  for (uint32_t c = copies_.First(value); c != kNone; c = copies_[c].next) {
    const Copy& copy = copies_[c];
    if (copy.space != space || copy.is_window || (writes && !copy.is_writable)) {
      continue;
    }
    if (copy.valid.Contains(need)) {
      target = c;
      break;
    }
    target = copy.is_writable ? c : target;
  }
  if (target == kNone) {
    // A value that is moved should be in place when the task begins.
    const bool is_moved = has_copy_lanes_ && !need.is_empty() && copies_[copies_.First(value)].space != kZeros;
    const Duration moving(is_moved ? static_cast<int64_t>(need.bytes() / kMovedBytesPerNs) : 0);
    HPVMD_ASSIGN_OR_RETURN(target, NewCopy(value, space, start_ - moving));
  }
  copies_.Pin(target);
  copies_[target].until = std::max(copies_[target].until, end_);
  RangeSet missing = need;
  missing.Remove(copies_[target].valid);
  HPVMD_RETURN_IF_ERROR(Fill(value, target, std::move(missing), device));
  return target;
}

Status ResidencyWalk::Fill(FlatValueId source, uint32_t target, RangeSet missing, DeviceIndex device) {
  const SpaceIndex space = copies_[target].space;
  for (const bool same_space : {true, false}) {
    for (uint32_t c = copies_.First(source); c != kNone && !missing.is_empty(); c = copies_[c].next) {
      if (c != target && copies_[c].space != kZeros && (copies_[c].space == space) == same_space &&
          IsNear(copies_[c].space, space)) {
        TakeFrom(c, target, missing, device);
      }
    }
    for (uint32_t c = copies_.First(source); same_space && c != kNone; c = copies_[c].next) {
      if (copies_[c].space == kZeros) {
        TakeFrom(c, target, missing, device);
      }
    }
  }
  // Bytes in the memory of another device only pass through host memory.
  const RangeSet far = missing;
  uint32_t staged = kNone;
  bool was_pinned = false;
  for (uint32_t c = copies_.First(source); c != kNone; c = copies_[c].next) {
    was_pinned = was_pinned || (copies_[c].space == kHostSpace && copies_[c].is_pinned);
  }
  for (const ByteRange& range : far.ranges()) {
    uint32_t window = kNone;
    if (NeedsWindow(source, range)) {
      HPVMD_ASSIGN_OR_RETURN(window, NewTemporary(source, kHostSpace, start_, range));
      copies_[window].is_window = true;
      copies_.Pin(window);
    }
    const uint64_t step = std::max(kPieceBytes, range.bytes() / kPiecesMax);
    for (uint64_t at = range.begin; at < range.end; at += std::min(step, range.end - at)) {
      RangeSet piece({at, std::min(range.end - at, step) + at});
      if (window != kNone) {
        HPVMD_RETURN_IF_ERROR(Fill(source, window, piece, mover_[kHostSpace]));
        TakeFrom(window, target, missing, device);
        continue;
      }
      HPVMD_ASSIGN_OR_RETURN(staged, Ensure(source, mover_[kHostSpace], piece, /*writes=*/false));
      TakeFrom(staged, target, missing, device);
    }
    if (window != kNone) {
      copies_.Unpin(window);
    }
  }
  if (staged != kNone && !was_pinned) {
    copies_.Unpin(staged);
  }
  HPVMD_CHECK(missing.is_empty() && "A value is read before it is written.");
  return absl::OkStatus();
}

// A halo of a large grid needs no room for the grid, unless there is memory for all of it anyway.
bool ResidencyWalk::NeedsWindow(FlatValueId value, ByteRange range) {
  if (range.bytes() >= BytesOf(value) / 2 || uses_.chain_output[value.index] != kNoOutput ||
      CarriedFor(value, kHostSpace).valid()) {
    return false;
  }
  for (uint32_t c = copies_.First(value); c != kNone; c = copies_[c].next) {
    if (copies_[c].space == kHostSpace && copies_[c].is_writable && !copies_[c].is_window) {
      return false;
    }
  }
  return true;
}

void ResidencyWalk::TakeFrom(uint32_t source, uint32_t target, RangeSet& missing, DeviceIndex device) {
  if (missing.is_empty()) {
    return;
  }
  const RangeSet found = copies_[source].valid.Within(missing);
  for (const ByteRange& range : found.ranges()) {
    EmitCopy(source, target, range, device);
  }
  missing.Remove(found);
  copies_[target].valid.Add(found);
}

// `device` needs the bytes; they are moved out of another device's memory by a device of that space.
void ResidencyWalk::EmitCopy(uint32_t source_index, uint32_t target_index, ByteRange range, DeviceIndex device) {
  Copy& source = copies_[source_index];
  Copy& target = copies_[target_index];
  target.until = std::max(target.until, end_);
  if (source.space == kZeros) {
    target.device = device;
    AddStep({.kind = Step::Kind::kZero,
             .device = device,
             .target = target.storage,
             .offset = range.begin,
             .bytes = range.bytes()});
    return AddTouch(target.storage, true, range);
  }
  source.until = std::max(source.until, end_);
  NoteInputCopy(source, target.space, range);
  const bool is_download = source.space != target.space && target.space == kHostSpace;
  if (is_download) {
    // If several devices share the space, the last writer need not wait for another.
    device = SpaceOf(source.device) == source.space ? source.device : mover_[source.space];
  } else if (SpaceOf(device) != target.space) {
    device = mover_[target.space];
  }
  target.device = is_download ? mover_[kHostSpace] : device;
  Lane lane = Lane::kCompute;
  if (source.space != target.space) {
    out_.moved_bytes[source.space] += range.bytes();
    out_.moved_bytes[target.space] += range.bytes();
    if (input_.devices[device].has_copy_lanes) {
      lane = is_download ? Lane::kDownload : Lane::kUpload;
    }
  }
  ++out_.copies;
  uint64_t room = 0;
  if (target.is_temporary && source.space == kHostSpace && target.space != kHostSpace &&
      range.end == BytesOf(target.value)) {
    const Storage& storage = out_.storages[target.storage.index];
    room = storage.first + storage.bytes - range.end;
  }
  AddStep({.kind = Step::Kind::kCopy,
           .device = device,
           .lane = lane,
           .source = source.storage,
           .target = target.storage,
           .offset = range.begin,
           .bytes = range.bytes(),
           .room = room});
  AddTouch(source.storage, false, range);
  AddTouch(target.storage, true, {range.begin, range.end + room});
}

void ResidencyWalk::AddStep(Step step) {
  out_.first_touch.push_back(static_cast<uint32_t>(out_.touches.size()));
  out_.steps.push_back(step);
}

Status ResidencyWalk::AddOutputs() {
  for (uint32_t output = 0; output < flat_.outputs.size(); ++output) {
    if (flat_.outputs[output].valid()) {
      HPVMD_RETURN_IF_ERROR(AddOutput(output));
    }
  }
  return absl::OkStatus();
}

Status ResidencyWalk::AddOnHost() {
  for (const uint32_t output : input_.on_host) {
    if (flat_.outputs[output].valid()) {
      HPVMD_RETURN_IF_ERROR(AddOutput(output));
    }
    out_.on_host.push_back(output_storage_[output]);
  }
  return absl::OkStatus();
}

// Completes the value in the memory that the run binds.
Status ResidencyWalk::AddOutput(uint32_t output) {
  const FlatValueId value = flat_.outputs[output];
  uint32_t target = copies_.First(value);
  while (target != kNone && copies_[target].storage != output_storage_[output]) {
    target = copies_[target].next;
  }
  if (target == kNone) {
    target = copies_.Add(value, {.storage = output_storage_[output], .is_writable = true});
  }
  // Part by part: the result of one part is downloaded while the next one runs.
  std::vector<uint64_t> begins = part_begins_[value.index];
  std::sort(begins.begin(), begins.end());
  begins.push_back(BytesOf(value));
  uint64_t from = 0;
  for (const uint64_t until : begins) {
    if (until >= from + kReturnedBytesMin || until == BytesOf(value)) {
      const RangeSet missing = copies_[target].valid.Missing({from, until});
      HPVMD_RETURN_IF_ERROR(Fill(value, target, missing, mover_[kHostSpace]));
      from = until;
    }
  }
  copies_.UnpinAll();
  return absl::OkStatus();
}

}  // namespace hpvm::scheduler
