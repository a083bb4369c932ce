// SPDX-License-Identifier: Apache-2.0
// Method: value ranges tell which constants derive from the stack's pointer; the frame extends from the lowest of
// them to the pointer's initial value. Every operation of the entry is then examined, and only if all are
// understood do the accesses move to Space::kStack, unaligned ones in pieces.
// Invariants: nothing changes before the last check has passed; copies and fills are expanded in a copy of the
// module. An access is computed from the stack's pointer or certainly misses the frame. The frame begins as zeros,
// and its ends are multiples of eight.
// Each phase is one pass over the entry, and the frame has at most kStackFrameBytesMax bytes.
// Source: docs/decisions/0022-stacks-in-lanes.md.
#include "compiler/pass/memory/promote_stack.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "compiler/analysis/trailing_zeros.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/resolve_provenance.h"

namespace hpvm::pass {
namespace {

using Base = analysis::ValueRange::Base;

// Returns true if a called function does not access an instance's stack.
bool LeavesStackAlone(const ir::Function& function, uint32_t pointer) {
  bool leaves = true;
  ir::ForEachOp(function, [&](OpId id) {
    const Op& op = function.op(id);
    const ir::Family family = ir::Info(op.code).family;
    const bool is_memory =
        (family == ir::Family::kMemory && op.code != Opcode::kMemorySize) || family == ir::Family::kAtomic;
    leaves = leaves && op.code != Opcode::kCallRef && !(family == ir::Family::kGlobal && op.imm == pointer) &&
             !(is_memory && !(ir::HasSpace(op.code) && ir::IsState(op.space)));
  });
  return leaves;
}

bool HasBulk(const ir::Function& function) {
  bool found = false;
  ir::ForEachOp(function, [&](OpId id) {
    found |= function.op(id).code == Opcode::kMemoryCopy || function.op(id).code == Opcode::kMemoryFill;
  });
  return found;
}

class Promoter {
 public:
  Promoter(ir::Module& module, uint32_t pointer)
      : module_(module),
        pointer_(pointer),
        f_(module.function(module.entry)),
        ranges_(analysis::FindValueRanges(module, ~uint64_t{0})) {}

  // Returns false, without changes, if the stack is not known.
  bool Run() {
    FindFrame();
    if (!CallsAreHarmless() || frame_.bytes() > kStackFrameBytesMax ||
        !BeginsAsZeros(module_, frame_.begin, frame_.end)) {
      return false;
    }
    bool is_known = true;
    ir::ForEachOp(f_, [&](OpId id) { is_known = is_known && Understand(id, f_.op(id)); });
    if (!is_known || !FindPieces() || (frame_.begin == frame_.end && !accesses_.empty())) {
      return false;
    }
    for (OpId id : accesses_) {
      f_.op(id).space = Space::kStack;
    }
    CutPieces();
    DropPointer();
    if (!accesses_.empty()) {
      module_.stack_frame = frame_;
    }
    return true;
  }

 private:
  // Also returns true for unreachable values.
  static bool IsConstant(const analysis::ValueRange& range) { return range.is_constant() || range.Is(Base::kUnset); }
  const analysis::ValueRange& RangeOf(const Op& op, uint32_t operand) const {
    return ranges_[f_.operands_of(op)[operand].index];
  }

  // The frame extends from the lowest constant derived from the stack's pointer to the pointer's initial value.
  void FindFrame() {
    frame_.begin = frame_.end = module_.globals[pointer_].init;
    for (const analysis::ValueRange& range : ranges_) {
      if (range.Is(Base::kStack) && range.is_constant()) {
        frame_.begin = std::min(frame_.begin, range.lo);
      }
    }
    frame_.begin &= ~uint64_t{7};
    frame_.end = (frame_.end + 7) & ~uint64_t{7};
  }

  bool CallsAreHarmless() const {
    std::vector<bool> reached(module_.functions.size());
    std::vector<uint32_t> work = {module_.entry.index};
    while (!work.empty()) {
      const ir::Function& function = module_.functions[work.back()];
      if (work.back() != module_.entry.index && !LeavesStackAlone(function, pointer_)) {
        return false;
      }
      work.pop_back();
      bool is_fine = true;
      ir::ForEachOp(function, [&](OpId id) {
        const Op& op = function.op(id);
        is_fine =
            is_fine && op.code != Opcode::kCallRef && !(op.code == Opcode::kCall && op.imm == module_.entry.index);
        if (op.code == Opcode::kCall && !reached[op.imm]) {
          reached[op.imm] = true;
          work.push_back(static_cast<uint32_t>(op.imm));
        }
      });
      if (!is_fine) {
        return false;
      }
    }
    return true;
  }

  // Returns false for operations that may touch the frame in a way that is not understood.
  bool Understand(OpId id, const Op& op) {
    switch (op.code) {
      case Opcode::kGlobalGet:
        return op.imm != pointer_ || IsConstant(ranges_[op.first_result.index]);
      case Opcode::kGlobalSet:  // The value is not constant for an array of variable length.
        return op.imm != pointer_ || IsConstant(RangeOf(op, 0));
      case Opcode::kMemoryGrow:
      case Opcode::kMemoryCopy:
      case Opcode::kMemoryFill:
      case Opcode::kMemoryInit:
        return false;
      default:
        return !ir::HasSpace(op.code) || (op.space != Space::kFlat && op.space != Space::kModule) ||
               UnderstandAccess(id, op);
    }
  }

  bool UnderstandAccess(OpId id, const Op& op) {
    const analysis::ValueRange& range = RangeOf(op, 0);
    if (range.Is(Base::kUnset)) {
      return true;  // Unreachable.
    }
    if (range.Is(Base::kStack)) {
      accesses_.push_back(id);
      // Stacks grow downwards: an address at or above the top is not computed from this frame's pointer.
      return ir::Info(op.code).family == ir::Family::kMemory && op.imm <= frame_.begin &&
             op.width <= frame_.begin - op.imm && range.lo < frame_.end;
    }
    const std::optional<uint64_t> end = range.EndOf(op.imm, op.width);
    return end && (*end <= frame_.begin || range.lo >= frame_.end);
  }

  // Chooses the unit, and the pieces of accesses that are less aligned than the unit. Returns false if an access of 16
  // bytes would have to be cut.
  bool FindPieces() {
    const std::vector<uint8_t> params = analysis::ZerosOfParams(module_);
    const std::vector<uint8_t> zeros = analysis::FindTrailingZeros(f_, {.params = params, .ranges = &ranges_});
    const auto alignment = [&](const Op& op) {
      const int known = std::min<int>(zeros[f_.operands_of(op)[0].index], std::countr_zero(op.imm));
      return uint32_t{1} << std::min(known, 3);
    };
    const bool is_wide =
        std::ranges::all_of(accesses_, [&](OpId id) { return f_.op(id).width == 8 && alignment(f_.op(id)) == 8; });
    frame_.unit = is_wide ? 8 : 4;
    for (OpId id : accesses_) {
      const Op& op = f_.op(id);
      if (alignment(op) < std::min<uint32_t>(op.width, frame_.unit)) {
        pieces_.emplace(id.index, alignment(op));
      }
    }
    return std::ranges::none_of(pieces_, [&](const auto& p) { return f_.ops[p.first].width == 16; });
  }

  ir::ValueId Add(Op op, std::initializer_list<ir::ValueId> operands, ir::Type type, std::vector<OpId>& out) {
    op.first_operand = static_cast<uint32_t>(f_.operands.size());
    op.operand_count = static_cast<uint32_t>(operands.size());
    op.first_result = ir::ValueId(f_.values.size());
    op.result_count = 1;
    f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
    f_.values.push_back({type});
    out.push_back(OpId(f_.ops.size()));
    f_.ops.push_back(op);
    return op.first_result;
  }
  ir::ValueId Compute(const Op& like, Opcode code, ir::ValueId a, ir::ValueId b, ir::Type type,
                      std::vector<OpId>& out) {
    Op op{.code = code, .type = type, .source = like.source, .origin = like.origin};
    return Add(op, {a, b}, type, out);
  }
  ir::ValueId Count(const Op& like, uint64_t bits, ir::Type type, std::vector<OpId>& out) {
    Op op{.code = Opcode::kConst, .type = type, .imm = bits, .source = like.source, .origin = like.origin};
    return Add(op, {}, type, out);
  }
  // Turns the operation, whose result stays, into another one.
  void Become(OpId id, Opcode code, std::initializer_list<ir::ValueId> operands, ir::Type type) {
    Op& op = f_.op(id);
    op.code = code;
    op.type = type;
    op.space = Space::kFlat;
    op.width = 0;
    op.sign = false;
    op.imm = 0;
    op.first_operand = static_cast<uint32_t>(f_.operands.size());
    op.operand_count = static_cast<uint32_t>(operands.size());
    f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
  }

  // Loads pieces of `bytes` and combines them.
  void CutLoad(OpId id, uint32_t bytes, std::vector<OpId>& out) {
    const Op load = f_.op(id);
    const ir::Type type = ir::Bytes(load.type) == 8 ? ir::Type::kI64 : ir::Type::kI32;
    const ir::ValueId address = f_.operands_of(load)[0];
    ir::ValueId sum, last;
    for (uint32_t at = 0; at < load.width; at += bytes) {
      Op piece = load;
      piece.type = type;
      piece.width = static_cast<uint8_t>(bytes);
      piece.sign = false;
      piece.imm = load.imm + at;
      sum = at <= bytes ? last : Compute(load, Opcode::kOr, sum, last, type, out);
      last = Add(piece, {address}, type, out);
      last = at == 0 ? last : Compute(load, Opcode::kShl, last, Count(load, 8 * at, type, out), type, out);
    }
    if (ir::IsInt(load.type) && !load.sign) {
      Become(id, Opcode::kOr, {sum, last}, type);
    } else {
      sum = Compute(load, Opcode::kOr, sum, last, type, out);
      const uint64_t above = 8 * ir::Bytes(type) - 8 * load.width;
      if (ir::IsInt(load.type)) {
        const ir::ValueId count = Count(load, above, type, out);
        Become(id, Opcode::kShrS, {Compute(load, Opcode::kShl, sum, count, type, out), count}, type);
      } else {
        Become(id, Opcode::kReinterpret, {sum}, type);
      }
    }
    out.push_back(id);
  }
  void CutStore(OpId id, uint32_t bytes, std::vector<OpId>& out) {
    const Op store = f_.op(id);
    const ir::Type type = ir::Bytes(store.type) == 8 ? ir::Type::kI64 : ir::Type::kI32;
    const ir::ValueId address = f_.operands_of(store)[0];
    ir::ValueId value = f_.operands_of(store)[1];
    if (!ir::IsInt(store.type)) {
      Op bits{.code = Opcode::kReinterpret, .type = store.type, .source = store.source, .origin = store.origin};
      value = Add(bits, {value}, type, out);
    }
    for (uint32_t at = 0; at < store.width; at += bytes) {
      const ir::ValueId part =
          at == 0 ? value : Compute(store, Opcode::kShrU, value, Count(store, 8 * at, type, out), type, out);
      Op piece = store;
      piece.type = type;
      piece.width = static_cast<uint8_t>(bytes);
      piece.imm = store.imm + at;
      piece.first_operand = static_cast<uint32_t>(f_.operands.size());
      f_.operands.insert(f_.operands.end(), {address, part});
      out.push_back(OpId(f_.ops.size()));
      f_.ops.push_back(piece);
    }
  }
  void CutPieces() {
    for (ir::Region& region : f_.regions) {
      std::vector<OpId> ops;
      for (OpId id : region.ops) {
        const auto found = pieces_.find(id.index);
        if (found == pieces_.end()) {
          ops.push_back(id);
        } else if (f_.op(id).code == Opcode::kLoad) {
          CutLoad(id, found->second, ops);
        } else {
          CutStore(id, found->second, ops);
        }
      }
      region.ops = std::move(ops);
    }
  }

  void DropPointer() {
    for (ir::Region& region : f_.regions) {
      std::erase_if(region.ops,
                    [&](OpId id) { return f_.op(id).code == Opcode::kGlobalSet && f_.op(id).imm == pointer_; });
      for (OpId id : region.ops) {
        Op& op = f_.op(id);
        if (op.code == Opcode::kGlobalGet && op.imm == pointer_) {
          op.code = Opcode::kConst;
          op.imm = ranges_[op.first_result.index].lo;
        }
      }
    }
  }

  ir::Module& module_;
  const uint32_t pointer_;
  ir::Function& f_;
  const std::vector<analysis::ValueRange> ranges_;
  ir::StackFrame frame_;
  std::vector<OpId> accesses_;
  std::map<uint32_t, uint32_t> pieces_;  // Keyed by OpId: bytes of the pieces into which an access is cut.
};

}  // namespace

bool BeginsAsZeros(const ir::Module& module, uint64_t begin, uint64_t end) {
  return end <= module.memory_bytes && std::ranges::none_of(module.data, [&](const ir::DataSegment& segment) {
           for (uint64_t at = std::max(segment.address, begin);
                at < std::min(end, segment.address + segment.bytes.size()); ++at) {
             if (segment.bytes[at - segment.address] != 0) {
               return true;
             }
           }
           return false;
         });
}

bool PromoteStack(ir::Module& module) {
  const std::optional<uint32_t> pointer = module.stack_pointer;
  if (!pointer.has_value() || module.is_linked) {
    return false;
  }
  if (!HasBulk(module.function(module.entry))) {
    return Promoter(module, *pointer).Run();
  }
  ir::Module pieces = module;  // The copies can be understood only as pieces.
  if (!ExpandStackCopies(pieces) || !Promoter(pieces, *pointer).Run()) {
    return false;
  }
  module = std::move(pieces);
  return true;
}

std::vector<bool> FindInsideStack(const ir::Module& module) {
  const ir::Function& f = module.function(module.entry);
  std::vector<bool> is_inside(f.ops.size());
  if (!module.stack_frame.has_value()) {
    return is_inside;
  }
  const std::vector<analysis::ValueRange> ranges = analysis::FindValueRanges(module, ~uint64_t{0});
  ir::ForEachOp(f, [&](OpId id) {
    const Op& op = f.op(id);
    if (!ir::HasSpace(op.code) || op.space != Space::kStack) {
      return;
    }
    const analysis::ValueRange& range = ranges[f.operands_of(op)[0].index];
    const std::optional<uint64_t> end = range.EndOf(op.imm, op.width);
    is_inside[id.index] = !range.Is(Base::kUnset) && range.lo + op.imm >= module.stack_frame->begin && end &&
                          *end <= module.stack_frame->end;
  });
  return is_inside;
}

}  // namespace hpvm::pass
