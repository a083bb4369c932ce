// SPDX-License-Identifier: Apache-2.0
// Method: accesses are sorted by address; those that overlap form one slot if all are whole accesses of the same
// bytes. Each construct gets a result or parameter for each slot that is stored in it, and copying then replaces
// loads by the present value.
// Invariants: now_ holds every slot's value at the place that is being copied, zero at the beginning. An edge
// brings values for exactly the slots of its target's stored_; the targets of one table have the same set.
// Sets of slots only grow until tables agree, and the copy is one pass. At most kStackValuesMax slots are made, and
// nothing changes if edges would bring more than kStackEdgesMax values.
// Source: Cytron et al., TOPLAS 1991 (see stack_values.h).
#include "compiler/pass/memory/stack_values.h"

#include <algorithm>
#include <bitset>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/promote_stack.h"
#include "compiler/pass/memory/resolve_provenance.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

using Slots = std::bitset<kStackValuesMax>;

struct Access {
  OpId id;
  uint64_t begin = 0, end = 0;  // Range of the bytes that it may touch.
  bool is_constant = false;     // It touches all of them.
};

// The words that become values: for each access of the entry, by OpId, the slot, or -1; and the slots' types and byte
// ranges.
struct SlotPlan {
  std::vector<int32_t> of;
  std::vector<Type> types;
  std::vector<StackBytes> bytes;
};

bool IsWhole(const ir::Function& f, const Access& access) {
  const Opcode code = f.op(access.id).code;
  return access.is_constant && (code == Opcode::kLoad || code == Opcode::kStore);
}

// Returns the type in which a slot's accesses need the fewest conversions.
Type TypeOf(const ir::Function& f, std::span<const Access> accesses) {
  const auto all = [&](Type type) {
    return std::ranges::all_of(accesses, [&](const Access& a) { return f.op(a.id).type == type; });
  };
  const uint32_t width = f.op(accesses[0].id).width;
  if (width == 8) {
    return all(Type::kF64) ? Type::kF64 : Type::kI64;
  }
  return width == 4 && all(Type::kF32) ? Type::kF32 : Type::kI32;
}

// Overlapping accesses are examined together: if all are whole accesses of the same bytes they form a slot, else none
// does.
SlotPlan PlanSlots(const ir::Function& f, std::vector<Access> accesses) {
  SlotPlan plan;
  plan.of.assign(f.ops.size(), -1);
  std::ranges::sort(accesses, [](const Access& a, const Access& b) { return a.begin < b.begin; });
  for (size_t first = 0, next = 0; first < accesses.size() && plan.types.size() < kStackValuesMax; first = next) {
    uint64_t end = accesses[first].end;
    bool is_slot = true;
    for (next = first; next < accesses.size() && accesses[next].begin < end; ++next) {
      end = std::max(end, accesses[next].end);
      is_slot = is_slot && IsWhole(f, accesses[next]) && accesses[next].begin == accesses[first].begin &&
                accesses[next].end == accesses[first].end;
    }
    if (!is_slot) {
      continue;
    }
    for (size_t i = first; i < next; ++i) {
      plan.of[accesses[i].id.index] = static_cast<int32_t>(plan.types.size());
    }
    plan.types.push_back(TypeOf(f, std::span(accesses).subspan(first, next - first)));
    plan.bytes.push_back({accesses[first].begin, end});
  }
  return plan;
}

class Replacer final : public FunctionCopier {
 public:
  Replacer(const ir::Function& from, SlotPlan plan)
      : FunctionCopier(from), plan_(std::move(plan)), stored_(from.ops.size()), now_(plan_.types.size()) {}

  // Returns nothing if edges would have to carry too many values.
  std::optional<ir::Function> Run() && {
    FindStored(f_.body);
    ShareInTables();
    size_t edges = 0;
    ir::ForEachOp(f_, [&](OpId id) {
      for (const ir::Target& target : f_.targets_of(f_.op(id))) {
        edges += stored_[target.op.index].count();
      }
    });
    if (edges > kStackEdgesMax) {
      return std::nullopt;
    }
    CopyAll();
    return std::move(to_);
  }

 private:
  Slots FindStored(RegionId region) {
    Slots all;
    for (OpId id : f_.region(region).ops) {
      const Op& op = f_.op(id);
      if (plan_.of[id.index] >= 0 && op.code == Opcode::kStore) {
        all.set(static_cast<size_t>(plan_.of[id.index]));
      }
      if (ir::OwnsRegions(op.code)) {
        Slots& own = stored_[id.index];
        own = FindStored(op.body);
        if (op.code == Opcode::kIf) {
          own |= FindStored(op.otherwise);
        }
        all |= own;
      }
    }
    return all;
  }
  // All targets of a table get the same values.
  void ShareInTables() {
    for (bool changed = true; changed;) {
      changed = false;
      ir::ForEachOp(f_, [&](OpId id) {
        Slots all;
        for (const ir::Target& target : f_.targets_of(f_.op(id))) {
          all |= stored_[target.op.index];
        }
        for (const ir::Target& target : f_.targets_of(f_.op(id))) {
          changed = changed || stored_[target.op.index] != all;
          stored_[target.op.index] = all;
        }
      });
    }
  }

  // Frames begin as zeros.
  void BeginBody() override {
    for (size_t slot = 0; slot < now_.size(); ++slot) {
      now_[slot] = b_.Const(plan_.types[slot], 0);
    }
  }
  std::vector<Type> MoreTypes(OpId id) const override {
    std::vector<Type> types;
    for (size_t slot = 0; slot < now_.size(); ++slot) {
      if (stored_[id.index][slot]) {
        types.push_back(plan_.types[slot]);
      }
    }
    return types;
  }
  std::vector<ValueId> MoreValues(OpId id) const override {
    std::vector<ValueId> values;
    for (size_t slot = 0; slot < now_.size(); ++slot) {
      if (stored_[id.index][slot]) {
        values.push_back(now_[slot]);
      }
    }
    return values;
  }
  void Take(OpId id, std::span<const ValueId> more) {
    size_t next = 0;
    for (size_t slot = 0; slot < now_.size() && next < more.size(); ++slot) {
      if (stored_[id.index][slot]) {
        now_[slot] = more[next++];
      }
    }
  }
  void Enter(OpId id, std::span<const ValueId> more) override {
    before_.push_back(now_);
    Take(id, more);
  }
  void EnterOtherwise(OpId) override { now_ = before_.back(); }
  void Leave(OpId id, std::span<const ValueId> more) override {
    now_ = std::move(before_.back());
    before_.pop_back();
    Take(id, more);
  }

  void CopyOp(OpId id) override {
    const int32_t slot = plan_.of[id.index];
    if (slot < 0) {
      return FunctionCopier::CopyOp(id);
    }
    const Op& op = f_.op(id);
    ValueId& now = now_[static_cast<size_t>(slot)];
    if (op.code == Opcode::kStore) {
      now = Stored(op, values_[f_.operands_of(op)[1].index], plan_.types[static_cast<size_t>(slot)]);
    } else {
      const ValueId loaded = Loaded(op, now, plan_.types[static_cast<size_t>(slot)]);
      Bind(op.first_result, std::span(&loaded, 1));
    }
  }

  ValueId Add(const Op& like, Opcode code, Type type, std::initializer_list<ValueId> operands, Type result) {
    Op op{.code = code, .type = type, .source = like.source};
    const ValueId made = b_.Append1(op, std::span(operands.begin(), operands.size()), result);
    SetOrigin(like);
    return made;
  }
  // Converts between types of the same size.
  ValueId As(const Op& like, ValueId value, Type from, Type to) {
    return from == to ? value : Add(like, Opcode::kReinterpret, from, {value}, to);
  }
  // Converts a stored value to the slot's type. Bits above the access's width are undefined.
  ValueId Stored(const Op& op, ValueId value, Type slot) {
    if (ir::Bytes(op.type) == 8 && op.width < 8) {
      return As(op, Add(op, Opcode::kWrap, Type::kI64, {value}, Type::kI32), Type::kI32, slot);
    }
    return As(op, value, op.type, slot);
  }
  ValueId Loaded(const Op& op, ValueId value, Type slot) {
    if (op.width == ir::Bytes(op.type)) {
      return As(op, value, slot, op.type);
    }
    value = As(op, value, slot, Type::kI32);
    if (op.width < 4) {
      const Opcode extend = op.width == 1 ? Opcode::kExtend8 : Opcode::kExtend16;
      value = op.sign ? Add(op, extend, Type::kI32, {value}, Type::kI32)
                      : Add(op, Opcode::kAnd, Type::kI32, {value, b_.Const(Type::kI32, (1u << (8 * op.width)) - 1)},
                            Type::kI32);
    }
    return op.type == Type::kI32
               ? value
               : Add(op, op.sign ? Opcode::kExtendS : Opcode::kExtendU, Type::kI32, {value}, Type::kI64);
  }

  const SlotPlan plan_;
  std::vector<Slots> stored_;                 // Indexed by OpId of a construct: slots that edges to it bring.
  std::vector<ValueId> now_;                  // Indexed by slot.
  std::vector<std::vector<ValueId>> before_;  // The values at the start of each open construct.
};

// Finds the accesses for which `is_of_stack` returns true.
template <typename IsOfStack>
std::vector<Access> FindAccesses(const ir::Module& module, IsOfStack is_of_stack) {
  const ir::Function& f = module.function(module.entry);
  const std::vector<analysis::ValueRange> ranges = analysis::FindValueRanges(module, ~uint64_t{0});
  std::vector<Access> accesses;
  ir::ForEachOp(f, [&](OpId id) {
    const Op& op = f.op(id);
    if (!ir::HasSpace(op.code)) {
      return;
    }
    const analysis::ValueRange& range = ranges[f.operands_of(op)[0].index];
    if (!is_of_stack(op, range)) {
      return;
    }
    const std::optional<uint64_t> end = range.EndOf(op.imm, op.width);
    accesses.push_back(end ? Access{id, range.lo + op.imm, *end, range.is_constant()}
                           : Access{id, 0, ~uint64_t{0}, false});
  });
  return accesses;
}

// Returns the bytes that have become values; empty, without changes, if there are none.
std::vector<StackBytes> Replace(ir::Function& f, SlotPlan plan) {
  std::vector<StackBytes> bytes = plan.bytes;
  if (bytes.empty()) {
    return bytes;
  }
  std::optional<ir::Function> replaced = Replacer(f, std::move(plan)).Run();
  if (!replaced.has_value()) {
    return {};
  }
  f = *std::move(replaced);
  return bytes;
}

bool IsStack(const Op& op, const analysis::ValueRange&) { return op.space == ir::Space::kStack; }

}  // namespace

bool StackValues(ir::Module& module) {
  if (!module.stack_frame.has_value()) {
    return false;
  }
  ir::Function& f = module.function(module.entry);
  const std::vector<Access> accesses = FindAccesses(module, IsStack);
  SlotPlan plan = PlanSlots(f, accesses);
  const bool is_all =
      std::ranges::all_of(accesses, [&](const Access& access) { return plan.of[access.id.index] >= 0; });
  if (Replace(f, std::move(plan)).empty()) {
    return false;
  }
  if (is_all) {
    module.stack_frame.reset();
  }
  return true;
}

std::vector<StackBytes> AssumeStackValues(ir::Module& module) {
  ExpandStackCopies(module);
  ir::Function& f = module.function(module.entry);
  bool has_bulk = false;
  ir::ForEachOp(f, [&](OpId id) {
    const Opcode code = f.op(id).code;
    has_bulk = has_bulk || code == Opcode::kMemoryCopy || code == Opcode::kMemoryFill || code == Opcode::kMemoryInit;
  });
  if (has_bulk) {
    return {};
  }
  std::vector<Access> accesses = FindAccesses(module, [](const Op& op, const analysis::ValueRange& range) {
    return (op.space == ir::Space::kFlat || op.space == ir::Space::kModule) &&
           range.Is(analysis::ValueRange::Base::kStack);
  });
  std::erase_if(accesses, [](const Access& access) { return !access.is_constant; });
  SlotPlan plan = PlanSlots(f, std::move(accesses));
  const bool are_zeros = std::ranges::all_of(
      plan.bytes, [&](const StackBytes& word) { return BeginsAsZeros(module, word.begin, word.end); });
  return are_zeros ? Replace(f, std::move(plan)) : std::vector<StackBytes>();
}

bool AvoidsStack(const ir::Module& module, std::span<const StackBytes> bytes) {
  const std::vector<Access> accesses = FindAccesses(module, [](const Op& op, const analysis::ValueRange& range) {
    return (op.space == ir::Space::kStack || op.space == ir::Space::kFlat || op.space == ir::Space::kModule) &&
           !range.Is(analysis::ValueRange::Base::kUnset);
  });
  return std::ranges::none_of(accesses, [&](const Access& access) {
    return std::ranges::any_of(
        bytes, [&](const StackBytes& other) { return access.begin < other.end && other.begin < access.end; });
  });
}

}  // namespace hpvm::pass
