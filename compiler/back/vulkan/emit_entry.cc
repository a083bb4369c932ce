// SPDX-License-Identifier: Apache-2.0
// A variant's frame: its own memory, the entry point around the kernel, what instances ask of the launch.
#include <algorithm>
#include <cstring>

#include "compiler/back/vulkan/emitter.h"
#include "compiler/ir/launch.h"

namespace hpvm::vulkan {

using ir::Opcode;
using ir::Type;
using Kind = GpuArgument::Kind;

namespace {

constexpr uint32_t kRecordWords = sizeof(GpuTrapRecord) / 4;
constexpr size_t kInitializerWordsMax = 64;

}  // namespace

KernelEmitter::KernelEmitter(ModuleEmitter& m, const ir::Module& module, const gpu::GpuPlan& plan,
                             const VariantOptions& options)
    : m_(m),
      w(m.w),
      c(m.c),
      module_(module),
      f_(module.function(module.entry)),
      plan_(plan),
      options_(options),
      values_(f_.values.size(), 0),
      conditions_(f_.values.size(), 0) {}

void KernelEmitter::Refuse(const std::string& reason) {
  if (status_.ok()) {
    status_ = Unimplemented(reason);
  }
}

Status KernelEmitter::Emit(const std::string& entry, bool* can_trap) {
  PlanControl();
  PlanMeetings();
  DeclareMemory();
  const SpvId kernel = w.NewId();
  const SpvId type = w.FunctionType(w.Void(), {});
  const uint32_t function_words = 5u << spv::WordCountShift;
  kernel_.head = {function_words | spv::OpFunction,         w.Void(), kernel, spv::FunctionControlMaskNone, type,
                  2u << spv::WordCountShift | spv::OpLabel, w.NewId()};
  w.Name(kernel, "kernel");
  w.OpenFunction(&kernel_);
  const ir::Region& body = f_.region(f_.body);
  std::vector<bool> is_used(f_.values.size(), false);
  for (const ir::ValueId operand : f_.operands) {
    is_used[operand.index] = true;
  }
  for (uint32_t k = 0; k < body.param_count; ++k) {
    const ir::ValueId value(body.first_param.index + k);
    values_[value.index] = is_used[value.index] ? ParamValue(k) : 0;
  }
  hoists_ = true;
  if (EmitRegion(f_.body)) {
    w.Do(spv::OpReturn, {});
  }
  hoists_ = false;
  // What was hoisted may use the parameters' values, and stands before everything else.
  kernel_.body.insert(kernel_.body.begin(), prologue_.body.begin(), prologue_.body.end());
  w.CloseFunction();
  EmitWrapper(entry, kernel);
  *can_trap = can_trap_;
  return status_;
}

namespace {

std::vector<uint32_t> WordsOf(const gpu::OwnMemory& memory) {
  std::vector<uint32_t> words((memory.end - memory.begin + 3) / 4, 0);
  std::memcpy(words.data(), memory.bytes.data(), std::min(memory.bytes.size(), words.size() * 4));
  return words;
}

}  // namespace

// With its content as initializer if it is never written or small; else EmitOwnStart fills it, because drivers make one
// store an element of an initializer.
SpvId KernelEmitter::OwnArray(const gpu::OwnMemory& memory) {
  const std::vector<uint32_t> words = WordsOf(memory);
  const SpvId type = w.Array(w.Int(32), static_cast<uint32_t>(words.size()));
  if (memory.is_written && (memory.is_scratch || words.size() > kInitializerWordsMax)) {
    return w.GlobalVariable(spv::StorageClassPrivate, type);
  }
  std::vector<SpvId> parts;
  for (const uint32_t word : words) {
    parts.push_back(w.U32(word));
  }
  const bool is_zero = std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; });
  return w.GlobalVariable(spv::StorageClassPrivate, type, is_zero ? w.Null(type) : w.Composite(type, parts));
}

// Zeroes a written array and stores what is not zero of its initial content.
void KernelEmitter::EmitOwnStart(const gpu::OwnMemory& memory, const WordArray& array) {
  const std::vector<uint32_t> words = WordsOf(memory);
  if (!memory.is_written || memory.is_scratch || words.size() <= kInitializerWordsMax) {
    return;
  }
  Use(array.variable);
  const SpvId pointer = w.Pointer(spv::StorageClassPrivate, w.Int(32));
  const SpvId count = c.K(static_cast<uint32_t>(words.size()));
  const auto at = [&](SpvId variable, SpvId index) { return w.Op(spv::OpAccessChain, pointer, {variable, index}); };
  const auto filled = static_cast<uint32_t>(words.size() - std::count(words.begin(), words.end(), 0u));
  if (filled > kInitializerWordsMax) {
    gpu::OwnMemory constant = memory;
    constant.is_written = false;
    const SpvId from = OwnArray(constant);
    Use(from);
    c.For(c.K(0), count, c.K(1), [&](SpvId i) {
      const SpvId word = c.Load(c.U32(), at(from, i));
      c.Store(at(array.variable, i), word);
    });
    return;
  }
  c.For(c.K(0), count, c.K(1), [&](SpvId i) { c.Store(at(array.variable, i), c.K(0)); });
  for (uint32_t i = 0; i < words.size(); ++i) {
    if (words[i] != 0) {
      c.Store(at(array.variable, c.K(i)), c.K(words[i]));
    }
  }
}

void KernelEmitter::DeclareMemory() {
  // Parts are whole multiples of 8 bytes, which the state need not be.
  const auto declare = [&](const std::vector<gpu::OwnMemory>& parts, uint64_t end, std::vector<WordArray>& arrays) {
    for (const gpu::OwnMemory& part : parts) {
      arrays.push_back(
          {OwnArray(part), spv::StorageClassPrivate, part.begin, std::min(part.end, end), part.is_written});
    }
  };
  declare(plan_.module_memory, module_.memory_bytes, module_memory_);
  declare(plan_.state, module_.state_bytes, state_);
  if (plan_.local_bytes > 0) {
    const auto words = static_cast<uint32_t>((plan_.local_bytes + 3) / 4);
    const SpvId variable = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(w.Int(32), words));
    group_ = WordArray{variable, spv::StorageClassWorkgroup, 0, plan_.local_bytes, true};
  }
  if (cuts_loops_ && std::find(is_continued_.begin(), is_continued_.end(), true) != is_continued_.end()) {
    left_loops_ = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(w.Int(32), m_.target.group_size_max));
  }
  const SpvId zero = w.U32(0);
  trap_code_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  trap_source_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  trap_function_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  trap_address_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  if (options_.coarse != nullptr) {
    for (SpvId& variable : trap_place_) {
      variable = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
    }
  }
  if (postpones_) {
    trap_flags_ = w.GlobalVariable(spv::StorageClassWorkgroup, w.Array(w.Int(32), 2));
    parity_ = w.GlobalVariable(spv::StorageClassPrivate, w.Int(32), zero);
  }
}

SpvId KernelEmitter::BufferView(uint32_t param, View view) {
  const SpvId variable = m_.Buffer(param, view);
  Use(variable);
  return variable;
}

SpvId KernelEmitter::Argument(Kind kind, uint32_t index, uint8_t bytes) {
  const SpvId pointer = m_.ArgumentPointer(kind, index, bytes);
  Use(m_.arguments_variable());
  return c.Load(bytes == 4 ? c.U32() : w.Vector(w.Int(32), 2), pointer);
}

SpvId KernelEmitter::BuiltInAt(spv::BuiltIn which, uint32_t d) {
  const SpvId variable = m_.BuiltIn(which);
  Use(variable);
  const SpvId pointer = w.Pointer(spv::StorageClassInput, w.Int(32));
  return c.Load(c.U32(), w.Op(spv::OpAccessChain, pointer, {variable, w.U32(d)}));
}

SpvId KernelEmitter::ParamValue(uint32_t k) {
  const ir::KernelParam& param = module_.params[k];
  if (param.is_buffer && !plan_.uses_bases) {
    const uint64_t base = gpu::StandInBase(module_);
    return K(param.type, base);
  }
  const auto kind = param.is_buffer ? Kind::kBufferBase : Kind::kScalar;
  const SpvId raw = Argument(kind, k, static_cast<uint8_t>(ir::Bytes(param.type)));
  return param.type == Type::kI32 ? raw : c.Bits(m_.TypeOf(param.type), raw);
}

SpvId KernelEmitter::ParamBase(uint32_t k) {
  if (!module_.is_memory64) {
    return Argument32(Kind::kBufferBase, k);
  }
  return w.Op(spv::OpCompositeExtract, c.U32(), {Argument(Kind::kBufferBase, k, 8), 0});
}

// first + global id * tile; the group's extent is in instances where groups matter, and then the tile is 1.
SpvId KernelEmitter::InstanceId(uint32_t d) {
  const SpvId global = BuiltInAt(spv::BuiltInGlobalInvocationId, d);
  const SpvId scaled = options_.tile[d] == 1 ? global : c.Mul(global, c.K(options_.tile[d]));
  const SpvId first = Argument32(Kind::kFirst, d);
  return c.Add(scaled, first);
}

SpvId KernelEmitter::QueryIn(Opcode code, uint32_t d) {
  return Hoisted(std::string(ir::Info(code).text) + std::to_string(d), [&] { return MakeQuery(code, d); });
}

SpvId KernelEmitter::MakeQuery(Opcode code, uint32_t d) {
  switch (code) {
    case Opcode::kInstanceId:
      return InstanceId(d);
    case Opcode::kInstanceCount:
      return Argument32(Kind::kExtent, d);
    case Opcode::kGroupSize:
      return Argument32(Kind::kGroup, d);
    default:
      break;
  }
  // Groups of a kernel without barriers are numbers and nothing more.
  if (code == Opcode::kLocalId && ir::RunsByGroups(module_)) {
    return BuiltInAt(spv::BuiltInLocalInvocationId, d);
  }
  const SpvId id = InstanceId(d);
  const SpvId group = Argument32(Kind::kGroup, d);
  return w.Op(code == Opcode::kGroupId ? spv::OpUDiv : spv::OpUMod, c.U32(), {id, group});
}

SpvId KernelEmitter::EmitQuery(const ir::Op& op) {
  const SpvId which = Operand(op, 0);
  uint32_t known = 0;
  SpvId value = 0;
  if (op.code == Opcode::kBufferSize) {
    const auto bytes = [&](uint32_t k) {
      return k < module_.params.size() && module_.params[k].is_buffer ? Argument32(Kind::kBufferBytes, k) : c.K(0);
    };
    if (w.IsU32(which, &known)) {
      value = bytes(known);
    } else {
      value = c.K(0);
      for (uint32_t k = 0; k < module_.params.size(); ++k) {
        const SpvId is_it = c.Equal(which, c.K(k));
        const SpvId size = bytes(k);
        value = c.Select(c.U32(), is_it, size, value);
      }
    }
  } else {
    const bool counts = op.code == Opcode::kInstanceCount || op.code == Opcode::kGroupSize;
    if (w.IsU32(which, &known)) {
      value = known < 3 ? QueryIn(op.code, known) : c.K(counts ? 1 : 0);
    } else {
      value = c.K(counts ? 1 : 0);
      for (uint32_t d = 0; d < 3; ++d) {
        const SpvId is_it = c.Equal(which, c.K(d));
        const SpvId there = QueryIn(op.code, d);
        value = c.Select(c.U32(), is_it, there, value);
      }
    }
  }
  return op.type == Type::kI32 ? value : w.Op(spv::OpUConvert, m_.TypeOf(Type::kI64), {value});
}

// Zeroes group memory and the flags of traps, each work item a part of it.
void KernelEmitter::EmitGroupStart() {
  if (!group_ && !postpones_) {
    return;
  }
  const SpvId word = w.Pointer(spv::StorageClassWorkgroup, w.Int(32));
  const SpvId variable = m_.BuiltIn(spv::BuiltInLocalInvocationIndex);
  Use(variable);
  const SpvId index = c.Load(c.U32(), variable);
  if (postpones_) {
    Use(trap_flags_);
    c.If(c.Equal(index, c.K(0)), [&] {
      for (uint32_t i = 0; i < 2; ++i) {
        c.Store(w.Op(spv::OpAccessChain, word, {trap_flags_, w.U32(i)}), c.K(0));
      }
      return true;
    });
  }
  if (group_) {
    Use(group_->variable);
    SpvId count = m_.GroupExtent(0);
    count = c.Mul(count, m_.GroupExtent(1));
    count = c.Mul(count, m_.GroupExtent(2));
    c.For(index, c.K(static_cast<uint32_t>((group_->end + 3) / 4)), count, [&](SpvId i) {
      c.Store(w.Op(spv::OpAccessChain, word, {group_->variable, i}), c.K(0));
    });
  }
  EmitControlBarrier();
}

void KernelEmitter::EmitControlBarrier() {
  const uint32_t semantics = spv::MemorySemanticsAcquireReleaseMask | spv::MemorySemanticsUniformMemoryMask |
                             spv::MemorySemanticsWorkgroupMemoryMask;
  w.Do(spv::OpControlBarrier, {c.K(spv::ScopeWorkgroup), c.K(spv::ScopeWorkgroup), c.K(semantics)});
}

// The first instance that claims the record fills it in.
void KernelEmitter::EmitRecord(SpvId code) {
  const SpvId records = m_.TrapRecords();
  Use(records);
  const SpvId pointer = w.Pointer(spv::StorageClassStorageBuffer, w.Int(32));
  const SpvId index = Argument32(Kind::kTrapIndex, 0);
  const SpvId first = c.Mul(index, c.K(kRecordWords));
  const auto word = [&](uint32_t i) {
    return w.Op(spv::OpAccessChain, pointer, {records, w.U32(0), c.AddK(first, i)});
  };
  const SpvId relaxed = c.K(spv::MemorySemanticsMaskNone);
  const SpvId old =
      w.Op(spv::OpAtomicCompareExchange, c.U32(), {word(0), c.K(spv::ScopeDevice), relaxed, relaxed, c.K(1), c.K(0)});
  c.If(c.Equal(old, c.K(0)), [&] {
    c.Store(word(1), code);
    for (uint32_t d = 0; d < 3; ++d) {
      const SpvId id = InstanceId(d);
      const bool is_placed = d < 2 && trap_place_[d] != 0;
      c.Store(word(2 + d), is_placed ? c.Add(id, c.Load(c.U32(), trap_place_[d])) : id);
    }
    const std::array<SpvId, 3> from{trap_source_, trap_function_, trap_address_};
    for (uint32_t i = 0; i < 3; ++i) {
      c.Store(word(5 + i), c.Load(c.U32(), from[i]));
    }
    return true;
  });
}

// What is asked for of floats, in both widths if there are two.
void KernelEmitter::FloatModes(SpvId entry) {
  const GpuTarget& target = m_.target;
  const auto ask = [&](spv::ExecutionMode mode, spv::Capability capability) {
    w.Capability(capability);
    w.ExecutionMode(entry, mode, {32});
    if (w.Has(spv::CapabilityFloat64)) {
      w.ExecutionMode(entry, mode, {64});
    }
  };
  if (target.keeps_nan_and_zero) {
    ask(spv::ExecutionModeSignedZeroInfNanPreserve, spv::CapabilitySignedZeroInfNanPreserve);
  }
  if (target.rounds_to_even) {
    ask(spv::ExecutionModeRoundingModeRTE, spv::CapabilityRoundingModeRTE);
  }
  if (target.keeps_denormals) {
    w.Capability(spv::CapabilityDenormPreserve);
    w.ExecutionMode(entry, spv::ExecutionModeDenormPreserve, {32});
  }
}

void KernelEmitter::EmitCall(SpvId kernel) {
  if (!cuts_loops_) {
    w.Op(spv::OpFunctionCall, w.Void(), {kernel});
    return;
  }
  SpvId is_instance = 0;
  for (uint32_t d = 0; d < 3; ++d) {
    const SpvId id = BuiltInAt(spv::BuiltInLocalInvocationId, d);
    const SpvId is_below = c.Below(id, m_.GroupExtent(d));
    is_instance = d == 0 ? is_below : c.Both(is_instance, is_below);
  }
  c.If(is_instance, [&] {
    w.Op(spv::OpFunctionCall, w.Void(), {kernel});
    return true;
  });
}

void KernelEmitter::EmitWrapper(const std::string& entry, SpvId kernel) {
  const SpvId id = w.NewId();
  const SpvId type = w.FunctionType(w.Void(), {});
  SpirvFunction wrapper;
  wrapper.head = {5u << spv::WordCountShift | spv::OpFunction, w.Void(), id, spv::FunctionControlMaskNone, type,
                  2u << spv::WordCountShift | spv::OpLabel,    w.NewId()};
  w.OpenFunction(&wrapper);
  EmitGroupStart();
  for (size_t i = 0; i < module_memory_.size(); ++i) {
    EmitOwnStart(plan_.module_memory[i], module_memory_[i]);
  }
  for (size_t i = 0; i < state_.size(); ++i) {
    EmitOwnStart(plan_.state[i], state_[i]);
  }
  EmitCall(kernel);
  if (can_trap_) {
    for (const SpvId variable :
         {trap_code_, trap_source_, trap_function_, trap_address_, trap_place_[0], trap_place_[1]}) {
      if (variable != 0) {
        Use(variable);
      }
    }
    const SpvId code = c.Load(c.U32(), trap_code_);
    c.If(c.Differ(code, c.K(0)), [&] {
      EmitRecord(code);
      return true;
    });
  }
  w.Do(spv::OpReturn, {});
  w.CloseFunction();
  w.EntryPoint(id, entry, std::vector<SpvId>(interface_.begin(), interface_.end()));
  w.ExecutionMode(id, spv::ExecutionModeLocalSize, {1, 1, 1});
  FloatModes(id);
}

}  // namespace hpvm::vulkan
