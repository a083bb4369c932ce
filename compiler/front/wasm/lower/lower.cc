// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/lower/lower.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/status.h"
#include "compiler/front/wasm/lower/lowering.h"
#include "compiler/front/wasm/read/imports.h"

namespace hpvm::wasm {

namespace {

// Returns true for imports that are meaningful only while instances run.
bool NeedsLaunch(const Import& import) {
  const ir::Family family = ir::Info(import.opcode).family;
  return family == ir::Family::kQuery || family == ir::Family::kSync || import.opcode == Opcode::kPrint;
}

}  // namespace

ValueId Lowering::Pop() {
  HPVMD_CHECK(stack_.size() > frames_.back().height);  // Validation guarantees that the stack holds the operand.
  return stack_.Pop();
}

std::vector<ValueId> Lowering::PopSlots(size_t count) {
  HPVMD_CHECK(stack_.size() - frames_.back().height >= count);
  const std::span<const ValueId> values = stack_.PopSlots(count);
  return {values.begin(), values.end()};
}

void Lowering::Begin() {
  const auto params = builder_.BeginBody();
  locals_.assign(params.begin(), params.end());
  std::array<ValueId, 4> zeros;  // One constant per type.
  for (const LocalRun& run : source_.locals) {
    const Type type = IrType(run.type);
    ValueId& zero = zeros[static_cast<size_t>(type)];
    if (!zero.valid() && run.count > 0) {
      zero = builder_.Const(type, 0);
    }
    locals_.insert(locals_.end(), size_t{run.count} * Slots(run.type), zero);
  }
  Frame frame;
  frame.signature = source_.signature;
  frame.type = &module_.type_of(source_);
  frames_.push_back(std::move(frame));
}

// Most instructions, except those of locals, become one operation with one value and at most two operands.
void Lowering::Reserve() {
  const auto operations = static_cast<size_t>(std::ranges::count_if(source_.code, [](const Instr& instr) {
    return instr.kind == InstrKind::kPlain || instr.kind >= InstrKind::kBlock;
  }));
  out_.ops.reserve(operations + 1);
  out_.values.reserve(operations + 1);
  out_.operands.reserve(operations + operations / 2);
}

bool Lowering::Run() {
  Reserve();
  Begin();
  for (const Instr& instr : source_.code) {
    is_reachable_ ? Lower(instr) : Skip(instr);
    if (out_.values.size() + out_.operands.size() > context_.values_left) {
      return false;
    }
  }
  HPVMD_CHECK(frames_.empty());
  simd_.Finish();
  context_.values_left -= out_.values.size() + out_.operands.size();
  return true;
}

void Lowering::Lower(const Instr& instr) {
  switch (instr.kind) {
    case InstrKind::kPlain:
      return Plain(instr);
    case InstrKind::kLocalGet:
      return LocalGet(instr);
    case InstrKind::kLocalSet:
      return LocalSet(instr, /*is_tee=*/false);
    case InstrKind::kLocalTee:
      return LocalSet(instr, /*is_tee=*/true);
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
    case InstrKind::kDrop:
      stack_.PopSlots(stack_.TopSlots());
      return;
    case InstrKind::kSelect:
      return Select();
    case InstrKind::kSimd:
      return Simd(instr);
    case InstrKind::kUnreachable:
      builder_.Trap(ir::TrapCode::kUnreachable, instr.source);
      is_reachable_ = false;
      return;
    case InstrKind::kNop:
      return;
    default:
      return LowerState(instr);
  }
}

// Skips unreachable code: tracks the nesting until the end or else of the innermost open frame.
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
  const std::span<const ValueId> operands = stack_.PopSlots(instr.operands);
  ir::Op op{.code = instr.opcode,
            .type = instr.type,
            .width = instr.width,
            .sign = instr.sign && instr.width < ir::Bytes(instr.type),
            .imm = instr.imm};
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

void Lowering::LocalGet(const Instr& instr) {
  const ValueId* const slots = &locals_[instr.imm];
  if (instr.width == 1) {
    return Push(slots[0]);
  }
  stack_.PushV128({slots[0], slots[1], slots[2], slots[3]});
}

void Lowering::LocalSet(const Instr& instr, bool is_tee) {
  const std::span<const ValueId> values = stack_.Top(instr.width);
  std::copy(values.begin(), values.end(), locals_.begin() + static_cast<ptrdiff_t>(instr.imm));
  if (!is_tee) {
    stack_.PopSlots(instr.width);
  }
}

void Lowering::Call(const Instr& instr) {
  const Function& callee = module_.functions[instr.imm];
  const ir::FunctionType& type = module_.type_of(callee);
  std::vector<ValueId> operands = PopSlots(type.params.size());
  if (callee.import && !context_.is_linked) {
    return CallImport(callee, operands, instr);
  }
  ir::Op op{.code = Opcode::kCall, .source = instr.source};
  if (callee.import) {
    op.code = Opcode::kCallRef;
    op.imm = context_.types[callee.signature];
    operands.insert(operands.begin(), code_.Const(context_.layout.references[instr.imm]));
  } else {
    op.imm = context_.ids[instr.imm].index;
  }
  const std::vector<ValueId> results = builder_.Results(builder_.Append(op, operands, type.results));
  stack_.PushAll(results, module_.signature_of(callee).results);
}

void Lowering::CallImport(const Function& callee, std::span<const ValueId> operands, const Instr& instr) {
  const Import& import = *FindImport(callee.import->name);
  if (context_.has_no_launch && NeedsLaunch(import)) {
    builder_.Trap(ir::TrapCode::kHost, instr.source);
    is_reachable_ = false;
    return;
  }
  const ir::FunctionType& type = module_.type_of(callee);
  const ValueId result = EmitImport(*context_.imports, import, type, operands, instr.source, out_, builder_);
  if (!type.results.empty()) {
    Push(result);
  }
}

void Lowering::Select() {
  const ValueId condition = Pop();
  const size_t slots = stack_.TopSlots();
  const std::vector<ValueId> values = PopSlots(2 * slots);
  std::array<ValueId, 4> chosen;
  for (size_t i = 0; i < slots; ++i) {
    ir::Op op{.code = Opcode::kSelect, .type = out_.type_of(values[i])};
    chosen[i] = builder_.Append1(op, std::array{condition, values[i], values[slots + i]}, op.type);
  }
  slots == 1 ? Push(chosen[0]) : stack_.PushV128(chosen);
}

void Lowering::Simd(const Instr& instr) {
  SimdInstr simd;
  simd.opcode = static_cast<uint32_t>(instr.imm & 0xffff);
  simd.source = instr.source;
  simd.lane = static_cast<uint8_t>(instr.imm >> 16);
  const uint64_t at = instr.imm >> 32;
  if (at < source_.simd.size()) {  // Otherwise the instruction has no immediates, and simd.bytes is not read.
    simd.offset = source_.simd[at].low;
    for (size_t i = 0; i < simd.bytes.size(); ++i) {
      simd.bytes[i] = static_cast<uint8_t>((i < 8 ? source_.simd[at].low : source_.simd[at].high) >> 8 * (i % 8));
    }
  }
  simd_.Lower(simd, stack_);
}

void Lowering::OpenBlock(const Instr& instr) {
  Frame frame;
  frame.kind = instr.kind;
  frame.signature = static_cast<uint32_t>(instr.imm);
  frame.type = &module_.types[instr.imm];
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
  std::vector<ValueId> arguments = PopSlots(frame.type->params.size());
  frame.height = stack_.size();
  for (uint32_t local : frame.locals) {
    arguments.push_back(locals_[local]);
  }
  frame.op = builder_.BeginBlock(Opcode::kLoop, arguments, results, instr.source);
  const std::vector<ValueId> params = builder_.Params(frame.op);
  const size_t count = frame.type->params.size();
  stack_.PushAll(params, module_.signatures[frame.signature].params);
  Restore(frame, std::span(params).subspan(count));
}

void Lowering::OpenIf(const Instr& instr, Frame& frame, std::span<const Type> results) {
  const ValueId condition = Pop();
  frame.op = builder_.BeginIf(condition, results, instr.source);
  frame.height = stack_.size() - frame.type->params.size();
  const std::span<const ValueId> params = stack_.Top(frame.type->params.size());
  frame.saved.assign(params.begin(), params.end());
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
    builder_.Leave(frame.op, Carried(frame, frame.type->results.size()));
    frame.is_left = true;
  }
}

void Lowering::Else() {
  FallThrough();
  builder_.Else();
  Frame& frame = frames_.back();
  const size_t count = frame.type->params.size();
  stack_.Resize(frame.height);
  stack_.PushAll(frame.saved, module_.signatures[frame.signature].params);
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
    Else();  // Adds an empty else, whose results are the parameters.
  }
  FallThrough();
  builder_.End();
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  stack_.Resize(frame.height);
  is_reachable_ = frame.is_left;
  if (!frame.is_left) {
    builder_.Trap(ir::TrapCode::kUnreachable, instr.source);  // The region must end, although it is unreachable.
    return;
  }
  const std::vector<ValueId> results = builder_.Results(frame.op);
  const size_t count = frame.type->results.size();
  stack_.PushAll(results, module_.signatures[frame.signature].results);
  Restore(frame, std::span(results).subspan(count));
}

std::span<const ValueId> Lowering::BranchValues(const Frame& frame) {
  const bool is_loop = frame.kind == InstrKind::kLoop;
  const size_t count = is_loop ? frame.type->params.size() : frame.type->results.size();
  HPVMD_CHECK(stack_.size() - frames_.back().height >= count);
  return Carried(frame, count);
}

std::span<const ValueId> Lowering::Carried(const Frame& frame, size_t count) {
  const std::span<const ValueId> top = stack_.Top(count);
  carried_.assign(top.begin(), top.end());
  for (uint32_t local : frame.locals) {
    carried_.push_back(locals_[local]);
  }
  return carried_;
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

// A br_table gives every target the same values, but each frame carries its own locals. Frames without values are
// targets themselves; every other frame gets an empty block around the table, followed by an ordinary branch.
void Lowering::BranchTable(const Instr& instr) {
  const ValueId index = Pop();
  const auto depths = std::span(source_.br_depths).subspan(static_cast<uint32_t>(instr.imm), instr.imm >> 32);
  std::vector<uint32_t> distinct(depths.begin(), depths.end());
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() == 1) {
    return Branch(distinct[0], instr.source);
  }
  std::vector<ir::Target> target_of(distinct.size());  // Parallel to `distinct`.
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
    targets.push_back(target_of[std::ranges::lower_bound(distinct, depth) - distinct.begin()]);
  }
  builder_.BrTable(index, targets, {}, instr.source);
  for (auto i = indirect.rbegin(); i != indirect.rend(); ++i) {
    builder_.End();
    Branch(distinct[*i], instr.source);
  }
  is_reachable_ = false;
}

namespace {

// Lowers the body of an import that references name.
bool LowerImport(const LowerContext& context, const Function& function, ir::Function& out) {
  ir::Builder builder(out);
  const auto params = builder.BeginBody();
  const Import& import = *FindImport(function.import->name);
  if (context.has_no_launch && NeedsLaunch(import)) {
    builder.Trap(ir::TrapCode::kHost);
    return true;
  }
  const ValueId result = EmitImport(*context.imports, import, out.type, params, 0, out, builder);
  builder.Return(out.type.results.empty() ? std::span<const ValueId>() : std::span(&result, 1));
  return true;
}

}  // namespace

bool LowerFunction(LowerContext& context, const Function& function, ir::Function& out) {
  if (function.import) {
    return LowerImport(context, function, out);
  }
  const std::optional<SetLocals> sets = SetLocals::Find(function, context.values_left);
  return sets && Lowering(context, function, *sets, out).Run();
}

}  // namespace hpvm::wasm
