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
#include "compiler/ir/op_syntax.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/memory/promote_stack.h"
#include "compiler/pass/rewrite/copy_function.h"

namespace hpvm::pass {
namespace {

class Expander final : public FunctionCopier {
 public:
  explicit Expander(const ir::Module& module)
      : FunctionCopier(module.function(module.entry)),
        frame_(*module.stack_frame),
        address_type_(module.address_type()),
        ranges_(analysis::FindValueRanges(module, ~uint64_t{0})),
        is_inside_(FindInsideStack(module)),
        zeros_(analysis::FindTrailingZeros(f_, {.params = analysis::ZerosOfParams(module), .ranges = &ranges_})),
        is_split_(f_.ops.size()) {
    FindSplit();
  }

  // Returns the function with accesses at constant addresses; nothing if there are none to expand.
  std::optional<ir::Function> Run() && {
    CopyAll();
    return has_expanded_ ? std::optional(std::move(to_)) : std::nullopt;
  }

 private:
  // Returns the possible addresses of the operand, in order; empty if there are too many, only one, or some may be
  // outside of the frame. `word` is the access, or a word of it.
  std::vector<uint64_t> PlacesOf(OpId access, const Op& word) const {
    const ValueId address = f_.operands_of(word)[0];
    const analysis::ValueRange& range = ranges_[address.index];
    const uint64_t step = uint64_t{1} << std::min<uint8_t>(zeros_[address.index], 32);
    std::vector<uint64_t> places;
    const uint64_t first = (range.lo + step - 1) / step * step;
    if (!is_inside_[access.index] || range.is_constant() || step < word.width || range.hi < first ||
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
  // Returns one of the words of which the access consists.
  Op Word(const Op& op, uint32_t i) {
    Op word = op;
    word.code = op.code == Opcode::kLoad || op.code == Opcode::kLoad128 ? Opcode::kLoad : Opcode::kStore;
    word.type = Type::kI32;
    word.width = 4;
    word.imm += 4 * i;
    has_expanded_ = true;
    return word;
  }
  ValueId LoadOne(OpId access, const Op& op) {
    const std::vector<uint64_t> places = Expanded(access, op);
    return places.empty() ? LoadAt(op, Map(op)[0]) : Load(op, places);
  }
  void StoreOne(OpId access, const Op& op, ValueId value) {
    if (const std::vector<uint64_t> places = Expanded(access, op); !places.empty()) {
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
        values.push_back(LoadOne(id, Word(op, i)));
      }
    } else if (is_split_[id.index]) {
      const ValueId low = Make(Opcode::kExtendU, Type::kI32, {LoadOne(id, Word(op, 0))}, Type::kI64);
      const ValueId high = Make(Opcode::kExtendU, Type::kI32, {LoadOne(id, Word(op, 1))}, Type::kI64);
      const ValueId up = Make(Opcode::kShl, Type::kI64, {high, b_.Const(Type::kI64, 32)}, Type::kI64);
      const ValueId both = Make(Opcode::kOr, Type::kI64, {up, low}, Type::kI64);
      values.push_back(op.type == Type::kI64 ? both : Make(Opcode::kReinterpret, Type::kI64, {both}, op.type));
    } else {
      values.push_back(LoadOne(id, op));
    }
    Bind(op.first_result, values);
  }
  void CopyStore(OpId id) {
    const Op& op = f_.op(id);
    const std::vector<ValueId> operands = Map(op);
    if (op.code == Opcode::kStore128) {
      for (uint32_t i = 0; i < 4; ++i) {
        StoreOne(id, Word(op, i), operands[1 + i]);
      }
    } else if (is_split_[id.index]) {
      const ValueId both =
          op.type == Type::kI64 ? operands[1] : Make(Opcode::kReinterpret, op.type, {operands[1]}, Type::kI64);
      const ValueId high = Make(Opcode::kShrU, Type::kI64, {both, b_.Const(Type::kI64, 32)}, Type::kI64);
      StoreOne(id, Word(op, 0), Make(Opcode::kWrap, Type::kI64, {both}, Type::kI32));
      StoreOne(id, Word(op, 1), Make(Opcode::kWrap, Type::kI64, {high}, Type::kI32));
    } else {
      StoreOne(id, op, operands[1]);
    }
  }
  // Finds accesses of 8 bytes whose words other accesses touch singly.
  void FindSplit() {
    std::vector<bool> is_word(frame_.bytes() / 4);  // Indexed by word of the frame: accessed singly.
    const auto words_of = [&](const Op& op) {
      const analysis::ValueRange& range = ranges_[f_.operands_of(op)[0].index];
      const uint64_t most = is_word.size() - 1;
      const auto word_at = [&](uint64_t address) {
        return address < frame_.begin ? 0 : std::min((address - frame_.begin) / 4, most);
      };
      const uint64_t last = range.hi > frame_.end ? frame_.end : range.hi + op.imm + op.width - 1;
      return std::pair(word_at(range.lo + op.imm), word_at(last));
    };
    std::vector<OpId> wide;
    ir::ForEachOp(f_, [&](OpId id) {
      const Op& op = f_.op(id);
      if (!ir::HasSpace(op.code) || op.space != ir::Space::kStack || is_word.empty()) {
        return;
      }
      if (op.width == 8) {
        wide.push_back(id);
      } else if (const auto [first, last] = words_of(op); true) {
        std::fill(is_word.begin() + static_cast<ptrdiff_t>(first), is_word.begin() + static_cast<ptrdiff_t>(last) + 1,
                  true);
      }
    });
    // A split access touches words singly, too. Each round but the last adds words, and a frame has few.
    for (bool has_split = true; has_split;) {
      has_split = false;
      std::erase_if(wide, [&](OpId id) {
        const auto [first, last] = words_of(f_.op(id));
        const auto begin = is_word.begin() + static_cast<ptrdiff_t>(first);
        const auto end = is_word.begin() + static_cast<ptrdiff_t>(last) + 1;
        if (std::find(begin, end, true) == end) {
          return false;
        }
        std::fill(begin, end, true);
        is_split_[id.index] = has_split = true;
        return true;
      });
    }
  }
  // Returns the places of an access that is to be expanded; else none.
  std::vector<uint64_t> Expanded(OpId access, const Op& op) {
    std::vector<uint64_t> places = PlacesOf(access, op);
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
  const std::vector<analysis::ValueRange> ranges_;
  const std::vector<bool> is_inside_;  // Indexed by OpId: true if the access is certainly inside the frame.
  const std::vector<uint8_t> zeros_;   // Indexed by ValueId.
  std::vector<bool> is_split_;         // Indexed by OpId of accesses of 8 bytes.
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

}  // namespace hpvm::pass
