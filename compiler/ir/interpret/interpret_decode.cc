// SPDX-License-Identifier: Apache-2.0
// Decodes regions to flat code. Requires a verified module.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "compiler/ir/interpret/machine.h"

namespace hpvm::ir {
namespace {

class Decoder {
 public:
  explicit Decoder(const Function& function) : f_(function) {
    const Region& body = f_.region(f_.body);
    out_.first_param = body.param_count > 0 ? body.first_param.index : 0;
    out_.param_count = body.param_count;
    begin_.resize(f_.ops.size());
    ends_.resize(f_.ops.size());
  }

  DecodedFunction Run() && {
    open_.push_back({f_.body});
    while (!open_.empty()) {
      Open& top = open_.back();
      const Region& region = f_.region(top.region);
      if (top.next == region.ops.size()) {
        CloseRegion();
      } else {
        Step(region.ops[top.next++]);
      }
    }
    out_.frame_slots = static_cast<uint32_t>(f_.values.size()) + scratch_;
    return std::move(out_);
  }

 private:
  struct Open {
    RegionId region;
    size_t next = 0;
  };
  // A jump whose distance is known when the target's end is known.
  struct Fixup {
    bool is_table = false;
    size_t place = 0;  // Index in code or in jumps.
    size_t from = 0;   // The Code from which the distance counts.
  };

  size_t Here() const { return out_.code.size(); }
  Code& Emit(Handler run, uint32_t source) {
    out_.code.emplace_back();
    out_.code.back().run = run;
    out_.code.back().source = source;
    out_.code.back().origin = origin_;
    out_.ops.push_back(op_);
    return out_.code.back();
  }
  void Step(OpId id) {
    op_ = id;
    origin_ = f_.op(id).origin;
    const Op& op = f_.op(id);
    switch (op.code) {
      case Opcode::kBlock:
      case Opcode::kLoop:
      case Opcode::kIf:
        return OpenBlock(id);
      case Opcode::kBr:
      case Opcode::kContinue: {
        const Target& target = f_.targets_of(op)[0];
        if (FallsThrough(target)) {
          return Moves(f_.op(target.op).first_result, f_.operands_of(op));
        }
        return JumpTo(target, f_.operands_of(op), op.source);
      }
      case Opcode::kBrTable:
        return Table(op);
      case Opcode::kReturn: {
        Code& code = Emit(step::Return, op.source);
        code.b = List(f_.operands_of(op));
        code.c = op.operand_count;
        return;
      }
      case Opcode::kTrap:
        Emit(step::Trap, op.source).imm = op.imm;
        return;
      case Opcode::kCall:
      case Opcode::kCallRef:
      case Opcode::kPrint:
        return CallStep(op);
      default:
        return Plain(op);
    }
  }
  void Plain(const Op& op) {
    Code& code = Emit(HandlerFor(op), op.source);
    const auto operands = f_.operands_of(op);
    code.result = op.result_count > 0 ? op.first_result.index : 0;
    code.a = operands.size() > 0 ? operands[0].index : 0;
    code.b = operands.size() > 1 ? operands[1].index : 0;
    code.c = operands.size() > 2 ? operands[2].index : 0;
    code.imm = op.imm;
    code.extra = op.space_index;
    if (op.code == Opcode::kStore128) {
      code.b = List(operands.subspan(1));
    }
    if (Info(op.code).family == Family::kQuery) {
      code.imm = op.type == Type::kI32 ? 0xffffffffu : ~uint64_t{0};
    }
  }
  Handler HandlerFor(const Op& op) const {
    switch (Info(op.code).family) {
      case Family::kIntUnary:
      case Family::kIntBinary:
      case Family::kIntCompare:
        return IntegerHandler(op);
      case Family::kFloatUnary:
      case Family::kApprox:
      case Family::kFloatBinary:
      case Family::kFloatCompare:
        return FloatHandler(op);
      case Family::kConvert:
        return ConversionHandler(op, f_.type_of(op.first_result));
      case Family::kMemory:
        return MemoryHandler(op);
      case Family::kAtomic:
        return AtomicHandler(op);
      default:
        return LaunchHandler(op);
    }
  }
  void CallStep(const Op& op) {
    auto operands = f_.operands_of(op);
    Code& code = Emit(op.code == Opcode::kCallRef ? step::CallRef
                      : op.code == Opcode::kPrint ? step::Print
                                                  : step::Call,
                      op.source);
    code.result = op.result_count > 0 ? op.first_result.index : 0;
    code.imm = op.imm;
    if (op.code == Opcode::kCallRef) {
      code.a = operands[0].index;
      operands = operands.subspan(1);
    }
    code.b = List(operands);
    code.c = static_cast<uint32_t>(operands.size());
  }
  uint32_t List(std::span<const ValueId> values) {
    const uint32_t first = static_cast<uint32_t>(out_.slots.size());
    for (const ValueId value : values) {
      out_.slots.push_back(value.index);
    }
    return first;
  }
  void OpenBlock(OpId id) {
    const Op& op = f_.op(id);
    if (op.code == Opcode::kIf) {
      else_[id.index] = Here();
      Emit(step::JumpIfZero, op.source).a = f_.operands_of(op)[0].index;
    } else {
      Moves(f_.region(op.body).first_param, f_.operands_of(op));
      begin_[id.index] = Here();
    }
    open_.push_back({op.body});
  }
  void CloseRegion() {
    const RegionId closed = open_.back().region;
    open_.pop_back();
    const OpId owner = f_.region(closed).owner;
    if (!owner.valid()) {
      return;
    }
    const Op& op = f_.op(owner);
    if (op.code == Opcode::kIf && op.body == closed) {
      const size_t branch = else_[owner.index];
      Resolve({false, branch, branch});
      open_.push_back({op.otherwise});
      return;
    }
    for (const Fixup& fixup : ends_[owner.index]) {
      Resolve(fixup);
    }
  }
  void Resolve(const Fixup& fixup) {
    const int64_t distance = static_cast<int64_t>(Here()) - static_cast<int64_t>(fixup.from);
    if (fixup.is_table) {
      out_.jumps[fixup.place] = distance;
    } else {
      out_.code[fixup.place].imm = static_cast<uint64_t>(distance);
    }
  }
  // Returns true when a br of `target` at the end of the current region arrives at the next Code.
  bool FallsThrough(const Target& target) const {
    const Op& op = f_.op(target.op);
    return !target.is_continue && open_.back().region == (op.code == Opcode::kIf ? op.otherwise : op.body);
  }
  void JumpTo(const Target& target, std::span<const ValueId> values, uint32_t source) {
    const Op& op = f_.op(target.op);
    if (target.is_continue) {
      Moves(f_.region(op.body).first_param, values);
      const size_t from = Here();
      Emit(step::JumpBack, source).imm = static_cast<uint64_t>(begin_[target.op.index] - from);
      return;
    }
    Moves(op.first_result, values);
    ends_[target.op.index].push_back({false, Here(), Here()});
    Emit(step::Jump, source);
  }
  void Table(const Op& op) {
    const auto targets = f_.targets_of(op);
    const auto values = f_.operands_of(op).subspan(1);
    const size_t from = Here();
    const size_t first = out_.jumps.size();
    Code& code = Emit(step::JumpTable, op.source);
    code.a = f_.operands_of(op)[0].index;
    code.b = static_cast<uint32_t>(first);
    code.c = static_cast<uint32_t>(targets.size());
    out_.jumps.resize(first + targets.size());
    // Each distinct target has a single stub with its moves and jump.
    std::map<std::pair<OpId, bool>, int64_t> stubs;
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto [stub, is_new] =
          stubs.emplace(std::pair(targets[i].op, targets[i].is_continue), static_cast<int64_t>(Here() - from));
      if (is_new) {
        JumpTo(targets[i], values, op.source);
      }
      out_.jumps[first + i] = stub->second;
    }
  }
  // Moves in parallel: a value that is also a destination is read before it is overwritten.
  void Moves(ValueId first, std::span<const ValueId> values) {
    const uint32_t count = static_cast<uint32_t>(values.size());
    bool is_safe = true;
    for (uint32_t i = 0; i < count; ++i) {
      // Destination j < i is already overwritten when value i is read.
      is_safe &= values[i].index < first.index || values[i].index >= first.index + i;
    }
    const uint32_t scratch = static_cast<uint32_t>(f_.values.size());
    if (!is_safe) {
      scratch_ = std::max(scratch_, count);
      for (uint32_t i = 0; i < count; ++i) {
        EmitMove(scratch + i, values[i].index);
      }
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t from = is_safe ? values[i].index : scratch + i;
      if (from != first.index + i) {
        EmitMove(first.index + i, from);
      }
    }
  }
  void EmitMove(uint32_t to, uint32_t from) {
    Code& code = Emit(step::Move, 0);
    code.result = to;
    code.a = from;
  }

  const Function& f_;
  DecodedFunction out_;
  OpId op_;              // The current operation.
  uint32_t origin_ = 0;  // Origin of the current operation.
  std::vector<Open> open_;
  std::vector<size_t> begin_;                  // For loops: the start of the next iteration.
  std::vector<std::vector<Fixup>> ends_;       // Jumps to the end of an operation.
  std::unordered_map<uint32_t, size_t> else_;  // For ifs: the JumpIfZero.
  uint32_t scratch_ = 0;                       // Number of slots above the values.
};

}  // namespace

DecodedFunction Decode(const Module& module, FunctionId id) {
  DecodedFunction decoded = Decoder(module.function(id)).Run();
  decoded.index = id.index;
  return decoded;
}

DecodedModule::DecodedModule(Module module_to_own) : module(std::move(module_to_own)) {
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    functions.push_back(Decode(module, FunctionId(i)));
  }
}

}  // namespace hpvm::ir
