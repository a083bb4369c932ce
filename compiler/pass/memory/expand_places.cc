// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/expand_places.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/analysis/trailing_zeros.h"
#include "compiler/analysis/value_ranges.h"
#include "compiler/ir/spelling.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/copy_function.h"

namespace hpvm {
namespace {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::Type;
using ir::ValueId;

class Expander final : public FunctionCopier {
 public:
  explicit Expander(const ir::Module& module)
      : FunctionCopier(module.function(module.entry)),
        frame_(*module.stack_frame),
        address_type_(module.address_type()),
        ranges_(FindValueRanges(module, ~uint64_t{0})),
        zeros_(FindTrailingZeros(f_, {.params = ZerosOfParams(module), .ranges = &ranges_})),
        is_split_(f_.ops.size()) {
    FindSplit();
  }

  // The function with accesses of known places; nothing if there are none to expand.
  std::optional<ir::Function> Run() && {
    CopyAll();
    return has_expanded_ ? std::optional(std::move(to_)) : std::nullopt;
  }

 private:
  // The addresses that the operand may be, in order; empty if they are not few, or only one.
  std::vector<uint64_t> PlacesOf(const Op& op) const {
    const ValueId address = f_.operands_of(op)[0];
    const ValueRange& range = ranges_[address.index];
    const uint64_t step = uint64_t{1} << std::min<uint8_t>(zeros_[address.index], 32);
    std::vector<uint64_t> places;
    const uint64_t first = (range.lo + step - 1) / step * step;
    if (range.origin == ValueRange::Origin::kUnset || range.is_constant() || step < op.width ||
        first + op.imm < frame_.begin || range.hi + op.imm + op.width > frame_.end || range.hi < first ||
        (range.hi - first) / step >= kExpandedPlacesMax) {
      return places;
    }
    for (uint64_t place = first; place <= range.hi; place += step) {
      places.push_back(place);
    }
    return places;
  }

  void CopyOp(OpId id) override {
    const Op& op = f_.op(id);
    const bool is_of_stack = ir::HasSpace(op.code) && op.space == ir::Space::kStack;
    if (is_of_stack && (op.code == Opcode::kLoad || op.code == Opcode::kLoad128)) {
      return CopyLoad(id);
    }
    if (is_of_stack && (op.code == Opcode::kStore || op.code == Opcode::kStore128)) {
      return CopyStore(id);
    }
    FunctionCopier::CopyOp(id);
  }
  // One of the words that the access is made of.
  Op Word(const Op& op, uint32_t i) {
    Op word = op;
    word.code = op.code == Opcode::kLoad || op.code == Opcode::kLoad128 ? Opcode::kLoad : Opcode::kStore;
    word.type = Type::kI32;
    word.width = 4;
    word.imm += 4 * i;
    has_expanded_ = true;
    return word;
  }
  ValueId LoadOne(const Op& op) {
    const std::vector<uint64_t> places = Expanded(op);
    return places.empty() ? LoadAt(op, Map(op)[0]) : Load(op, places);
  }
  void StoreOne(const Op& op, ValueId value) {
    if (const std::vector<uint64_t> places = Expanded(op); !places.empty()) {
      Store(op, places, value);
    } else {
      b_.Append(op, {{Map(op)[0], value}}, {});
    }
  }
  ValueId Make(Opcode code, Type type, std::initializer_list<ValueId> operands, Type result) {
    return b_.Append1({.code = code, .type = type}, operands, result);
  }

  void CopyLoad(OpId id) {
    const Op& op = f_.op(id);
    std::vector<ValueId> values;
    if (op.code == Opcode::kLoad128) {
      for (uint32_t i = 0; i < 4; ++i) {
        values.push_back(LoadOne(Word(op, i)));
      }
    } else if (is_split_[id.index]) {
      const ValueId low = Make(Opcode::kExtendU, Type::kI32, {LoadOne(Word(op, 0))}, Type::kI64);
      const ValueId high = Make(Opcode::kExtendU, Type::kI32, {LoadOne(Word(op, 1))}, Type::kI64);
      const ValueId up = Make(Opcode::kShl, Type::kI64, {high, b_.Const(Type::kI64, 32)}, Type::kI64);
      const ValueId both = Make(Opcode::kOr, Type::kI64, {up, low}, Type::kI64);
      values.push_back(op.type == Type::kI64 ? both : Make(Opcode::kReinterpret, Type::kI64, {both}, op.type));
    } else {
      values.push_back(LoadOne(op));
    }
    Bind(op.first_result, values);
  }
  void CopyStore(OpId id) {
    const Op& op = f_.op(id);
    const std::vector<ValueId> operands = Map(op);
    if (op.code == Opcode::kStore128) {
      for (uint32_t i = 0; i < 4; ++i) {
        StoreOne(Word(op, i), operands[1 + i]);
      }
    } else if (is_split_[id.index]) {
      const ValueId both =
          op.type == Type::kI64 ? operands[1] : Make(Opcode::kReinterpret, op.type, {operands[1]}, Type::kI64);
      const ValueId high = Make(Opcode::kShrU, Type::kI64, {both, b_.Const(Type::kI64, 32)}, Type::kI64);
      StoreOne(Word(op, 0), Make(Opcode::kWrap, Type::kI64, {both}, Type::kI32));
      StoreOne(Word(op, 1), Make(Opcode::kWrap, Type::kI64, {high}, Type::kI32));
    } else {
      StoreOne(op, operands[1]);
    }
  }
  // Finds accesses of 8 bytes whose words others touch singly.
  void FindSplit() {
    struct Access {
      OpId id;
      uint64_t begin = 0, end = 0;
    };
    std::vector<Access> wide, words;
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (ir::HasSpace(op.code) && op.space == ir::Space::kStack) {
        const ValueRange& range = ranges_[f_.operands_of(op)[0].index];
        (op.width == 8 ? wide : words).push_back({id, range.lo + op.imm, range.hi + op.imm + op.width});
      }
    });
    for (size_t known = 0; known < words.size(); ++known) {
      const Access word = words[known];
      std::erase_if(wide, [&](const Access& access) {
        const bool meets = access.begin < word.end && word.begin < access.end;
        is_split_[access.id.index] = is_split_[access.id.index] || meets;
        if (meets) {
          words.push_back(access);
        }
        return meets;
      });
    }
  }
  // The places of an access that is to be expanded, else none.
  std::vector<uint64_t> Expanded(const Op& op) {
    std::vector<uint64_t> places = PlacesOf(op);
    if (places.size() < 2 || 4 * places.size() > ops_left_) {
      return {};
    }
    has_expanded_ = true;
    ops_left_ -= 4 * places.size();
    return places;
  }

  ValueId IsAt(const Op& op, ValueId place) {
    return b_.Append1({.code = Opcode::kEq, .type = address_type_, .source = op.source}, {{Map(op)[0], place}},
                      Type::kI32);
  }
  ValueId LoadAt(const Op& op, ValueId place) {
    Op load = op;
    load.code = Opcode::kLoad;
    load.sign = op.code == Opcode::kLoad && op.sign;
    return b_.Append1(load, {{place}}, op.type);
  }
  ValueId Choose(const Op& op, ValueId condition, ValueId a, ValueId b) {
    return b_.Append1({.code = Opcode::kSelect, .type = op.type, .source = op.source}, {{condition, a, b}}, op.type);
  }

  ValueId Load(const Op& op, std::span<const uint64_t> places) {
    ValueId value = LoadAt(op, b_.Const(address_type_, places[0]));
    for (const uint64_t address : places.subspan(1)) {
      const ValueId place = b_.Const(address_type_, address);
      value = Choose(op, IsAt(op, place), LoadAt(op, place), value);
    }
    return value;
  }
  void Store(const Op& op, std::span<const uint64_t> places, ValueId stored) {
    for (const uint64_t address : places) {
      const ValueId place = b_.Const(address_type_, address);
      const ValueId value = Choose(op, IsAt(op, place), stored, LoadAt(op, place));
      b_.Append(op, {{place, value}}, {});
    }
  }

  const ir::StackFrame frame_;
  const Type address_type_;
  const std::vector<ValueRange> ranges_;
  const std::vector<uint8_t> zeros_;  // By ValueId.
  std::vector<bool> is_split_;        // By OpId of accesses of 8 bytes.
  uint64_t ops_left_ = kExpandedOpsMax;
  bool has_expanded_ = false;
};

}  // namespace

bool ExpandPlaces(ir::Module& module) {
  if (!module.stack_frame.has_value()) {
    return false;
  }
  std::optional<ir::Function> expanded = Expander(module).Run();
  if (expanded) {
    module.function(module.entry) = *std::move(expanded);
  }
  return expanded.has_value();
}

}  // namespace hpvm
