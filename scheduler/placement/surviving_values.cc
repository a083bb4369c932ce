// SPDX-License-Identifier: Apache-2.0
// Method: replays the body's segments that have run on a model of memory, from address to the launch that wrote the
// byte last; then finds, for each value, a storage in host memory for each of its pieces. Steps of a broken segment
// only destroy.
// Invariants: entries of one memory do not overlap. An address without an entry is unknown, so doubt makes a value
// lost and never wrong. A copy passes on only bytes that lie at the same offset of their value, and zeros.
// One pass over tasks, values and steps; a value of more than 64 pieces counts as lost, which bounds its record.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "scheduler/placement/remainder.h"

namespace hpvm::scheduler {
namespace {

using graph::FlatPort;

constexpr uint32_t kZero = 0xfffffffeu;  // An origin: bytes that no launch wrote.
// A value that consists of more pieces counts as lost, because its record would grow with every update.
constexpr size_t kPiecesMax = 64;

// Bytes [begin, end) whose last writer made value `origin`.
struct OriginPiece {
  uint64_t begin = 0, end = 0;
  uint32_t origin = 0;
};

// Contents of one memory: maps addresses to the writer of their bytes and the storage used.
class Contents {
 public:
  struct Entry {
    uint64_t end = 0;
    uint32_t origin = 0;
    StorageId storage;
  };

  void Erase(uint64_t begin, uint64_t end) {
    Split(begin);
    Split(end);
    entries_.erase(entries_.lower_bound(begin), entries_.lower_bound(end));
  }
  void Set(uint64_t begin, uint64_t end, uint32_t origin, StorageId storage) {
    if (begin < end) {
      Erase(begin, end);
      entries_[begin] = {end, origin, storage};
    }
  }
  // Calls visit(begin, end, entry) for the known parts of [begin, end).
  template <typename Visit>
  void Each(uint64_t begin, uint64_t end, Visit visit) const {
    auto it = entries_.upper_bound(begin);
    it = it == entries_.begin() ? it : std::prev(it);
    for (; it != entries_.end() && it->first < end; ++it) {
      if (it->second.end > begin) {
        visit(std::max(begin, it->first), std::min(end, it->second.end), it->second);
      }
    }
  }

 private:
  void Split(uint64_t at) {
    auto it = entries_.lower_bound(at);
    if (it == entries_.begin()) {
      return;
    }
    Entry& before = std::prev(it)->second;
    if (before.end > at) {
      entries_.emplace_hint(it, at, before);
      before.end = at;
    }
  }

  std::map<uint64_t, Entry> entries_;  // Keyed by begin; entries do not overlap.
};

class Replay {
 public:
  explicit Replay(const SurvivingInput& input) : input_(input), pieces_(input.flat.values.size()) {
    for (const auto& [a, b] : input.residency.swaps) {
      own_.insert(a.index);
      own_.insert(b.index);
    }
  }

  std::vector<std::vector<SurvivingPiece>> Run() {
    FindOrigins();
    PlaceInputs();
    const StepRange& body = input_.residency.body;
    for (uint32_t i = 0; i < body.segment_count; ++i) {
      if (input_.states[i] != SegmentState::kUntouched) {
        AddSegment(input_.residency.segments[body.first_segment + i], input_.states[i] == SegmentState::kBroken);
      }
    }
    Gather();
    std::vector<std::vector<SurvivingPiece>> held(input_.flat.values.size());
    for (uint32_t value = 0; value < held.size(); ++value) {
      if (input_.flat.values[value].producer.valid()) {
        held[value] = Cover(value);
      }
    }
    return held;
  }

 private:
  struct Known {
    uint64_t begin = 0, end = 0;  // Range within the value.
    StorageId storage;
  };

  // Storages of an arena share one memory, as they may overlap; every other storage is a memory of its own.
  uint64_t MemoryOf(StorageId id) const {
    const Storage& storage = input_.residency.storages[id.index];
    return storage.kind == Storage::Kind::kTemporary && !own_.contains(id.index) ? storage.space
                                                                                 : (uint64_t{1} << 32) + id.index;
  }
  uint64_t BaseOf(StorageId id) const {
    // Address of byte 0 of the value, whether the storage holds it or not.
    const Storage& storage = input_.residency.storages[id.index];
    return MemoryOf(id) >> 32 == 0 ? storage.offset - storage.first : 0;
  }

  // Finds, for every value, which bytes its own launch wrote, and which launches wrote the others.
  void FindOrigins() {
    std::vector<std::vector<ByteRange>> written(input_.flat.ports.size());
    for (const Task& task : input_.tasks) {
      EachOut(task.node.index, [&](uint32_t port, const FlatPort&) {
        const ByteRange range = input_.accesses.Of(task.node, task.choice, task.box, port).written;
        if (!range.is_empty()) {
          written[port].push_back(range);
        }
      });
    }
    for (uint32_t value = 0; value < pieces_.size(); ++value) {
      if (!input_.flat.values[value].producer.valid() && input_.flat.values[value].bytes > 0) {
        pieces_[value] = {{0, input_.flat.values[value].bytes, value}};
      }
    }
    for (uint32_t node = 0; node < input_.flat.nodes.size(); ++node) {
      EachOut(node, [&](uint32_t port, const FlatPort& p) { FindOriginsOf(p, written[port]); });
    }
  }

  void FindOriginsOf(const FlatPort& port, const std::vector<ByteRange>& written) {
    const uint32_t value = port.out.index;
    const uint64_t bytes = input_.flat.values[value].bytes;
    Contents contents;
    if (port.in.valid()) {
      for (const OriginPiece& piece : pieces_[port.in.index]) {
        contents.Set(piece.begin, piece.end, piece.origin, StorageId());
      }
    } else {
      contents.Set(0, bytes, kZero, StorageId());
    }
    for (const ByteRange& range : written) {
      contents.Set(range.begin, std::min(range.end, bytes), value, StorageId());
    }
    contents.Each(0, bytes, [&](uint64_t begin, uint64_t end, const Contents::Entry& entry) {
      pieces_[value].push_back({begin, end, entry.origin});
    });
    if (pieces_[value].size() > kPiecesMax) {
      pieces_[value].clear();
    }
  }

  template <typename Visit>
  void EachOut(uint32_t node, Visit visit) const {
    const graph::FlatGraph& flat = input_.flat;
    const uint32_t end =
        node + 1 < flat.nodes.size() ? flat.nodes[node + 1].first_port : static_cast<uint32_t>(flat.ports.size());
    for (uint32_t port = flat.nodes[node].first_port; port < end; ++port) {
      if (flat.ports[port].out.valid()) {
        visit(port, flat.ports[port]);
      }
    }
  }

  void PlaceInputs() {
    std::map<uint32_t, uint32_t> value_of;  // Keyed by the root's port.
    for (uint32_t value = 0; value < input_.flat.values.size(); ++value) {
      if (!input_.flat.values[value].producer.valid()) {
        value_of[input_.flat.values[value].input] = value;
      }
    }
    const std::vector<Storage>& storages = input_.residency.storages;
    for (size_t i = 0; i < storages.size(); ++i) {
      const auto value = value_of.find(storages[i].port);
      if (storages[i].kind == Storage::Kind::kInput && value != value_of.end()) {
        Write(StorageId(i), 0, storages[i].bytes, value->second);
      }
    }
  }

  void Write(StorageId id, uint64_t begin, uint64_t end, uint32_t origin) {
    memories_[MemoryOf(id)].Set(BaseOf(id) + begin, BaseOf(id) + end, origin, id);
  }
  void Destroy(StorageId id, uint64_t begin, uint64_t end) {
    memories_[MemoryOf(id)].Erase(BaseOf(id) + begin, BaseOf(id) + end);
  }

  void AddSegment(const Segment& segment, bool is_broken) {
    for (uint32_t i = 0; i < segment.step_count; ++i) {
      const Step& step = input_.residency.steps[segment.first_step + i];
      const uint64_t end = step.offset + step.bytes;
      if (step.kind == Step::Kind::kRun) {
        AddTask(step.task, is_broken);
      } else if (is_broken) {
        Destroy(step.target, step.offset, end);
      } else if (step.kind == Step::Kind::kZero) {
        Write(step.target, step.offset, end, kZero);
      } else {
        AddCopy(step);
      }
    }
  }

  void AddCopy(const Step& step) {
    std::vector<std::pair<OriginPiece, StorageId>> found;
    const uint64_t base = BaseOf(step.source);
    memories_[MemoryOf(step.source)].Each(
        base + step.offset, base + step.offset + step.bytes,
        [&](uint64_t begin, uint64_t end, const Contents::Entry& entry) {
          // Through a storage with another base these would be other bytes of the value; zeros are always zeros.
          if (entry.origin == kZero || BaseOf(entry.storage) == base) {
            found.push_back({{begin - base, end - base, entry.origin}, entry.storage});
          }
        });
    Destroy(step.target, step.offset, step.offset + step.bytes);
    for (const auto& [piece, storage] : found) {
      Write(step.target, piece.begin, piece.end, piece.origin);
    }
  }

  void AddTask(uint32_t index, bool is_broken) {
    const Task& task = input_.tasks[index];
    const uint32_t first = input_.flat.nodes[task.node.index].first_port;
    EachOut(task.node.index, [&](uint32_t port, const FlatPort& p) {
      const ByteRange range = input_.accesses.Of(task.node, task.choice, task.box, port).written;
      const StorageId id = input_.residency.port_storage[input_.residency.first_port[index] + port - first];
      if (range.is_empty() || !id.valid()) {
        return;
      }
      is_broken ? Destroy(id, range.begin, range.end) : Write(id, range.begin, range.end, p.out.index);
    });
  }

  // Inverts the contents of host memory: for each origin, the location of each of its bytes.
  void Gather() {
    known_.resize(pieces_.size());
    for (const auto& [memory, contents] : memories_) {
      contents.Each(0, ~uint64_t{0}, [&](uint64_t begin, uint64_t end, const Contents::Entry& entry) {
        if (entry.origin != kZero && input_.residency.storages[entry.storage.index].space == kHostSpace) {
          const uint64_t base = BaseOf(entry.storage);
          known_[entry.origin].push_back({begin - base, end - base, entry.storage});
        }
      });
    }
    for (std::vector<Known>& known : known_) {
      std::sort(known.begin(), known.end(), [](const Known& a, const Known& b) { return a.begin < b.begin; });
    }
  }

  std::vector<SurvivingPiece> Cover(uint32_t value) const {
    std::vector<SurvivingPiece> held;
    for (const OriginPiece& piece : pieces_[value]) {
      if (piece.origin == kZero) {
        held.push_back({StorageId(), {piece.begin, piece.end}});
        continue;
      }
      uint64_t at = piece.begin;
      const std::vector<Known>& known = known_[piece.origin];
      for (auto it = known.begin(); it != known.end() && it->begin <= at && at < piece.end; ++it) {
        if (it->end > at) {
          held.push_back({it->storage, {at, std::min(it->end, piece.end)}});
          at = held.back().range.end;
        }
      }
      if (at < piece.end) {
        return {};
      }
    }
    return held;
  }

  const SurvivingInput& input_;
  std::set<uint32_t> own_;  // Storages that are exchanged between repetitions and are in no arena.
  std::vector<std::vector<OriginPiece>> pieces_;  // Indexed by value; empty when there are too many.
  std::map<uint64_t, Contents> memories_;
  std::vector<std::vector<Known>> known_;  // Indexed by origin.
};

}  // namespace

std::vector<std::vector<SurvivingPiece>> FindSurviving(const SurvivingInput& input) { return Replay(input).Run(); }

}  // namespace hpvm::scheduler
