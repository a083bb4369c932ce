// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/status.h"
#include "compiler/front/wasm/imports.h"
#include "compiler/front/wasm/set_locals.h"

namespace hpvm::wasm {
namespace {

using ir::Opcode;
using ir::OpId;
using ir::Type;
using ir::ValueId;

// An open block, loop or if; the first stands for the function.
struct Frame {
  InstrKind kind = InstrKind::kBlock;
  OpId op;  // Invalid for the function.
  const ir::FunctionType* type = nullptr;
  std::span<const uint32_t> locals;  // Set inside.
  size_t height = 0;                 // Of the stack below the parameters.
  bool is_left = false;              // Something leaves it, so what follows can be reached.
  bool has_else = false;
  std::vector<ValueId> saved;  // if: the parameters and the locals as the condition found them.
};

class Lowering {
 public:
  Lowering(LowerContext& context, const Function& function, const SetLocals& sets, ir::Function& out)
      : context_(context), module_(context.module), source_(function), sets_(sets), out_(out), builder_(out) {}

  bool Run();

 private:
  ValueId Pop();
  std::vector<ValueId> PopMany(size_t count);
  void Push(ValueId value) { stack_.push_back(value); }
  void PushAll(std::span<const ValueId> values) { stack_.insert(stack_.end(), values.begin(), values.end()); }

  void Begin();
  void Lower(const Instr& instr);
  void Skip(const Instr& instr);
  void Plain(const Instr& instr);
  void GlobalAccess(const Instr& instr);
  void Call(const Instr& instr);
  void CallIndirect(const Instr& instr);
  void Select();

  void OpenBlock(const Instr& instr);
  void OpenLoop(const Instr& instr, Frame& frame, std::span<const Type> results);
  void OpenIf(const Instr& instr, Frame& frame, std::span<const Type> results);
  void Else();
  void End(const Instr& instr);
  void FallThrough();
  void Branch(uint32_t depth, uint32_t source);
  void BranchIf(const Instr& instr);
  void BranchTable(const Instr& instr);
  void Return(uint32_t source);

  Frame& FrameAt(uint32_t depth) { return frames_[frames_.size() - 1 - depth]; }
  // What a branch to the frame carries: the top of the stack and the locals set inside.
  std::vector<ValueId> BranchValues(const Frame& frame) const;
  void Restore(const Frame& frame, std::span<const ValueId> values);

  LowerContext& context_;
  const Module& module_;
  const Function& source_;
  const SetLocals& sets_;
  ir::Function& out_;
  ir::Builder builder_;
  std::vector<ValueId> stack_;
  std::vector<ValueId> locals_;
  std::vector<Frame> frames_;
  uint32_t next_block_ = 0;  // For sets_.
  uint32_t dead_depth_ = 0;  // Blocks opened since the code stopped being reachable.
  bool is_reachable_ = true;
};

ValueId Lowering::Pop() {
  HPVMD_CHECK(stack_.size() > frames_.back().height);  // Validated, so the stack holds it.
  const ValueId value = stack_.back();
  stack_.pop_back();
  return value;
}

std::vector<ValueId> Lowering::PopMany(size_t count) {
  HPVMD_CHECK(stack_.size() - frames_.back().height >= count);
  std::vector<ValueId> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return values;
}

void Lowering::Begin() {
  const auto params = builder_.BeginBody();
  locals_.assign(params.begin(), params.end());
  std::array<ValueId, 4> zeros;  // One constant a type.
  for (const LocalRun& run : source_.locals) {
    ValueId& zero = zeros[static_cast<size_t>(run.type)];
    if (!zero.valid() && run.count > 0) {
      zero = builder_.Const(run.type, 0);
    }
    locals_.insert(locals_.end(), run.count, zero);
  }
  Frame frame;
  frame.type = &module_.type_of(source_);
  frames_.push_back(std::move(frame));
}

bool Lowering::Run() {
  Begin();
  for (const Instr& instr : source_.code) {
    is_reachable_ ? Lower(instr) : Skip(instr);
    if (out_.values.size() + out_.operands.size() > context_.values_left) {
      return false;
    }
  }
  HPVMD_CHECK(frames_.empty());
  context_.values_left -= out_.values.size() + out_.operands.size();
  return true;
}

void Lowering::Lower(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::kPlain:
      return Plain(instr);
    case InstrKind::kLocalGet:
      return Push(locals_[instr.imm]);
    case InstrKind::kLocalSet:
      locals_[instr.imm] = Pop();
      return;
    case InstrKind::kLocalTee:
      locals_[instr.imm] = stack_.back();
      return;
    case InstrKind::kGlobalGet:
    case InstrKind::kGlobalSet:
      return GlobalAccess(instr);
    case InstrKind::kBlock:
    case InstrKind::kLoop:
    case InstrKind::kIf:
      return OpenBlock(instr);
    case InstrKind::kElse:
      return Else();
    case InstrKind::kEnd:
      return End(instr);
    case InstrKind::kBr:
      return Branch(static_cast<uint32_t>(instr.imm), instr.source);
    case InstrKind::kBrIf:
      return BranchIf(instr);
    case InstrKind::kBrTable:
      return BranchTable(instr);
    case InstrKind::kReturn:
      return Return(instr.source);
    case InstrKind::kCall:
      return Call(instr);
    case InstrKind::kCallIndirect:
      return CallIndirect(instr);
    case InstrKind::kDrop:
      Pop();
      return;
    case InstrKind::kSelect:
      return Select();
    case InstrKind::kUnreachable:
      builder_.Trap(ir::TrapCode::kUnreachable, instr.source);
      is_reachable_ = false;
      return;
    case InstrKind::kNop:
      return;
  }
}

// Follows the nesting until the end or else of the innermost open frame.
void Lowering::Skip(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::kBlock:
    case InstrKind::kLoop:
    case InstrKind::kIf:
      ++dead_depth_;
      ++next_block_;
      return;
    case InstrKind::kElse:
      if (dead_depth_ == 0) {
        Else();
      }
      return;
    case InstrKind::kEnd:
      if (dead_depth_ == 0) {
        End(instr);
      } else {
        --dead_depth_;
      }
      return;
    default:
      return;
  }
}

void Lowering::Plain(const Instr& instr) {
  const std::vector<ValueId> operands = PopMany(instr.operands);
  ir::Op op{.code = instr.opcode};
  op.type = instr.type;
  op.width = instr.width;
  op.sign = instr.sign && instr.width < ir::Bytes(instr.type);
  op.imm = instr.imm;
  if ((ir::Info(op.code).effects & ir::kTraps) != 0) {
    op.source = instr.source;
  }
  Type result = instr.result;
  if (op.code == Opcode::kMemorySize || op.code == Opcode::kMemoryGrow) {
    result = module_.address_type();
  }
  const std::array results{result};
  const OpId id = builder_.Append(op, operands, std::span(results).first(instr.has_result ? 1 : 0));
  if (instr.has_result) {
    Push(out_.op(id).first_result);
  }
}

void Lowering::GlobalAccess(const Instr& instr) {
  const bool is_get = instr.kind == InstrKind::kGlobalGet;
  ir::Op op{.code = is_get ? Opcode::kGlobalGet : Opcode::kGlobalSet};
  op.type = module_.globals[instr.imm].type;
  op.imm = instr.imm;
  if (is_get) {
    Push(builder_.Append1(op, {}, op.type));
  } else {
    builder_.Append(op, std::array{Pop()}, {});
  }
}

void Lowering::Call(const Instr& instr) {
  const Function& callee = module_.functions[instr.imm];
  const ir::FunctionType& type = module_.type_of(callee);
  const std::vector<ValueId> operands = PopMany(type.params.size());
  if (callee.import) {
    const ValueId result = EmitImport(*FindImport(callee.import->name), type, operands, instr.source, builder_);
    if (!type.results.empty()) {
      Push(result);
    }
    return;
  }
  ir::Op op{.code = Opcode::kCall};
  op.imm = context_.ids[instr.imm].index;
  op.source = instr.source;
  PushAll(builder_.Results(builder_.Append(op, operands, type.results)));
}

void Lowering::CallIndirect(const Instr& instr) {
  const ir::FunctionType& type = module_.signatures[instr.imm];
  const ValueId index = Pop();
  std::vector<ValueId> operands = PopMany(type.params.size());
  operands.insert(operands.begin(), index);
  ir::Op op{.code = Opcode::kCallIndirect};
  op.imm = context_.indirect_types[instr.imm];
  op.source = instr.source;
  PushAll(builder_.Results(builder_.Append(op, operands, type.results)));
}

void Lowering::Select() {
  const std::vector<ValueId> values = PopMany(3);
  ir::Op op{.code = Opcode::kSelect};
  op.type = out_.type_of(values[0]);
  Push(builder_.Append1(op, std::array{values[2], values[0], values[1]}, op.type));
}

void Lowering::OpenBlock(const Instr& instr) {
  Frame frame;
  frame.kind = instr.kind;
  frame.type = &module_.signatures[instr.imm];
  frame.locals = sets_.In(next_block_++);
  std::vector<Type> results = frame.type->results;
  for (uint32_t local : frame.locals) {
    results.push_back(out_.type_of(locals_[local]));
  }
  switch (instr.kind) {
    case InstrKind::kLoop:
      OpenLoop(instr, frame, results);
      break;
    case InstrKind::kIf:
      OpenIf(instr, frame, results);
      break;
    default:
      frame.op = builder_.BeginBlock(Opcode::kBlock, {}, results, instr.source);
      frame.height = stack_.size() - frame.type->params.size();
  }
  frames_.push_back(std::move(frame));
}

void Lowering::OpenLoop(const Instr& instr, Frame& frame, std::span<const Type> results) {
  std::vector<ValueId> arguments = PopMany(frame.type->params.size());
  frame.height = stack_.size();
  for (uint32_t local : frame.locals) {
    arguments.push_back(locals_[local]);
  }
  frame.op = builder_.BeginBlock(Opcode::kLoop, arguments, results, instr.source);
  const std::vector<ValueId> params = builder_.Params(frame.op);
  const size_t count = frame.type->params.size();
  PushAll(std::span(params).first(count));
  Restore(frame, std::span(params).subspan(count));
}

void Lowering::OpenIf(const Instr& instr, Frame& frame, std::span<const Type> results) {
  const ValueId condition = Pop();
  frame.op = builder_.BeginIf(condition, results, instr.source);
  frame.height = stack_.size() - frame.type->params.size();
  frame.saved.assign(stack_.begin() + static_cast<ptrdiff_t>(frame.height), stack_.end());
  for (uint32_t local : frame.locals) {
    frame.saved.push_back(locals_[local]);
  }
}

void Lowering::Restore(const Frame& frame, std::span<const ValueId> values) {
  for (size_t i = 0; i < frame.locals.size(); ++i) {
    locals_[frame.locals[i]] = values[i];
  }
}

void Lowering::FallThrough() {
  if (is_reachable_) {
    Frame& frame = frames_.back();
    const size_t count = frame.type->results.size();
    std::vector<ValueId> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    for (uint32_t local : frame.locals) {
      values.push_back(locals_[local]);
    }
    builder_.Leave(frame.op, values);
    frame.is_left = true;
  }
}

void Lowering::Else() {
  FallThrough();
  builder_.Else();
  Frame& frame = frames_.back();
  const size_t count = frame.type->params.size();
  stack_.resize(frame.height);
  PushAll(std::span(frame.saved).first(count));
  Restore(frame, std::span(frame.saved).subspan(count));
  frame.has_else = true;
  is_reachable_ = true;
}

void Lowering::End(const Instr& instr) {
  if (frames_.size() == 1) {
    if (is_reachable_) {
      Return(instr.source);
    }
    frames_.pop_back();
    return;
  }
  if (frames_.back().kind == InstrKind::kIf && !frames_.back().has_else) {
    Else();  // An empty one: the parameters are the results.
  }
  FallThrough();
  builder_.End();
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  stack_.resize(frame.height);
  is_reachable_ = frame.is_left;
  if (!frame.is_left) {
    builder_.Trap(ir::TrapCode::kUnreachable, instr.source);  // The region must end, though nothing gets here.
    return;
  }
  const std::vector<ValueId> results = builder_.Results(frame.op);
  const size_t count = frame.type->results.size();
  PushAll(std::span(results).first(count));
  Restore(frame, std::span(results).subspan(count));
}

std::vector<ValueId> Lowering::BranchValues(const Frame& frame) const {
  const bool is_loop = frame.kind == InstrKind::kLoop;
  const size_t count = is_loop ? frame.type->params.size() : frame.type->results.size();
  HPVMD_CHECK(stack_.size() - frames_.back().height >= count);
  std::vector<ValueId> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  for (uint32_t local : frame.locals) {
    values.push_back(locals_[local]);
  }
  return values;
}

void Lowering::Return(uint32_t source) {
  builder_.Return(BranchValues(frames_.front()), source);
  is_reachable_ = false;
}

void Lowering::Branch(uint32_t depth, uint32_t source) {
  Frame& frame = FrameAt(depth);
  if (!frame.op.valid()) {
    return Return(source);
  }
  if (frame.kind == InstrKind::kLoop) {
    builder_.Continue(frame.op, BranchValues(frame), source);
  } else {
    builder_.Leave(frame.op, BranchValues(frame), source);
    frame.is_left = true;
  }
  is_reachable_ = false;
}

void Lowering::BranchIf(const Instr& instr) {
  const OpId branch = builder_.BeginIf(Pop(), {}, instr.source);
  Branch(static_cast<uint32_t>(instr.imm), instr.source);
  builder_.Else();
  builder_.Leave(branch, {});
  builder_.End();
  is_reachable_ = true;
}

// A leave_table gives every target the same values, but each frame carries its own locals. Frames that take no values
// are targets themselves; every other one gets an empty block around the table, after which an ordinary branch follows.
void Lowering::BranchTable(const Instr& instr) {
  const ValueId index = Pop();
  const auto depths = std::span(source_.br_depths).subspan(static_cast<uint32_t>(instr.imm), instr.imm >> 32);
  std::vector<uint32_t> distinct(depths.begin(), depths.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() == 1) {
    return Branch(distinct[0], instr.source);
  }
  std::vector<ir::Target> target_of(distinct.size());  // By place in `distinct`.
  std::vector<size_t> indirect;
  for (size_t i = 0; i < distinct.size(); ++i) {
    Frame& frame = FrameAt(distinct[i]);
    if (!frame.op.valid() || !BranchValues(frame).empty()) {
      indirect.push_back(i);
      continue;
    }
    target_of[i] = {frame.op, frame.kind == InstrKind::kLoop};
    frame.is_left |= frame.kind != InstrKind::kLoop;
  }
  for (size_t i : indirect) {
    target_of[i] = {builder_.BeginBlock(Opcode::kBlock, {}, {}, instr.source), false};
  }
  std::vector<ir::Target> targets;
  for (uint32_t depth : depths) {
    targets.push_back(target_of[std::lower_bound(distinct.begin(), distinct.end(), depth) - distinct.begin()]);
  }
  builder_.LeaveTable(index, targets, {}, instr.source);
  for (auto i = indirect.rbegin(); i != indirect.rend(); ++i) {
    builder_.End();
    Branch(distinct[*i], instr.source);
  }
  is_reachable_ = false;
}

// The body of an import that the table holds.
bool LowerImport(const Function& function, ir::Function& out) {
  ir::Builder builder(out);
  const auto params = builder.BeginBody();
  const ValueId result = EmitImport(*FindImport(function.import->name), out.type, params, 0, builder);
  builder.Return(out.type.results.empty() ? std::span<const ValueId>() : std::span(&result, 1));
  return true;
}

}  // namespace

bool LowerFunction(LowerContext& context, const Function& function, ir::Function& out) {
  if (function.import) {
    return LowerImport(function, out);
  }
  const std::optional<SetLocals> sets = SetLocals::Find(function, context.values_left);
  return sets && Lowering(context, function, *sets, out).Run();
}

}  // namespace hpvm::wasm
