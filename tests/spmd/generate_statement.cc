// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/spmd/generator.h"

namespace hpvm::spmd {
namespace {

constexpr Type kI32 = Type::kI32;
constexpr uint32_t kDepthMax = 5;
constexpr uint32_t kLoopsMax = 3;

}  // namespace

std::vector<Type> Generator::ResultTypes() {
  std::vector<Type> types;
  for (uint32_t i = random_.Below(3); i > 0; --i) {
    types.push_back(AnyType());
  }
  return types;
}

std::vector<ValueId> Generator::Values(std::span<const Type> types) {
  std::vector<ValueId> values;
  for (Type type : types) {
    values.push_back(Value(type, random_.Below(2)));
  }
  return values;
}

void Generator::LeaveTo(size_t label) {
  const Label& to = body_->labels[label];
  const std::vector<ValueId> values = Values(to.results);
  b().Leave(to.op, values, ++source_);
}

void Generator::ContinueTo(size_t label) {
  const Label& to = body_->labels[label];
  std::vector<ValueId> values;
  for (const Carried& carried : to.carried) {
    values.push_back(carried.next.valid() ? carried.next : Value(carried.type, 1));
  }
  b().Continue(to.op, values, ++source_);
}

void Generator::ReturnNow() {
  const std::vector<Type> types = body_->function.type.results;
  b().Return(Values(types), ++source_);
}

bool Generator::EndElsewhere() {
  std::vector<uint32_t> jumps;
  for (uint32_t i = 0; i < body_->labels.size(); ++i) {
    jumps.push_back(i * 2);
    if (body_->labels[i].may_continue) {
      jumps.push_back(i * 2 + 1);
    }
  }
  // A barrier may follow.
  const bool may_return = !traits_.has_groups || body_->helper != nullptr;
  if (may_return && (random_.Percent(8) || (jumps.empty() && random_.Percent(60)))) {
    ReturnNow();
    return true;
  }
  if (may_return && random_.Percent(traits_.risk / 4)) {
    b().Trap(random_.Percent(50) ? ir::TrapCode::kUnreachable : ir::TrapCode::kAssert, ++source_);
    return true;
  }
  if (jumps.empty()) {
    return false;
  }
  const uint32_t jump = random_.Pick(jumps);
  if (jump % 2 == 0) {
    LeaveTo(jump / 2);
  } else {
    ContinueTo(jump / 2);
  }
  return true;
}

void Generator::Statements(uint32_t count) {
  for (; count > 0 && budget_ > 0; --count) {
    --budget_;
    Statement();
  }
}

void Generator::Statement() {
  if (frame_bytes_ != 0 && body_->helper == nullptr && random_.Percent(30)) {
    return StackStatement();
  }
  const bool may_nest = depth_ < kDepthMax;
  const uint32_t kind = random_.Below(may_nest ? 100 : 60);
  if (kind < 16) {
    const Type type = AnyType();
    Keep(Value(type, random_.Between(1, 3)), type);
  } else if (kind < 30) {
    LoadInput();
  } else if (kind < 42) {
    StoreOwn();
  } else if (kind < 46) {
    LoadOwn();
  } else if (kind < 49) {
    UpdateShared();
  } else if (kind < 51) {
    UpdateOwn();
  } else if (kind < 53) {
    traits_.is_refused && body_->helper == nullptr ? StoreModule() : LoadTable();
  } else if (kind < 55) {
    CallStatement();
  } else if (kind < 57) {
    WalkInput();
  } else if (kind < 60) {
    JumpStatement();
  } else if (kind < 75) {
    IfStatement();
  } else if (kind < 80) {
    GuardedStatement();
  } else if (kind < 87) {
    BlockStatement();
  } else if (kind < 96) {
    LoopStatement();
  } else {
    TableStatement();
  }
}

void Generator::IfStatement() {
  const std::vector<Type> types = ResultTypes();
  const ValueId condition = Condition();
  const OpId choice = b().BeginIf(condition, types, ++source_);
  body_->labels.push_back({choice, types, false, {}});
  ++depth_;
  for (int arm = 0; arm < 2; ++arm) {
    InRegion([&] {
      Statements(random_.Percent(arm == 0 ? 90 : 55) ? random_.Between(1, 4) : 0);
      if (!(random_.Percent(18) && EndElsewhere())) {
        LeaveTo(body_->labels.size() - 1);
      }
    });
    arm == 0 ? b().Else() : b().End();
  }
  --depth_;
  body_->labels.pop_back();
  const std::vector<ValueId> results = b().Results(choice);
  for (size_t i = 0; i < results.size(); ++i) {
    Keep(results[i], types[i]);
  }
}

// if (d != 0) n / d, if (i < count) in[i]: inactive lanes must not trap.
void Generator::GuardedStatement() {
  const std::optional<uint32_t> picked = PickBuffer(BufferInfo::Role::kInput);
  const bool is_division = !picked || random_.Percent(40);
  const ValueId subject = Value(kI32, 1);
  ValueId condition = subject;
  uint32_t count = 0;
  if (!is_division) {
    count = static_cast<uint32_t>(buffers_[*picked].count);
    condition = Compare(Opcode::kLtU, kI32, subject, Int(kI32, count));
  }
  const Type type = is_division || random_.Percent(50) ? kI32 : Type::kF32;
  const OpId choice = b().BeginIf(condition, std::array{type}, ++source_);
  ValueId result;
  InRegion([&] {
    if (is_division) {
      static constexpr Opcode kDivisions[] = {Opcode::kDivU, Opcode::kRemS, Opcode::kRemU};
      const Opcode code = kDivisions[random_.Below(3)];
      result = Binary(code, kI32, Value(kI32, 1), subject);
    } else {
      ValueId address;
      const uint32_t width = buffers_[*picked].width;
      // An element of 8 bytes has a word of 4 at its beginning.
      Op op = Access(Opcode::kLoad, type, *picked, width, subject, &address);
      op.width = 4;
      result = Emit1(op, {address}, type);
    }
    b().Leave(choice, std::array{result});
  });
  b().Else();
  InRegion([&] { b().Leave(choice, std::array{Value(type, 1)}); });
  b().End();
  Keep(b().Results(choice)[0], type);
}

void Generator::BlockStatement() {
  const std::vector<Type> types = ResultTypes();
  const std::vector<Type> params = ResultTypes();
  const OpId block = b().BeginBlock(Opcode::kBlock, Values(params), types, ++source_);
  body_->labels.push_back({block, types, false, {}});
  ++depth_;
  InRegion([&] {
    const std::vector<ValueId> values = b().Params(block);
    for (size_t i = 0; i < values.size(); ++i) {
      Keep(values[i], params[i]);
    }
    for (uint32_t i = random_.Between(1, 2); i > 0; --i) {
      Statements(random_.Between(1, 2));
      JumpStatement();
    }
    Statements(random_.Below(3));
    LeaveTo(body_->labels.size() - 1);
  });
  b().End();
  --depth_;
  body_->labels.pop_back();
  const std::vector<ValueId> results = b().Results(block);
  for (size_t i = 0; i < results.size(); ++i) {
    Keep(results[i], types[i]);
  }
}

// At most 7 trips.
ValueId Generator::LoopLimit(bool* is_uniform) {
  *is_uniform = random_.Percent(50);
  if (*is_uniform && random_.Percent(50)) {
    return Int(kI32, random_.Below(body_->loops > 0 ? 4 : 7));
  }
  return Masked(*is_uniform ? PickUniform(kI32) : Pick(kI32), body_->loops > 0 ? 3 : 7);
}

void Generator::LoopStatement() {
  if (body_->loops >= kLoopsMax) {
    return;
  }
  const std::vector<Type> types = ResultTypes();
  const std::vector<Type> more = ResultTypes();
  bool is_uniform = false;
  const bool counts_up = random_.Percent(50), tests_last = random_.Percent(25);
  const ValueId limit = LoopLimit(&is_uniform);
  std::vector<ValueId> arguments{counts_up ? Int(kI32, 0) : limit};
  for (ValueId value : Values(more)) {
    arguments.push_back(value);
  }
  const OpId loop = b().BeginBlock(Opcode::kLoop, arguments, types, ++source_);
  ++depth_;
  ++body_->loops;
  InRegion([&] {
    const std::vector<ValueId> params = b().Params(loop);
    Keep(params[0], kI32, is_uniform);
    for (size_t i = 0; i < more.size(); ++i) {
      Keep(params[i + 1], more[i]);
    }
    const ValueId next = Binary(counts_up ? Opcode::kAdd : Opcode::kSub, kI32, params[0], Int(kI32, 1));
    Label label{loop, types, !tests_last, {{kI32, next}}};
    for (Type type : more) {
      label.carried.push_back({type, {}});
    }
    body_->labels.push_back(label);
    const size_t self = body_->labels.size() - 1;
    const auto test = [&](ValueId counter) {
      return counts_up ? Compare(Opcode::kGeS, kI32, counter, limit)
                       : Compare(Opcode::kLeS, kI32, counter, Int(kI32, 0));
    };
    if (!tests_last) {
      const OpId choice = b().BeginIf(test(params[0]), {}, ++source_);
      LeaveTo(self);
      b().Else();
      b().Leave(choice, {});
      b().End();
    }
    Statements(random_.Between(1, 4));
    if (tests_last) {
      const OpId choice = b().BeginIf(test(next), {}, ++source_);
      InRegion([&] { LeaveTo(self); });
      b().Else();
      b().Leave(choice, {});
      b().End();
    }
    ContinueTo(self);
    body_->labels.pop_back();
  });
  b().End();
  --depth_;
  --body_->loops;
  const std::vector<ValueId> results = b().Results(loop);
  for (size_t i = 0; i < results.size(); ++i) {
    Keep(results[i], types[i]);
  }
}

// A switch: nested blocks, the innermost of which ends in a branch table; a case follows each.
void Generator::TableStatement() {
  const std::vector<Type> types = ResultTypes();
  const uint32_t count = random_.Between(2, 4);
  std::vector<OpId> blocks;
  for (uint32_t i = 0; i < count; ++i) {
    blocks.push_back(b().BeginBlock(Opcode::kBlock, {}, types, ++source_));
    body_->labels.push_back({blocks.back(), types, false, {}});
  }
  depth_ += 2;
  InRegion([&] {
    Statements(random_.Below(2));
    ValueId index = random_.Percent(20) ? PickUniform(kI32) : Pick(kI32);
    if (random_.Percent(70)) {
      index = Masked(index, 3);
    }
    const std::vector<ValueId> values = Values(types);
    std::vector<ir::Target> targets;
    for (uint32_t i = random_.Between(1, 5); i > 0; --i) {
      targets.push_back({random_.Pick(blocks), false});
    }
    b().BrTable(index, targets, values, ++source_);
  });
  b().End();
  for (uint32_t i = count; i > 1; --i) {
    body_->labels.pop_back();
    InRegion([&] {
      const std::vector<ValueId> results = b().Results(blocks[i - 1]);
      for (size_t k = 0; k < results.size(); ++k) {
        Keep(results[k], types[k]);
      }
      Statements(random_.Between(1, 2));
      // To the end of the switch, or into the next case.
      LeaveTo(random_.Percent(50) ? body_->labels.size() - (i - 1) : body_->labels.size() - 1);
    });
    b().End();
  }
  body_->labels.pop_back();
  depth_ -= 2;
  const std::vector<ValueId> results = b().Results(blocks[0]);
  for (size_t k = 0; k < results.size(); ++k) {
    Keep(results[k], types[k]);
  }
}

void Generator::JumpStatement() {
  const ValueId condition = Condition();
  const OpId choice = b().BeginIf(condition, {}, ++source_);
  const bool is_taken_first = random_.Percent(75);
  for (int arm = 0; arm < 2; ++arm) {
    InRegion([&] {
      if (arm != (is_taken_first ? 0 : 1) || !EndElsewhere()) {
        b().Leave(choice, {});
      }
    });
    arm == 0 ? b().Else() : b().End();
  }
}

void Generator::CallStatement() {
  if (helpers_.empty() || body_->helper != nullptr || body_->calls_left == 0) {
    return;
  }
  --body_->calls_left;
  const Helper& helper = random_.Pick(helpers_);
  std::vector<ValueId> arguments;
  for (size_t i = 0; i < helper.type.params.size(); ++i) {
    if (helper.input && i + 1 == helper.type.params.size()) {
      arguments.push_back(body_->addresses[*helper.input]);
    } else if (helper.is_recursive && i == 0) {
      arguments.push_back(Masked(Pick(kI32), 3));
    } else {
      arguments.push_back(Value(helper.type.params[i], 1));
    }
  }
  Op call{.code = Opcode::kCall};
  call.imm = helper.index;
  const OpId made = Emit(call, arguments, helper.type.results);
  const std::vector<ValueId> results = b().Results(made);
  for (size_t i = 0; i < results.size(); ++i) {
    Keep(results[i], helper.type.results[i]);
  }
}

}  // namespace hpvm::spmd
