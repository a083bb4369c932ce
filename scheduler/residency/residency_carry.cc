// SPDX-License-Identifier: Apache-2.0
// Values that one iteration hands to the next (part of PlanResidency).
// Method: an iteration begins with its carried values where the layout says. At its end each is completed in a
// storage from which the next one can begin: the input's own, its output's, or that of another carry, with which it
// is exchanged. NoteLayout records where values would lie if nothing were moved; PlanResidency plans again with
// that layout, a bounded number of times, until nothing is restored.
// Invariants: pieces of a carried value cover all of it. No storage is handed to two carries, and a storage takes
// part in at most one swap. Carried storages lie above all others of their arena, so temporaries never overlap
// them.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/residency/residency_walk.h"

namespace hpvm::scheduler {

using graph::FlatValueId;

namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 63;

}  // namespace

void ResidencyWalk::FindCarries() {
  chain_carry_.assign(input_.carries.empty() ? 0 : flat_.values.size(), kNoOutput);
  carries_.resize(input_.carries.size());
  std::unordered_map<uint32_t, uint32_t> carry_of;  // Keyed by the root's input port.
  for (uint32_t k = 0; k < carries_.size(); ++k) {
    carry_of.emplace(input_.carries[k].input, k);
  }
  for (uint32_t v = 0; v < flat_.values.size() && !carries_.empty(); ++v) {
    const auto it = flat_.values[v].producer.valid() ? carry_of.end() : carry_of.find(flat_.values[v].input);
    if (it == carry_of.end()) {
      continue;
    }
    const FlatValueId output = flat_.outputs[input_.carries[it->second].output];
    // An input without a reader, or one that is passed through, needs no memory of its own.
    if (uses_.last_use[v] != kNoUse && output != FlatValueId(v)) {
      carries_[it->second].input = FlatValueId(v);
      carries_[it->second].output = output;
    }
  }
  for (uint32_t k = 0; k < carries_.size(); ++k) {
    if (carries_[k].output.valid() && chain_carry_[carries_[k].output.index] == kNoOutput) {
      chain_carry_[carries_[k].output.index] = k;
    }
  }
  if (!carries_.empty()) {
    FollowChains(input_, uses_, chain_carry_);
  }
}

StorageId ResidencyWalk::NewCarried(SpaceIndex space, uint64_t bytes) {
  out_.storages.push_back({.space = space, .bytes = Arena::Round(bytes)});
  carried_.push_back(StorageId(out_.storages.size() - 1));
  return carried_.back();
}

StorageId ResidencyWalk::CarriedFor(FlatValueId value, SpaceIndex space) {
  if (!layout_.is_known || chain_carry_.empty() || chain_carry_[value.index] == kNoOutput) {
    return {};
  }
  const uint32_t carry = chain_carry_[value.index];
  const std::vector<CarryLayout::Piece>& pieces = layout_.carried[carry];
  const bool is_there =
      std::any_of(pieces.begin(), pieces.end(), [&](const CarryLayout::Piece& piece) { return piece.space == space; });
  if (!is_there) {
    return {};
  }
  StorageId& next = carries_[carry].next[space];
  if (!next.valid()) {
    next = NewCarried(space, BytesOf(value));
  }
  return next;
}

// The prologue moves values that the first iteration needs from the memory bound by the run to their place in later
// ones.
void ResidencyWalk::BeginCarries() {
  if (!layout_.is_known) {
    return;
  }
  for (uint32_t k = 0; k < carries_.size(); ++k) {
    const FlatValueId input = carries_[k].input;
    if (!input.valid()) {
      continue;
    }
    const uint32_t bound = copies_.First(input);
    for (const CarryLayout::Piece& piece : layout_.carried[k]) {
      carries_[k].from[piece.space] = Bring(bound, input, piece.space, piece.ranges, /*is_writable=*/true);
    }
    copies_.Drop(input, bound);  // Later iterations must not read the first one's input.
  }
  for (const CarryLayout::Resident& resident : layout_.inputs) {
    // The bound memory is the last copy; later copies precede it.
    uint32_t bound = copies_.First(resident.value);
    while (copies_[bound].next != kNone) {
      bound = copies_[bound].next;
    }
    Bring(bound, resident.value, resident.space, resident.ranges, /*is_writable=*/false);
  }
}

StorageId ResidencyWalk::Bring(uint32_t source, FlatValueId value, SpaceIndex space, const RangeSet& ranges,
                               bool is_writable) {
  const StorageId storage = NewCarried(space, BytesOf(value));
  const uint32_t target = copies_.Add(value, {.space = space, .storage = storage, .is_writable = is_writable});
  for (const ByteRange& range : ranges.ranges()) {
    EmitCopy(source, target, range, mover_[space]);
  }
  copies_[target].valid = ranges;
  return storage;
}

void ResidencyWalk::NoteInputCopy(const Copy& source, SpaceIndex target, ByteRange range) {
  if (!carries_.empty() && !layout_.is_known && target != kHostSpace &&
      out_.storages[source.storage.index].kind == Storage::Kind::kInput) {
    input_copies_[{out_.storages[source.storage.index].port, target}].Add(range);
  }
}

// Records where the next iteration would find its values if nothing were moved; spaces that read them come first.
void ResidencyWalk::NoteLayout() {
  natural_.is_known = true;
  natural_.carried.assign(carries_.size(), {});
  for (uint32_t k = 0; k < carries_.size(); ++k) {
    const CarryState& carry = carries_[k];
    if (!carry.output.valid()) {
      continue;
    }
    std::vector<bool> is_read(spaces_, false);
    const uint32_t end = uses_.first_value_use[carry.input.index + 1];
    for (uint32_t use = uses_.first_value_use[carry.input.index]; use < end; ++use) {
      is_read[uses_.value_uses[use].space] = true;
    }
    RangeSet rest({0, BytesOf(carry.output)});
    std::vector<CarryLayout::Piece>& pieces = natural_.carried[k];
    for (const bool reads : {true, false}) {
      for (uint32_t c = copies_.First(carry.output); c != kNone; c = copies_[c].next) {
        const Copy& copy = copies_[c];
        // An iteration does not begin with values on disk.
        if (copy.space == kZeros || copy.is_window || !copy.is_writable || is_read[copy.space] != reads ||
            copies_.OverflowOf(kHostSpace) == copy.space) {
          continue;
        }
        const RangeSet wanted = reads ? copy.valid : copy.valid.Within(rest);
        rest.Remove(wanted);
        if (!wanted.is_empty()) {
          auto piece = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const CarryLayout::Piece& p) { return p.space == copy.space; });
          if (piece == pieces.end()) {
            piece = pieces.insert(piece, {.space = copy.space});
          }
          piece->ranges.Add(wanted);
        }
      }
    }
    if (pieces.empty()) {
      pieces.push_back({});
    }
    pieces.front().ranges.Add(rest);
  }
  natural_.inputs.clear();
  std::vector<bool> is_carried(flat_.values.size());
  for (const CarryState& carry : carries_) {
    if (carry.input.valid()) {
      is_carried[carry.input.index] = true;
    }
  }
  for (uint32_t v = 0; v < flat_.values.size() && !input_copies_.empty(); ++v) {
    for (SpaceIndex space = 0; space < spaces_ && !flat_.values[v].producer.valid() && !is_carried[v]; ++space) {
      const auto it = input_copies_.find({flat_.values[v].input, space});
      if (it != input_copies_.end()) {
        natural_.inputs.push_back({.value = FlatValueId(v), .space = space, .ranges = it->second});
      }
    }
  }
}

Status ResidencyWalk::EndBody() {
  NoteLayout();
  if (!layout_.is_known) {
    return absl::OkStatus();
  }
  const size_t first = out_.steps.size();
  for (uint32_t k = 0; k < carries_.size(); ++k) {
    for (const CarryLayout::Piece& piece : layout_.carried[k]) {
      HPVMD_RETURN_IF_ERROR(RestoreCarry(k, piece));
    }
  }
  AddSwaps();
  for (size_t step = first; step < out_.steps.size(); ++step) {
    restored_bytes_ += out_.steps[step].bytes;
  }
  return absl::OkStatus();
}

// Returns true when the next iteration can begin from this storage: the input's own, its output's, or that of another
// carry's input whose output is in ours, in which case the two are exchanged; `*other` is then that carry.
bool ResidencyWalk::MayBegin(uint32_t k, SpaceIndex space, StorageId storage, uint32_t* other) {
  CarryState& carry = carries_[k];
  *other = k;
  if (const auto made = carry.made.find(space); made != carry.made.end()) {
    return made->second == storage;
  }
  const StorageId from = carry.from.at(space);
  for (uint32_t o = 0; o < carries_.size(); ++o) {
    const auto made = carries_[o].made.find(space);
    if (o != k && made != carries_[o].made.end() && (made->second == storage || made->second == from)) {
      return false;
    }
  }
  const auto next = carry.next.find(space);
  if (storage == from || (next != carry.next.end() && next->second == storage)) {
    return true;
  }
  for (uint32_t o = 0; o < carries_.size(); ++o) {
    const auto its = carries_[o].from.find(space);
    if (o != k && its != carries_[o].from.end() && its->second == storage && !carries_[o].made.contains(space) &&
        copies_.IsIn(carries_[o].output, from)) {
      *other = o;
      return true;
    }
  }
  return false;
}

// Completes the carried value in a storage from which the next iteration can begin.
Status ResidencyWalk::RestoreCarry(uint32_t k, const CarryLayout::Piece& piece) {
  CarryState& carry = carries_[k];
  uint32_t target = kNone;
  for (uint32_t c = copies_.First(carry.output); c != kNone; c = copies_[c].next) {
    uint32_t other = k;
    if (copies_[c].space == piece.space && copies_[c].is_writable && !copies_[c].is_window &&
        MayBegin(k, piece.space, copies_[c].storage, &other)) {
      target = c;
      if (other != k) {
        carries_[other].made[piece.space] = carry.from.at(piece.space);
      }
      break;
    }
  }
  if (target == kNone) {
    StorageId& next = carry.next[piece.space];
    // Its own memory may hold an earlier version that is still needed.
    next = next.valid() && !copies_.IsInUse(next) ? next : NewCarried(piece.space, BytesOf(carry.output));
    target = copies_.Add(carry.output, {.space = piece.space, .storage = next, .is_writable = true});
  }
  carry.made[piece.space] = copies_[target].storage;
  RangeSet missing = piece.ranges;
  missing.Remove(copies_[target].valid);
  HPVMD_RETURN_IF_ERROR(Fill(carry.output, target, std::move(missing), mover_[piece.space]));
  copies_.UnpinAll();
  return absl::OkStatus();
}

void ResidencyWalk::AddSwaps() {
  for (const CarryState& carry : carries_) {
    for (const auto& [space, made] : carry.made) {
      const StorageId from = carry.from.at(space);
      const bool is_known = std::any_of(out_.swaps.begin(), out_.swaps.end(), [&](const auto& swap) {
        return swap.first == from || swap.second == from || swap.first == made || swap.second == made;
      });
      if (made != from && !is_known) {
        out_.swaps.push_back({from, made});
      }
    }
  }
}

// Carried storages are at the end of each arena, where nothing else is ever placed.
Status ResidencyWalk::PlaceCarried() {
  natural_.reserved.assign(spaces_, 0);
  for (const StorageId id : carried_) {
    Storage& storage = out_.storages[id.index];
    uint64_t& end = out_.temporary_bytes[storage.space];
    const uint64_t begin = end;
    const SpaceFacts facts = storage.space < input_.spaces.size() ? input_.spaces[storage.space] : SpaceFacts();
    if (storage.bytes > copies_.arena(storage.space).PieceEnd(end) - end) {
      end = copies_.arena(storage.space).PieceEnd(end);
    }
    const bool wraps = end > kBytesMax || storage.bytes > kBytesMax - end;
    storage.offset = end;
    end += wraps ? 0 : storage.bytes;
    natural_.reserved[storage.space] += end - begin;
    if (wraps || storage.bytes > facts.piece_bytes_max || end > facts.bytes_max) {
      return ResourceExhausted("The values that iterations pass on (" +
                               std::to_string(natural_.reserved[storage.space]) + " bytes) do not fit into memory of " +
                               std::to_string(facts.bytes_max) + " bytes.");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::scheduler
