// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/expand_bulk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/status.h"

namespace hpvm::pass {
namespace {

class Expansion {
 public:
  Expansion(ir::Function& function, OpId bulk) : f_(function), bulk_(function.op(bulk)) {
    std::copy_n(f_.operands_of(bulk_).begin(), operands_.size(), operands_.begin());
  }
  std::vector<OpId> Copy(uint64_t bytes) {
    std::vector<ValueId> words;
    for (const Piece& piece : PiecesOf(bytes)) {
      words.push_back(Access(Opcode::kLoad, piece, std::array{operands_[1]}, 1));
    }
    Store(bytes, words);
    return std::move(ops_);
  }
  std::vector<OpId> Fill(uint64_t bytes) {
    const ValueId byte = Add({.code = Opcode::kAnd}, std::array{operands_[1], Constant(0xff)}, 1);
    const ValueId word = Add({.code = Opcode::kMul}, std::array{byte, Constant(0x01010101)}, 1);
    Store(bytes, std::vector<ValueId>(PiecesOf(bytes).size(), word));
    return std::move(ops_);
  }

 private:
  struct Piece {
    uint64_t offset;
    uint8_t bytes;
  };
  // Returns words, and smaller pieces for the remaining bytes.
  static std::vector<Piece> PiecesOf(uint64_t bytes) {
    std::vector<Piece> pieces;
    for (uint64_t at = 0; at < bytes; at += pieces.back().bytes) {
      pieces.push_back({at, static_cast<uint8_t>(std::min<uint64_t>(4, std::bit_floor(bytes - at)))});
    }
    return pieces;
  }
  // Stores the last piece first: a target that ends too late then traps before anything is written.
  void Store(uint64_t bytes, std::span<const ValueId> words) {
    const std::vector<Piece> pieces = PiecesOf(bytes);
    for (size_t i = pieces.size(); i-- > 0;) {
      Access(Opcode::kStore, pieces[i], std::array{operands_[0], words[i]}, 0);
    }
  }
  ValueId Access(Opcode code, const Piece& piece, std::span<const ValueId> operands, uint32_t results) {
    Op op{.code = code, .width = piece.bytes, .imm = piece.offset};
    return Add(op, operands, results);
  }
  ValueId Constant(uint64_t bits) {
    Op op{.code = Opcode::kConst, .imm = bits};
    return Add(op, {}, 1);
  }
  // Appends an operation of type i32.
  ValueId Add(Op op, std::span<const ValueId> operands, uint32_t results) {
    op.type = Type::kI32;
    op.source = bulk_.source;
    op.origin = bulk_.origin;
    op.first_operand = static_cast<uint32_t>(f_.operands.size());
    op.operand_count = static_cast<uint32_t>(operands.size());
    op.first_result = ValueId(f_.values.size());
    op.result_count = results;
    f_.operands.insert(f_.operands.end(), operands.begin(), operands.end());
    f_.values.resize(f_.values.size() + results, {Type::kI32});
    f_.ops.push_back(op);
    ops_.push_back(OpId(f_.ops.size() - 1));
    return op.first_result;
  }

  ir::Function& f_;
  const Op bulk_;                      // A copy, because `ops` may reallocate.
  std::array<ValueId, 3> operands_{};  // Target, source or byte, size.
  std::vector<OpId> ops_;
};

}  // namespace

std::vector<OpId> ExpandBulk(ir::Function& function, OpId bulk, uint64_t bytes) {
  HPVMD_CHECK(bytes > 0 && bytes <= kExpandedBytesMax);
  Expansion expansion(function, bulk);
  return function.op(bulk).code == Opcode::kMemoryCopy ? expansion.Copy(bytes) : expansion.Fill(bytes);
}

}  // namespace hpvm::pass
