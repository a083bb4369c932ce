// SPDX-License-Identifier: Apache-2.0
// The pass walks regions in order and keeps the accesses certain to have been executed, by the common part of their
// offsets; an access at a small constant distance after a kept one takes that offset. The end of a region restores the
// accesses of the enclosing region.
#include "compiler/pass/memory/share_offsets.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/op_syntax.h"

namespace hpvm::pass {
namespace {

// Limit of the sum of distance and immediate.
constexpr uint64_t kDistanceMax = ir::kBaseAlignment / 2;

class Sharer {
 public:
  explicit Sharer(ir::Function& function) : f_(function), definitions_(function) {}
  void Run() { Visit(f_.body); }

 private:
  // The common part of the offsets of one buffer's accesses: offset = from + constant - base. `base` is invalid where
  // nothing is subtracted.
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // Parameter, `from`, `base`.
  struct Earlier {
    ValueId offset;
    uint64_t constant = 0;  // As many bits as addresses have.
  };
  uint64_t Cut(uint64_t bits, ValueId like) const {
    return ir::Bytes(f_.type_of(like)) == 4 ? static_cast<uint32_t>(bits) : bits;
  }
  // Strips constants that are added to a value.
  ValueId Strip(ValueId value, uint64_t* constant) const {
    while (const Op* op = definitions_.OpOf(value)) {
      if (op->code != Opcode::kAdd && op->code != Opcode::kSub) {
        break;
      }
      const ValueId left = f_.operands_of(*op)[0], right = f_.operands_of(*op)[1];
      if (const std::optional<uint64_t> bits = definitions_.ConstantOf(right)) {
        *constant += op->code == Opcode::kAdd ? *bits : uint64_t{0} - *bits;
        value = left;
      } else if (const std::optional<uint64_t> first = definitions_.ConstantOf(left);
                 first && op->code == Opcode::kAdd) {
        *constant += *first;
        value = right;
      } else {
        break;
      }
    }
    return value;
  }
  Key KeyOf(const Op& op, Earlier* place) const {
    place->offset = f_.operands_of(op)[0];
    ValueId from = Strip(place->offset, &place->constant);
    uint32_t base = ~uint32_t{0};
    if (const Op* sub = definitions_.OpOf(from, Opcode::kSub)) {
      base = f_.operands_of(*sub)[1].index;
      from = Strip(f_.operands_of(*sub)[0], &place->constant);
    }
    place->constant = Cut(place->constant, place->offset);
    return {op.space_index, from.index, base};
  }

  void Visit(RegionId region) {
    const size_t begin = replaced_.size();
    for (OpId id : f_.region(region).ops) {
      Op& op = f_.op(id);
      if (ir::OwnsRegions(op.code)) {
        Visit(op.body);
        if (op.code == Opcode::kIf) {
          Visit(op.otherwise);
        }
      } else if (ir::HasSpace(op.code) && op.space == Space::kParam && op.operand_count > 0) {
        VisitAccess(op);
      }
    }
    for (; replaced_.size() > begin; replaced_.pop_back()) {
      auto& [key, before] = replaced_.back();
      if (before) {
        known_[key] = *before;
      } else {
        known_.erase(key);
      }
    }
  }
  void VisitAccess(Op& op) {
    Earlier place;
    const Key key = KeyOf(op, &place);
    const auto found = known_.find(key);
    if (found == known_.end()) {
      replaced_.emplace_back(key, std::nullopt);
      known_[key] = place;
      return;
    }
    const uint64_t distance = Cut(place.constant - found->second.constant, place.offset);
    if (distance > kDistanceMax) {  // Before the other, or far away: later accesses are likely near this one.
      replaced_.emplace_back(key, found->second);
      found->second = place;
    } else if (distance != 0 && op.imm <= kDistanceMax - distance) {
      op.imm += distance;
      f_.operands[op.first_operand] = found->second.offset;
    }
  }

  // Accesses that are certain to precede the current operation, in its region or an enclosing one.
  std::map<Key, Earlier> known_;
  std::vector<std::pair<Key, std::optional<Earlier>>> replaced_;  // To be restored at the ends of regions.
  ir::Function& f_;
  const analysis::Definitions definitions_;
};

}  // namespace

Status ShareOffsets(ir::Module& module) {
  Sharer(module.function(module.entry)).Run();
  return absl::OkStatus();
}

}  // namespace hpvm::pass
