// SPDX-License-Identifier: Apache-2.0
// Method: the finder walks each region once with a list of open records, which later accesses may join. An
// operation closes the records past which it cannot be moved, so that all members of a record can be executed at
// one place.
// Invariants: members of an open record have one buffer, width, step and set of address terms, and lie within one
// step of each other, so records of different lanes do not overlap. A word that was stored since a record of loads
// began no longer joins it. A record of stores has each of its words once, and is kept only without gaps.
// At most 16 records are open, the oldest of which is closed first, and a record spans at most 256 words.
#include "compiler/pass/gang/gang_records.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/analysis/linear_form.h"
#include "compiler/ir/op_syntax.h"

namespace hpvm::pass {
namespace {

// Records of at most this many words, and larger ones, are moved whole by wide vectors; others by one or more vectors
// per lane.
constexpr uint32_t kInterleavedMax = 4;
constexpr uint32_t kSpanMax = 256;
constexpr size_t kOpenMax = 16;

class Finder {
 public:
  Finder(const ir::Module& module, const GangPlan& plan)
      : module_(module), f_(module.function(module.entry)), plan_(plan), forms_(f_) {
    found_.of.assign(f_.ops.size(), -1);
  }

  GangRecords Run() {
    for (const ir::Region& region : f_.regions) {
      for (OpId id : region.ops) {
        Visit(id);
      }
      CloseAll();
    }
    return std::move(found_);
  }

 private:
  // The location of an access: a sum of values, and an offset.
  struct AccessAddress {
    uint32_t param = 0;
    std::vector<std::pair<uint32_t, uint64_t>> terms;  // LinearForm::terms.
    int64_t offset = 0;                                // Includes the immediate.
  };
  struct Member {
    OpId id;
    int64_t offset = 0;
  };
  // A record that further accesses may join.
  struct Open {
    bool is_store = false;
    AccessAddress place;
    uint32_t width = 4;
    int64_t step = 0;
    std::vector<Member> members;
    std::vector<int64_t> passed;  // Loads: offsets of words of the same records that were stored since.
  };

  int64_t Signed(uint64_t value) const { return ir::SignedBits(module_.address_type(), value); }

  AccessAddress PlaceOf(const Op& op) const {
    analysis::LinearForm form = forms_.Of(f_.operands_of(op)[0]);
    return {op.space_index, std::move(form.terms), Signed(form.constant) + static_cast<int64_t>(op.imm)};
  }

  // Returns true for a load or store of a whole word with a constant distance between lanes of at least two words.
  bool IsStrided(const Op& op, int64_t* step) const {
    if ((op.code != Opcode::kLoad && op.code != Opcode::kStore) || op.space != Space::kParam || op.width < 4 ||
        op.width != ir::Bytes(op.type) || op.imm > (uint64_t{1} << 30)) {
      return false;
    }
    const Layout& layout = plan_.layouts[f_.operands_of(op)[0].index];
    *step = Signed(layout.step);
    return layout.kind == Layout::Kind::kLinear && *step % op.width == 0 && *step / op.width >= 2 &&
           *step / op.width <= (int64_t{1} << 20);
  }

  void Visit(OpId id) {
    const Op& op = f_.op(id);
    if (ir::OwnsRegions(op.code) || ir::IsTerminator(op.code)) {
      return CloseAll();
    }
    int64_t step = 0;
    const bool is_strided = IsStrided(op, &step);
    const AccessAddress place = is_strided ? PlaceOf(op) : AccessAddress();
    CloseTouched(op, is_strided ? &place : nullptr);
    if (is_strided) {
      Join(id, op, place, step);
    }
  }

  static bool IsSame(const AccessAddress& a, const AccessAddress& b) {
    return a.param == b.param && a.terms == b.terms;
  }

  // Closes the records that cannot be moved past the operation. `place`: the operation's own place, if it may join a
  // record.
  void CloseTouched(const Op& op, const AccessAddress* place) {
    const ir::OpcodeInfo& info = ir::Info(op.code);
    const bool is_memory = ir::HasSpace(op.code) && info.family == ir::Family::kMemory;
    const bool is_apart = is_memory && (op.space == Space::kStack || ir::IsState(op.space));
    const bool writes = !is_apart && (info.effects & (ir::kWrites | ir::kSyncs)) != 0;
    const bool reads = !is_apart && (info.effects & ir::kReads) != 0;
    // An instance that traps at its own stack may have lost its preceding stores.
    const bool traps = !is_apart && (info.effects & ir::kTraps) != 0;
    for (size_t i = open_.size(); i-- > 0;) {
      Open& open = open_[i];
      if (place != nullptr && IsSame(*place, open.place) && op.width == open.width) {
        const bool is_met = std::ranges::any_of(open.members, [&](const Member& member) {
          return std::abs(member.offset - place->offset) < int64_t{op.width};
        });
        if (!open.is_store && writes) {
          open.passed.push_back(place->offset);
        } else if (open.is_store && is_met) {
          Close(i);
        }
      } else if (open.is_store ? writes || reads || traps : writes) {
        Close(i);
      }
    }
  }

  void Join(OpId id, const Op& op, const AccessAddress& place, int64_t step) {
    const bool is_store = op.code == Opcode::kStore;
    for (Open& open : open_) {
      if (open.is_store == is_store && IsSame(open.place, place) && open.width == op.width && open.step == step) {
        int64_t low = place.offset, high = place.offset;
        for (const Member& member : open.members) {
          low = std::min(low, member.offset);
          high = std::max(high, member.offset);
        }
        const bool is_passed = std::ranges::any_of(
            open.passed, [&](int64_t offset) { return std::abs(offset - place.offset) < int64_t{op.width}; });
        if (!is_passed && (place.offset - open.members[0].offset) % op.width == 0 && high - low + op.width <= step &&
            (high - low) / op.width < kSpanMax) {
          open.members.push_back({id, place.offset});
          return;
        }
      }
    }
    if (open_.size() == kOpenMax) {
      Close(0);
    }
    open_.push_back({is_store, place, op.width, step, {{id, place.offset}}, {}});
  }

  void CloseAll() {
    while (!open_.empty()) {
      Close(open_.size() - 1);
    }
  }

  void Close(size_t index) {
    const Open open = std::move(open_[index]);
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(index));
    int64_t low = open.members[0].offset, high = low;
    for (const Member& member : open.members) {
      low = std::min(low, member.offset);
      high = std::max(high, member.offset);
    }
    GangRecord record;
    record.is_store = open.is_store;
    record.width = open.width;
    record.stride = static_cast<uint32_t>(open.step / open.width);
    record.span = static_cast<uint32_t>((high - low) / open.width) + 1;
    std::set<uint32_t> touched;
    for (const Member& member : open.members) {
      record.members.push_back(member.id);
      record.words.push_back(static_cast<uint32_t>((member.offset - low) / open.width));
      touched.insert(record.words.back());
    }
    if (!IsWorthIt(record, touched.size())) {
      return;
    }
    for (OpId id : record.members) {
      found_.of[id.index] = static_cast<int32_t>(found_.records.size());
    }
    found_.records.push_back(std::move(record));
  }

  static bool IsWorthIt(const GangRecord& record, size_t touched) {
    if (record.is_store && touched != record.span) {
      return false;  // Other instances may own the words in between.
    }
    if (record.stride <= kInterleavedMax) {
      return touched >= 2 && record.span == record.stride;
    }
    return record.span >= 4 && 2 * touched > record.span;
  }

  const ir::Module& module_;
  const ir::Function& f_;
  const GangPlan& plan_;
  const analysis::LinearForms forms_;
  std::vector<Open> open_;
  GangRecords found_;
};

}  // namespace

GangRecords FindRecords(const ir::Module& module, const GangPlan& plan) { return Finder(module, plan).Run(); }

}  // namespace hpvm::pass
