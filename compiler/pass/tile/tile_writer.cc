// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/tile/tile_writer.h"

#include <algorithm>

namespace hpvm::pass {

namespace {

// Makes an operation without a source and origin.
Op Plain(Opcode code, Type type) { return {.code = code, .type = type}; }

}  // namespace

ValueId TileWriter::Add(Opcode code, Type type, std::span<const ValueId> operands) {
  const bool is_compare = ir::Info(code).family == ir::Family::kIntCompare;
  Charge(Plain(code, type));
  return builder_.Append1(Plain(code, type), operands, is_compare ? Type::kI32 : type);
}

ValueId TileWriter::Number(Type type, uint64_t bits) {
  return Once({~uint64_t{0} - (type == Type::kI32 ? 0 : 1), bits}, [&] { return builder_.Const(type, bits); });
}

ValueId TileWriter::Plus(ValueId base, uint64_t delta) {
  const Type type = out_.type_of(base);
  delta &= ir::Bytes(type) == 4 ? 0xffffffffu : ~uint64_t{0};
  if (delta == 0) {
    return base;
  }
  return Once({base.index, delta}, [&] { return Add(Opcode::kAdd, type, std::array{base, Number(type, delta)}); });
}

ValueId TileWriter::Compute(Opcode code, ValueId a, uint64_t b) {
  return Add(code, out_.type_of(a), std::array{a, Number(out_.type_of(a), b)});
}

ValueId TileWriter::Widened(ValueId id) {
  return builder_.Append1(Plain(Opcode::kExtendU, Type::kI32), std::array{id}, Type::kI64);
}

void TileWriter::CloseScope() {
  for (const SumKey& key : scopes_.back()) {
    sums_.erase(key);
  }
  scopes_.pop_back();
}

OpId TileWriter::AppendAccess(OpId original, const Op& op, std::span<const ValueId> operands,
                              std::span<const Type> results) {
  const OpId id = builder_.Append(op, operands, results);
  original_.resize(out_.ops.size());
  original_[id.index] = original;
  return id;
}

// Words are already in registers: none of this has a cost.
ValueId TileWriter::FromWords(Type type, std::span<const ValueId> words) {
  ValueId bits = words[0];
  if (ir::Bytes(type) == 8) {
    const Type wide = Type::kI64;
    const ValueId low = builder_.Append1(Plain(Opcode::kExtendU, Type::kI32), words.first(1), wide);
    const ValueId high = builder_.Append1(Plain(Opcode::kExtendU, Type::kI32), words.subspan(1, 1), wide);
    const ValueId up = builder_.Append1(Plain(Opcode::kShl, wide), std::array{high, Number(wide, 32)}, wide);
    bits = builder_.Append1(Plain(Opcode::kOr, wide), std::array{low, up}, wide);
  }
  return ir::IsInt(type) ? bits
                         : builder_.Append1(Plain(Opcode::kReinterpret, out_.type_of(bits)), std::array{bits}, type);
}

void TileWriter::ToWords(ValueId value, std::vector<ValueId>* words) {
  const Type type = out_.type_of(value), wide = Type::kI64;
  const bool is_word = ir::Bytes(type) == 4;
  ValueId bits = value;
  if (!ir::IsInt(type)) {
    bits = builder_.Append1(Plain(Opcode::kReinterpret, type), std::array{value}, is_word ? Type::kI32 : wide);
  }
  if (is_word) {
    words->push_back(bits);
    return;
  }
  words->push_back(builder_.Append1(Plain(Opcode::kWrap, wide), std::array{bits}, Type::kI32));
  const ValueId high = builder_.Append1(Plain(Opcode::kShrU, wide), std::array{bits, Number(wide, 32)}, wide);
  words->push_back(builder_.Append1(Plain(Opcode::kWrap, wide), std::array{high}, Type::kI32));
}

// Adds an estimate of the operation's cost, weighted by how often it runs.
void TileWriter::Charge(const Op& op, bool is_strided) {
  double cost = 1;
  switch (ir::Info(op.code).family) {
    case ir::Family::kConst:
    case ir::Family::kQuery:
      cost = 0;
      break;
    case ir::Family::kMemory: {
      constexpr double kScalar = 4, kVector = 6, kStridedVector = 9, kShared = 2;
      cost = kScalar;
      if (op.code == Opcode::kLoad128 || op.code == Opcode::kStore128) {
        cost = is_strided ? kStridedVector : kVector;
      } else if (op.operand_count > 0) {
        // Accesses of neighbouring work items are a tile apart, so they spread over more cache lines.
        const Layout& address = plan_.gang.layouts[f_.operands_of(op)[0].index];
        const bool is_shared = address.kind == Layout::Kind::kUniform;
        const bool is_dense = address.kind == Layout::Kind::kLinear && address.step <= op.width;
        cost = is_shared ? kShared : is_dense ? kScalar * std::min(plan_.tile[0], 4u) : kScalar;
      }
      break;
    }
    case ir::Family::kAtomic:
      cost = 20;
      break;
    case ir::Family::kFloatBinary:
    case ir::Family::kFloatUnary:
      cost = op.code == Opcode::kFDiv || op.code == Opcode::kFSqrt ? 8 : 1;
      break;
    case ir::Family::kApprox:
      cost = 8;  // A sixteenth to a quarter of the rate of additions.
      break;
    case ir::Family::kIntBinary:
      cost = (ir::Info(op.code).effects & ir::kTraps) != 0 ? 16 : 1;
      break;
    default:
      break;
  }
  cost_ += cost * weight_;
}

}  // namespace hpvm::pass
