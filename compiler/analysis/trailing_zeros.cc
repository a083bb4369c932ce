// SPDX-License-Identifier: Apache-2.0
// Method: sweeps over the operations lower each value's number of zeros from 64 to what its operation, or any edge
// that brings a value to it, guarantees.
// Invariants: numbers only fall, so the first sweep without a change leaves the greatest fixed point: every number
// is justified by its operands'. A value that ranges or a constant fix has exactly the zeros of that constant.
// A sweep is linear; a number falls at most 64 times. After 64 sweeps without a fixed point nothing is known (all
// 0).
#include "compiler/analysis/trailing_zeros.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

// A multiple of all powers of two: the initial fact of an unvisited value.
constexpr uint8_t kAny = 64;

class TrailingZeros {
 public:
  TrailingZeros(const ir::Function& function, const KnownZeros& known)
      : f_(function), id_x_(known.id_x), known_(f_.values.size(), kAny), constants_(f_.values.size()) {
    const ir::Region& body = f_.region(f_.body);
    for (uint32_t i = 0; i < body.param_count; ++i) {
      known_[body.first_param.index + i] = i < known.params.size() ? known.params[i] : 0;
    }
    for (size_t i = 0; known.ranges != nullptr && i < constants_.size(); ++i) {
      if (const ValueRange& range = (*known.ranges)[i]; range.is_constant() && ir::IsInt(f_.values[i].type)) {
        constants_[i] = range.lo;
      }
    }
    ir::ForEachOp(f_, [&](OpId id) {
      if (f_.op(id).code == Opcode::kConst) {
        constants_[f_.op(id).first_result.index] = f_.op(id).imm;
      }
    });
  }

  std::vector<uint8_t> Run() {
    constexpr int kSweepsMax = 64;
    for (int sweep = 0; sweep < kSweepsMax; ++sweep) {
      changed_ = false;
      ir::ForEachOp(f_, [&](OpId id) { Visit(f_.op(id)); });
      if (!changed_) {
        return known_;
      }
    }
    return std::vector<uint8_t>(known_.size());
  }

 private:
  uint8_t Of(const Op& op, uint32_t operand) const { return known_[f_.operands_of(op)[operand].index]; }
  std::optional<uint64_t> ConstantOf(const Op& op, uint32_t operand) const {
    return constants_[f_.operands_of(op)[operand].index];
  }
  void Lower(ValueId id, uint8_t zeros) {
    if (zeros < known_[id.index]) {
      known_[id.index] = zeros;
      changed_ = true;
    }
  }
  void Visit(const Op& op) {
    ir::ForEachBrought(f_, op, [&](ValueId slot, ValueId value) { Lower(slot, known_[value.index]); });
    if ((ir::Info(op.code).effects & ir::kControl) != 0) {
      return;
    }
    for (const ValueId result : ir::ResultsOf(op)) {
      Lower(result, std::min<uint8_t>(Result(op), static_cast<uint8_t>(8 * ir::Bytes(f_.type_of(result)))));
    }
  }
  uint8_t Result(const Op& op) const {
    if (op.result_count == 1 && constants_[op.first_result.index]) {
      return static_cast<uint8_t>(std::countr_zero(*constants_[op.first_result.index]));
    }
    const auto shift = [&] { return static_cast<uint8_t>(*ConstantOf(op, 1) % (8 * ir::Bytes(op.type))); };
    switch (op.code) {
      case Opcode::kInstanceId:
        return ConstantOf(op, 0) == uint64_t{0} ? id_x_ : 0;
      case Opcode::kLocalAlloc:
        return 4;
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kOr:
      case Opcode::kXor:
        return std::min(Of(op, 0), Of(op, 1));
      case Opcode::kAnd:
        return std::max(Of(op, 0), Of(op, 1));
      case Opcode::kMul:
        return static_cast<uint8_t>(std::min(Of(op, 0) + Of(op, 1), int{kAny}));
      case Opcode::kShl:
        return ConstantOf(op, 1) ? static_cast<uint8_t>(std::min(Of(op, 0) + shift(), int{kAny})) : Of(op, 0);
      case Opcode::kShrU:
      case Opcode::kShrS:
        return ConstantOf(op, 1) && Of(op, 0) > shift() ? static_cast<uint8_t>(Of(op, 0) - shift()) : 0;
      case Opcode::kSelect:
        return std::min(Of(op, 1), Of(op, 2));
      case Opcode::kWrap:
      case Opcode::kExtendS:
      case Opcode::kExtendU:
        return Of(op, 0);
      default:
        return 0;
    }
  }

  const ir::Function& f_;
  const uint8_t id_x_;
  std::vector<uint8_t> known_;
  std::vector<std::optional<uint64_t>> constants_;
  bool changed_ = false;
};

}  // namespace

std::vector<uint8_t> FindTrailingZeros(const ir::Function& function, const KnownZeros& known) {
  return TrailingZeros(function, known).Run();
}

const ValueRange& EntryNumbers::RangeOf(ValueId value) {
  if (ranges_.empty()) {
    ranges_ = FindValueRanges(module_, id_max_);
  }
  return ranges_[value.index];
}

uint8_t EntryNumbers::ZerosOf(ValueId value) {
  RangeOf(value);
  if (zeros_.empty()) {
    zeros_ = FindTrailingZeros(module_.function(module_.entry), {.params = ZerosOfParams(module_), .ranges = &ranges_});
  }
  return zeros_[value.index];
}

bool EntryNumbers::IsAligned(const Op& access, uint8_t log2) {
  const ValueId address = module_.function(module_.entry).operands_of(access)[0];
  return ZerosOf(address) >= log2 && access.imm % (uint64_t{1} << log2) == 0;
}

std::vector<uint8_t> ZerosOfParams(const ir::Module& module, std::span<const uint8_t> scalars) {
  constexpr uint8_t kBuffer = 16;
  std::vector<uint8_t> zeros(module.params.size());
  for (size_t i = 0; i < zeros.size(); ++i) {
    zeros[i] = module.params[i].is_buffer ? kBuffer : i < scalars.size() ? scalars[i] : 0;
  }
  return zeros;
}

}  // namespace hpvm::analysis
