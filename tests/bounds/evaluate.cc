// SPDX-License-Identifier: Apache-2.0
#include "tests/bounds/evaluate.h"

#include <bit>
#include <span>
#include <utility>

namespace hpvm::bounds {

using ir::Family;
using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::Space;
using ir::Type;

namespace {

constexpr uint64_t kGroupBytes = 64 * 1024;  // Maximum group memory of an instance's group.

int64_t Signed(uint64_t value, unsigned bits) {
  return bits == 64 ? static_cast<int64_t>(value) : static_cast<int64_t>(value << (64 - bits)) >> (64 - bits);
}

bool Holds(Opcode code, uint64_t a, uint64_t b, unsigned bits) {
  const int64_t x = Signed(a, bits), y = Signed(b, bits);
  switch (code) {
    case Opcode::kEqz:
      return a == 0;
    case Opcode::kEq:
      return a == b;
    case Opcode::kNe:
      return a != b;
    case Opcode::kLtS:
      return x < y;
    case Opcode::kLtU:
      return a < b;
    case Opcode::kGtS:
      return x > y;
    case Opcode::kGtU:
      return a > b;
    case Opcode::kLeS:
      return x <= y;
    case Opcode::kLeU:
      return a <= b;
    case Opcode::kGeS:
      return x >= y;
    default:
      return a >= b;
  }
}

uint64_t Rotated(uint64_t a, uint64_t count, unsigned bits) {  // To the left.
  count %= bits;
  return count == 0 ? a : a << count | a >> (bits - count);
}

uint64_t Unary(Opcode code, uint64_t a, unsigned bits) {
  switch (code) {
    case Opcode::kClz:
      return static_cast<uint64_t>(std::countl_zero(a)) - (64 - bits);
    case Opcode::kCtz:
      return a == 0 ? bits : static_cast<uint64_t>(std::countr_zero(a));
    case Opcode::kPopcnt:
      return static_cast<uint64_t>(std::popcount(a));
    case Opcode::kExtend8:
      return static_cast<uint64_t>(Signed(a, 8));
    case Opcode::kExtend16:
      return static_cast<uint64_t>(Signed(a, 16));
    default:
      return static_cast<uint64_t>(Signed(a, 32));
  }
}

uint64_t Binary(Opcode code, uint64_t a, uint64_t b, unsigned bits) {
  switch (code) {
    case Opcode::kAdd:
      return a + b;
    case Opcode::kSub:
      return a - b;
    case Opcode::kMul:
      return a * b;
    case Opcode::kAnd:
      return a & b;
    case Opcode::kOr:
      return a | b;
    case Opcode::kXor:
      return a ^ b;
    case Opcode::kShl:
      return a << (b % bits);
    case Opcode::kShrU:
      return a >> (b % bits);
    case Opcode::kShrS:
      return static_cast<uint64_t>(Signed(a, bits) >> (b % bits));
    case Opcode::kRotl:
      return Rotated(a, b, bits);
    default:
      return Rotated(a, bits - b % bits, bits);
  }
}

bool IsDivision(Opcode code) {
  return code == Opcode::kDivS || code == Opcode::kDivU || code == Opcode::kRemS || code == Opcode::kRemU;
}

}  // namespace

bool Evaluator::Divide(const Op& op, uint64_t a, uint64_t b) {
  const unsigned bits = 8 * ir::Bytes(op.type);
  const int64_t x = Signed(a, bits), y = Signed(b, bits), lowest = Signed(uint64_t{1} << (bits - 1), bits);
  if (b == 0 || (op.code == Opcode::kDivS && x == lowest && y == -1)) {
    return false;
  }
  const bool is_minus = y == -1;  // C++ would overflow.
  const uint64_t result = op.code == Opcode::kDivU   ? a / b
                          : op.code == Opcode::kRemU ? a % b
                          : op.code == Opcode::kDivS ? (is_minus ? uint64_t{0} - a : static_cast<uint64_t>(x / y))
                                                     : (is_minus ? 0 : static_cast<uint64_t>(x % y));
  SetResult(op, result);
  return true;
}

bool Evaluator::Integer(const Op& op) {
  const unsigned bits = 8 * ir::Bytes(op.type);
  const uint64_t a = Operand(op, 0), b = op.operand_count > 1 ? Operand(op, 1) : 0;
  switch (ir::Info(op.code).family) {
    case Family::kIntCompare:
      SetResult(op, Holds(op.code, a, b, bits));
      return true;
    case Family::kIntUnary:
      SetResult(op, Unary(op.code, a, bits));
      return true;
    default:
      if (IsDivision(op.code)) {
        return Divide(op, a, b);
      }
      SetResult(op, Binary(op.code, a, b, bits));
      return true;
  }
}

void Evaluator::SetAny(const Op& op) {
  const Family family = ir::Info(op.code).family;
  for (uint32_t i = 0; i < op.result_count; ++i) {
    uint64_t value = (*oracle_)();
    if (family == Family::kFloatCompare) {
      value &= 1;
    } else if ((family == Family::kMemory || family == Family::kAtomic) && op.width > 0 && op.width < 8) {
      const uint64_t low = value & ((uint64_t{1} << (8 * op.width)) - 1);
      value = op.sign ? static_cast<uint64_t>(Signed(low, 8u * op.width)) : low;
    }
    Set(ir::ValueId(op.first_result.index + i), value);
  }
}

// Sets one of the possible values, the ends as often as all others together.
void Evaluator::SetWord(const Op& op, const Words& words) {
  const int64_t lo = words.lo, count = words.hi - lo + 1;
  const uint64_t choice = (*oracle_)();
  const int64_t word = choice % 4 == 0   ? lo
                       : choice % 4 == 1 ? words.hi
                                         : lo + static_cast<int64_t>(choice / 4 % static_cast<uint64_t>(count));
  SetResult(op, op.sign ? static_cast<uint64_t>(word) : static_cast<uint32_t>(word));
}

void Evaluator::Query(const Op& op) {
  const uint64_t which = Operand(op, 0);
  const bool is_dimension = which < 3;
  const size_t d = is_dimension ? which : 0;
  switch (op.code) {
    case Opcode::kInstanceId:
      return SetResult(op, is_dimension ? instance_[d] : 0);
    case Opcode::kInstanceCount:
      return SetResult(op, is_dimension ? situation_->extent[d] : 1);
    case Opcode::kGroupId:
      return SetResult(op, is_dimension ? instance_[d] / situation_->group[d] : 0);
    case Opcode::kGroupSize:
      return SetResult(op, is_dimension ? situation_->group[d] : 1);
    case Opcode::kLocalId:
      return SetResult(op, is_dimension ? instance_[d] % situation_->group[d] : 0);
    default:
      return SetResult(
          op, which < module_.params.size() && module_.params[which].is_buffer ? situation_->params[which] : 0);
  }
}

bool Evaluator::LocalAlloc(const Op& op) {
  const uint64_t bytes = Operand(op, 0);
  if (bytes > kGroupBytes || group_used_ + (bytes + 15) / 16 * 16 > kGroupBytes) {
    return false;
  }
  SetResult(op, group_base_ + group_used_);
  group_used_ += (bytes + 15) / 16 * 16;
  return true;
}

bool Evaluator::Access(OpId id, const Op& op) {
  const Words* words = nullptr;
  if (op.space == Space::kParam || op.space == Space::kGroup) {
    const bool is_group = op.space == Space::kGroup;
    Reached reached;
    reached.op = id;
    reached.offset = Operand(op, 0) - (is_group ? group_base_ : 0);
    if (!module_.is_memory64) {
      reached.offset = static_cast<uint32_t>(reached.offset);
    }
    reached.bytes = is_group ? group_used_ : situation_->params[op.space_index];
    const auto end = static_cast<unsigned __int128>(reached.offset) + op.imm + op.width;
    const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
    reached.is_inside = end <= reached.bytes && (is_group || !writes || module_.params[op.space_index].is_writable);
    (*visitor_)(reached);
    if (!reached.is_inside) {
      return false;
    }
    const bool is_word = op.code == Opcode::kLoad && op.width == 4 && end % 4 == 0;
    if (is_word && !is_group && op.space_index < situation_->words.size()) {
      words = &situation_->words[op.space_index];
    }
  }
  words != nullptr && words->is_known ? SetWord(op, *words) : SetAny(op);
  return true;
}

bool Evaluator::RunPlain(OpId id, const Op& op) {
  switch (ir::Info(op.code).family) {
    case Family::kConst:
      SetResult(op, op.imm);
      return true;
    case Family::kIntUnary:
    case Family::kIntBinary:
    case Family::kIntCompare:
      return Integer(op);
    case Family::kConvert:
      if (op.code == Opcode::kWrap || op.code == Opcode::kExtendU) {
        SetResult(op, Operand(op, 0));
      } else if (op.code == Opcode::kExtendS) {
        SetResult(op, static_cast<uint64_t>(Signed(Operand(op, 0), 32)));
      } else {
        SetAny(op);
      }
      return true;
    case Family::kSelect:
      SetResult(op, Operand(op, Operand(op, 0) != 0 ? 1 : 2));
      return true;
    case Family::kQuery:
      Query(op);
      return true;
    case Family::kMemory:
    case Family::kAtomic:
      return Access(id, op);
    default:
      if (op.code == Opcode::kLocalAlloc) {
        return LocalAlloc(op);
      }
      SetAny(op);
      return true;
  }
}

Evaluator::Exit Evaluator::Jump(const Op& op) {
  const bool is_table = op.code == Opcode::kBrTable;
  const std::span<const ir::Target> targets = f_.targets_of(op);
  size_t which = 0;
  if (is_table) {  // The last target is for every index without its own.
    which = Operand(op, 0) < targets.size() ? Operand(op, 0) : targets.size() - 1;
  }
  Exit exit{targets[which].is_continue ? Exit::Kind::kContinue : Exit::Kind::kBr, targets[which].op};
  for (uint32_t i = is_table ? 1 : 0; i < op.operand_count; ++i) {
    exit.values.push_back(Operand(op, i));
  }
  return exit;
}

// Runs a block, loop or if. A branch out of the region itself has put its results in place, and ends here.
Evaluator::Exit Evaluator::RunNested(OpId id, const Op& op) {
  if (op.code == Opcode::kIf) {
    return RunRegion(Operand(op, 0) != 0 ? op.body : op.otherwise);
  }
  const ir::Region& body = f_.region(op.body);
  std::vector<uint64_t> params;
  for (uint32_t i = 0; i < op.operand_count; ++i) {
    params.push_back(Operand(op, i));
  }
  for (;;) {
    for (uint32_t i = 0; i < body.param_count; ++i) {
      Set(ir::ValueId(body.first_param.index + i), params[i]);
    }
    Exit exit = RunRegion(op.body);
    if (exit.kind != Exit::Kind::kContinue || !(exit.target == id)) {
      return exit;
    }
    params = std::move(exit.values);
  }
}

Evaluator::Exit Evaluator::RunRegion(ir::RegionId region) {
  for (OpId id : f_.region(region).ops) {
    const Op& op = f_.op(id);
    if (steps_left_ == 0) {
      return {Exit::Kind::kTooLong};
    }
    --steps_left_;
    switch (op.code) {
      case Opcode::kBr:
      case Opcode::kContinue:
      case Opcode::kBrTable:
        return Jump(op);
      case Opcode::kReturn:
        return {Exit::Kind::kReturn};
      case Opcode::kTrap:
        return {Exit::Kind::kTrap};
      case Opcode::kBlock:
      case Opcode::kLoop:
      case Opcode::kIf: {
        const Exit exit = RunNested(id, op);
        if (exit.kind != Exit::Kind::kBr || !(exit.target == id)) {
          return exit;
        }
        for (uint32_t i = 0; i < op.result_count; ++i) {
          Set(ir::ValueId(op.first_result.index + i), exit.values[i]);
        }
        break;
      }
      default:
        if (!RunPlain(id, op)) {
          return {Exit::Kind::kTrap};
        }
    }
  }
  return {Exit::Kind::kTrap};  // A region ends with a jump.
}

Ending Evaluator::Run(const Situation& situation, const std::array<uint64_t, 3>& instance, uint64_t steps_max,
                      const Oracle& oracle, const Visitor& visitor) {
  situation_ = &situation;
  instance_ = instance;
  oracle_ = &oracle;
  visitor_ = &visitor;
  steps_left_ = steps_max;
  group_base_ = oracle() & (module_.is_memory64 ? ~uint64_t{15} : uint64_t{0xfffffff0});
  group_used_ = 0;
  values_.assign(f_.values.size(), 0);
  const ir::Region& body = f_.region(f_.body);
  for (uint32_t i = 0; i < body.param_count; ++i) {
    Set(ir::ValueId(body.first_param.index + i), module_.params[i].is_buffer ? oracle() : situation.params[i]);
  }
  const Exit exit = RunRegion(f_.body);
  return exit.kind == Exit::Kind::kReturn    ? Ending::kEnded
         : exit.kind == Exit::Kind::kTooLong ? Ending::kTooLong
                                             : Ending::kTrapped;
}

}  // namespace hpvm::bounds
