// SPDX-License-Identifier: Apache-2.0
// Atomics: on words by the device's own operations; on bytes and 16-bit words by a compare-and-exchange loop on the
// word around them. Float sums in buffers are native where the device has them (VK_EXT_shader_atomic_float), and
// exchange loops elsewhere; group memory is an array of integers, which cannot be accessed as floats. A work item's
// private memory needs no atomics.
#include <algorithm>

#include "compiler/back/vulkan/memory.h"

namespace hpvm::vulkan {

namespace {

bool IsMin(Opcode code) { return code == Opcode::kAtomicMinS || code == Opcode::kAtomicMinU; }
bool IsSigned(Opcode code) { return code == Opcode::kAtomicMinS || code == Opcode::kAtomicMaxS; }

// Returns the device's operation for an IR opcode.
spv::Op NativeOf(Opcode code) {
  constexpr spv::Op kNative[] = {spv::OpAtomicIAdd, spv::OpAtomicISub,     spv::OpAtomicAnd,  spv::OpAtomicOr,
                                 spv::OpAtomicXor,  spv::OpAtomicExchange, spv::OpAtomicSMin, spv::OpAtomicUMin,
                                 spv::OpAtomicSMax, spv::OpAtomicUMax};
  return ir::RowOf(kNative, Opcode::kAtomicAdd, code);
}

}  // namespace

// No driver guarantees how its operation treats denormal numbers; NVIDIA's flushes those of f32 to zero.
gpu::FloatSum FloatSumAt(const ir::Module& module, const ir::Op& op, const GpuTarget& target, bool is_group,
                         bool fast_math) {
  const bool has_operation = op.width == 4 ? target.has_f32_atomic_add : target.has_f64_atomic_add;
  return gpu::FloatSumOf(module, op, has_operation && !is_group, /*flushes=*/true, fast_math);
}

// Returns the value that `op` computes from `old`; integers of the access's width in `type`, u32 or u64.
SpvId Atomics::Combine(const ir::Op& op, SpvId type, SpvId old, std::span<const SpvId> operands) {
  const SpvId a = operands.empty() ? 0 : operands[0];
  const auto plain = [&](spv::Op code) { return w.Op(code, type, {old, a}); };
  switch (op.code) {
    case Opcode::kAtomicLoad:
      return old;
    case Opcode::kAtomicStore:
    case Opcode::kAtomicXchg:
      return a;
    case Opcode::kAtomicAdd:
      return plain(spv::OpIAdd);
    case Opcode::kAtomicSub:
      return plain(spv::OpISub);
    case Opcode::kAtomicAnd:
      return plain(spv::OpBitwiseAnd);
    case Opcode::kAtomicOr:
      return plain(spv::OpBitwiseOr);
    case Opcode::kAtomicXor:
      return plain(spv::OpBitwiseXor);
    case Opcode::kAtomicCmpxchg:
      return c.Select(type, c.Equal(old, a), operands[1], old);
    case Opcode::kAtomicFAdd: {
      const Type float_type = op.width == 4 ? Type::kF32 : Type::kF64;
      const SpvId x = floats_.Opaque(float_type, floats_.FloatOf(float_type, old));
      const SpvId y = floats_.Opaque(float_type, floats_.FloatOf(float_type, a));
      return floats_.BitsOf(float_type, floats_.Exact(spv::OpFAdd, v_.m.TypeOf(float_type), {x, y}));
    }
    default:
      break;
  }
  SpvId x = old, y = a;
  if (IsSigned(op.code) && op.width < 4) {
    const uint32_t unused = 32 - 8 * op.width;
    x = c.SarK(c.ShlK(old, unused), unused);
    y = c.SarK(c.ShlK(a, unused), unused);
  }
  const spv::Op less = IsSigned(op.code) ? spv::OpSLessThan : spv::OpULessThan;
  const SpvId is_less = c.Test(less, x, y);
  return IsMin(op.code) ? c.Select(type, is_less, old, a) : c.Select(type, is_less, a, old);
}

// Returns operands as integers of the access: u32, truncated for a narrow access, or u64.
SpvId Atomics::AtomicOperand(const ir::Op& op, SpvId value) {
  if (op.width == 8) {
    return op.type == Type::kF64 ? floats_.BitsOf(op.type, value) : value;
  }
  if (op.type == Type::kF32) {
    return floats_.BitsOf(op.type, value);
  }
  if (op.type == Type::kI64) {
    value = w.Op(spv::OpUConvert, c.U32(), {value});
  }
  return op.width == 4 ? value : c.AndK(value, op.width == 1 ? 0xff : 0xffff);
}

SpvId Atomics::AtomicResult(const ir::Op& op, SpvId old) {
  if (!ir::IsInt(op.type)) {
    return floats_.FloatOf(op.type, old);
  }
  return op.type == Type::kI64 && op.width < 8 ? w.Op(spv::OpUConvert, v_.m.TypeOf(Type::kI64), {old}) : old;
}

SpvId Atomics::Semantics(uint32_t order) {
  const uint32_t memory = spv::MemorySemanticsUniformMemoryMask | spv::MemorySemanticsWorkgroupMemoryMask;
  return c.K(v_.plan.needs_fences && !v_.has_no_fences ? order | memory : 0);
}

// Operates on the whole word (or 64-bit word) at `pointer`.
SpvId Atomics::AtomicNative(SpvId pointer, const ir::Op& op, std::span<const SpvId> operands, bool is_group) {
  const SpvId type = op.width == 8 ? w.Int(64) : c.U32();
  const SpvId scope = c.K(is_group ? spv::ScopeWorkgroup : spv::ScopeDevice);
  if (v_.has_no_fences && op.code == Opcode::kAtomicLoad) {
    // LLVM would compile the atomic load to a plain load, which orders nothing.
    const SpvId zero = op.width == 8 ? v_.K(Type::kI64, 0) : c.K(0);
    return w.Op(spv::OpAtomicIAdd, type, {pointer, scope, c.K(0), zero});
  }
  if (v_.has_no_fences && op.code == Opcode::kAtomicStore) {
    return w.Op(spv::OpAtomicExchange, type, {pointer, scope, c.K(0), operands[0]});
  }
  switch (op.code) {
    case Opcode::kAtomicLoad:
      return w.Op(spv::OpAtomicLoad, type, {pointer, scope, Semantics(spv::MemorySemanticsAcquireMask)});
    case Opcode::kAtomicStore:
      w.Do(spv::OpAtomicStore, {pointer, scope, Semantics(spv::MemorySemanticsReleaseMask), operands[0]});
      return 0;
    case Opcode::kAtomicCmpxchg: {
      const SpvId both = Semantics(spv::MemorySemanticsAcquireReleaseMask);
      const SpvId failed = Semantics(spv::MemorySemanticsAcquireMask);
      return w.Op(spv::OpAtomicCompareExchange, type, {pointer, scope, both, failed, operands[1], operands[0]});
    }
    default:
      return w.Op(NativeOf(op.code), type,
                  {pointer, scope, Semantics(spv::MemorySemanticsAcquireReleaseMask), operands[0]});
  }
}

// Operates on bits [shift, shift + 8 * width) of the word at `pointer`, or on all of it.
SpvId Atomics::AtomicByExchange(SpvId pointer, SpvId shift, const ir::Op& op, std::span<const SpvId> operands,
                                bool is_group) {
  const SpvId type = op.width == 8 ? w.Int(64) : c.U32();
  const uint32_t bits = op.width == 1 ? 0xff : op.width == 2 ? 0xffff : 0xffffffffu;
  ir::Op load = op, exchange = op;
  load.code = Opcode::kAtomicLoad;
  exchange.code = Opcode::kAtomicCmpxchg;
  if (op.width < 4) {
    load.width = exchange.width = 4;
  }
  const SpvId seen = w.LocalVariable(type);
  const SpvId part = w.LocalVariable(type);
  const SpvId done = v_.cuts_loops ? w.LocalVariable(c.U32()) : 0;
  c.Store(seen, AtomicNative(pointer, load, {}, is_group));
  const SpvId header = w.NewId(), body = w.NewId(), next = w.NewId(), merge = w.NewId();
  w.Do(spv::OpBranch, {header});
  w.Label(header);
  w.Do(spv::OpLoopMerge, {merge, next, spv::LoopControlMaskNone});
  w.Do(spv::OpBranch, {body});
  w.Label(body);
  const SpvId word = c.Load(type, seen);
  const SpvId old = op.width < 4 ? c.AndK(c.Shr(word, shift), bits) : word;
  c.Store(part, old);
  SpvId value = Combine(op, type, old, operands);
  if (op.width < 4) {
    const SpvId mask = c.Not(c.Shl(c.K(bits), shift));
    const SpvId rest = c.And(word, mask);
    value = c.Or(rest, c.Shl(c.AndK(value, bits), shift));
  }
  const std::array<SpvId, 2> expected_and_value{word, value};
  const SpvId found = AtomicNative(pointer, exchange, expected_and_value, is_group);
  c.Store(seen, found);
  const SpvId is_done = c.Equal(found, word);
  if (v_.cuts_loops) {
    c.Store(done, v_.Truth(is_done));
  }
  w.Do(spv::OpBranchConditional, {is_done, merge, next});
  w.Label(next);
  w.Do(spv::OpBranch, {header});
  w.Label(merge);
  if (v_.cuts_loops) {
    const SpvId is_cut = c.Equal(c.Load(c.U32(), done), c.K(0));
    c.Store(search_.FaultVariable(), c.Select(c.U32(), is_cut, c.K(static_cast<uint32_t>(ir::kLoopsCut)), c.K(0)));
  }
  return c.Load(type, part);
}

// The memory is private to the instance, so plain accesses suffice.
SpvId Atomics::AtomicInOwn(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands) {
  const SpvId type = op.width == 8 ? v_.m.TypeOf(Type::kI64) : c.U32();
  const SpvId raw = access_.LoadRaw(spot, op.width);
  const SpvId old = op.width == 8 ? c.Bits(type, raw) : raw;
  if (op.code != Opcode::kAtomicLoad && spot.words->is_writable) {
    const SpvId value = Combine(op, type, old, operands);
    access_.StoreRaw(spot, op.width, op.width == 8 ? c.Bits(access_.RawType(8), value) : value);
  }
  return old;
}

// Returns a pointer to the word, or 64-bit word, that contains the access.
SpvId Atomics::WordAt(const Spot& spot, const ir::Op& op) {
  return op.width == 8 ? access_.Element(spot, View::k64, c.ShrK(spot.address, 3))
                       : access_.Element(spot, View::k32, c.ShrK(spot.address, 2));
}

// Emits the device's native sum, which sees the buffer as floats.
SpvId Atomics::FloatSumNative(const Spot& spot, const ir::Op& op, SpvId operand) {
  const bool is_wide = op.width == 8;
  w.Extension("SPV_EXT_shader_atomic_float_add");
  w.Capability(is_wide ? spv::CapabilityAtomicFloat64AddEXT : spv::CapabilityAtomicFloat32AddEXT);
  const SpvId pointer = access_.Element(spot, is_wide ? View::kF64 : View::kF32, c.ShrK(spot.address, is_wide ? 3 : 2));
  const SpvId order = Semantics(spv::MemorySemanticsAcquireReleaseMask);
  const SpvId old = w.Op(spv::OpAtomicFAddEXT, v_.m.TypeOf(op.type),
                         {pointer, c.K(spv::ScopeDevice), order, floats_.FloatOf(op.type, operand)});
  return floats_.BitsOf(op.type, old);
}

// Emits a sum in a buffer or in group memory.
SpvId Atomics::FloatSumIn(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands) {
  const bool is_group = spot.words != nullptr;
  const auto exchange = [&] { return AtomicByExchange(WordAt(spot, op), 0, op, operands, is_group); };
  switch (FormOf(op, is_group)) {
    case gpu::FloatSum::kExchange:
      return exchange();
    case gpu::FloatSum::kDevice:
      return FloatSumNative(spot, op, operands[0]);
    default:
      break;
  }
  const Type bits = op.width == 8 ? Type::kI64 : Type::kI32;
  const SpvId type = v_.m.TypeOf(bits), old = w.LocalVariable(type);
  const SpvId magnitude =
      w.Op(spv::OpBitwiseAnd, type, {operands[0], v_.K(bits, op.width == 8 ? ~uint64_t{0} >> 1 : 0x7fffffff)});
  const SpvId least = v_.K(bits, gpu::LeastGuardedOperand(op.type));
  c.IfElse(
      c.Test(spv::OpUGreaterThanEqual, magnitude, least),
      [&] {
        c.Store(old, FloatSumNative(spot, op, operands[0]));
        if (v_.cuts_loops) {
          c.Store(search_.FaultVariable(), c.K(0));  // As after a loop that was not cut.
        }
      },
      [&] {
        c.IfElse(
            c.Test(spv::OpIEqual, magnitude, v_.K(bits, 0)),
            [&] {
              // Adding a zero changes only a zero of the other sign.
              ir::Op one_exchange = op;
              one_exchange.code = Opcode::kAtomicCmpxchg;
              const std::array<SpvId, 2> from_and_to{v_.K(bits, op.width == 8 ? uint64_t{1} << 63 : uint64_t{1} << 31),
                                                     operands[0]};
              c.Store(old, AtomicNative(WordAt(spot, op), one_exchange, from_and_to, is_group));
              if (v_.cuts_loops) {
                c.Store(search_.FaultVariable(), c.K(0));
              }
            },
            [&] { c.Store(old, exchange()); });
      });
  return c.Load(type, old);
}

// Emits a sum that one work item performs for all active ones of its subgroup, if all add to one address. They
// determine the total, the adding work item and the address in one block, so that the set of active work items cannot
// change in between.
void Atomics::FloatSumForAll(ir::OpId id, const Spot& spot, SpvId operand) {
  const ir::Op& op = v_.f.op(id);
  const SpvId scope = c.K(spv::ScopeSubgroup), type = v_.m.TypeOf(op.type), bits = op.width == 8 ? w.Int(64) : c.U32();
  const bool is_group = spot.words != nullptr;
  const SpvId own = floats_.FloatOf(op.type, operand);
  const SpvId term = carried_ == 0 ? own : w.Op(spv::OpFAdd, type, {carried_, own});
  carried_ = partners_[id.index] == gpu::SumPartners::kNext ? term : 0;
  if (carried_ != 0) {
    return;
  }
  w.Capability(spv::CapabilityGroupNonUniform);
  w.Capability(spv::CapabilityGroupNonUniformArithmetic);
  const SpvId total = w.Op(spv::OpGroupNonUniformFAdd, type, {scope, spv::GroupOperationReduce, term});
  SpvId adds = w.Op(spv::OpGroupNonUniformElect, w.Bool(), {scope});
  SpvId word = floats_.BitsOf(op.type, total);
  if (partners_[id.index] == gpu::SumPartners::kAtOnce) {
    w.Capability(spv::CapabilityGroupNonUniformVote);
    const SpvId is_one = w.Op(spv::OpGroupNonUniformAllEqual, w.Bool(), {scope, values_.Operand(op, 0)});
    word = c.Select(bits, is_one, word, floats_.BitsOf(op.type, term));
    adds = c.Either(adds, c.Neither(is_one));
  }
  if (v_.cuts_loops) {
    c.Store(search_.FaultVariable(), c.K(0));
  }
  c.If(adds, [&] {
    AtomicAt(spot, op, std::array{word});
    return true;
  });
  if (v_.cuts_loops && IsExchanged(op, is_group)) {
    search_.TrapIfFault(op, Memory::kState, 0);  // The address is valid, so none is recorded.
  }
}

gpu::FloatSum Atomics::FormOf(const ir::Op& op, bool is_group) const {
  return FloatSumAt(v_.module, op, v_.m.target, is_group, v_.options.fast_math);
}

// Returns true if the operation emits a loop that the driver may cut.
bool Atomics::IsExchanged(const ir::Op& op, bool is_group) const {
  if (op.code == Opcode::kAtomicFAdd) {
    return FormOf(op, is_group) != gpu::FloatSum::kDevice;
  }
  return op.width < 4 && op.code != Opcode::kAtomicLoad;
}

// Returns the old value as an integer of the access's width; undefined for a store.
SpvId Atomics::AtomicAt(const Spot& spot, const ir::Op& op, std::span<const SpvId> operands) {
  if (spot.words != nullptr && spot.words->storage == spv::StorageClassPrivate) {
    return AtomicInOwn(spot, op, operands);
  }
  const bool is_group = spot.words != nullptr;
  if (op.width == 8) {
    if (is_group || !v_.m.target.has_int64_atomics) {
      v_.Refuse("The operation " + std::string(ir::Info(op.code).text) + " at byte " + std::to_string(op.source) +
                " of the module cannot run on this device: it has no 64-bit atomics" +
                (is_group ? " of group memory." : "."));
      return v_.K(Type::kI64, 0);
    }
    w.Capability(spv::CapabilityInt64Atomics);
    return op.code == Opcode::kAtomicFAdd ? FloatSumIn(spot, op, operands)
                                          : AtomicNative(WordAt(spot, op), op, operands, false);
  }
  if (op.code == Opcode::kAtomicFAdd) {
    return FloatSumIn(spot, op, operands);
  }
  const SpvId pointer = WordAt(spot, op);
  if (op.width == 4) {
    return AtomicNative(pointer, op, operands, is_group);
  }
  const SpvId shift = access_.BitsInWord(spot, op.width == 1 ? 3 : 2);
  if (op.code == Opcode::kAtomicLoad) {
    ir::Op word = op;
    word.width = 4;
    const SpvId value = AtomicNative(pointer, word, {}, is_group);
    return c.AndK(c.Shr(value, shift), op.width == 1 ? 0xff : 0xffff);
  }
  return AtomicByExchange(pointer, shift, op, operands, is_group);
}

SpvId Atomics::SearchAtomic(Memory memory, const ir::Op& op) {
  const SpvId type = search_.AddressTypeOf(memory);
  const SpvId value = op.width == 8 ? v_.m.TypeOf(Type::kI64) : c.U32();
  const bool writes = op.code != Opcode::kAtomicLoad;
  std::vector<SpvId> types{type};
  types.insert(types.end(), op.operand_count - 1, value);
  std::string what(ir::Info(op.code).text);
  if (op.code == Opcode::kAtomicFAdd && FormOf(op, /*is_group=*/false) == gpu::FloatSum::kDevice) {
    what += "_fast";
  }
  const std::string name = search_.SearchName(what.c_str(), memory, op.width, 0);
  return functions_.Function(name, value, types, [&](std::span<const SpvId> params) {
    const Type address_type = v_.module.address_type();
    const auto bytes = [&] { return v_.K(address_type, op.width); };
    const auto found = [&](const Search::Range& range, SpvId place) {
      SpvId old = 0;
      if (!writes || range.is_writable) {
        old = AtomicAt(search_.SpotIn(range, type, place, 3), op, params.subspan(1));
      } else {
        c.Store(search_.FaultVariable(), c.K(static_cast<uint32_t>(TrapCode::kReadOnlyBuffer)));
      }
      w.Do(spv::OpReturnValue, {old != 0 ? old : w.Null(value)});
    };
    search_.ForEachRange(search_.SourcesOf(memory), memory, writes, params[0], bytes, found);
    SpvId fault = c.K(static_cast<uint32_t>(TrapCode::kOutOfBounds));
    if (!writes && v_.module.memory_bytes >= op.width) {  // Module memory that is not kept reads as zero.
      const SpvId last = v_.K(address_type, v_.module.memory_bytes - op.width);
      fault = c.Select(c.U32(), c.Test(spv::OpULessThanEqual, params[0], last), c.K(0), fault);
    }
    c.Store(search_.FaultVariable(), fault);
    w.Do(spv::OpReturnValue, {w.Null(value)});
  });
}

void Atomics::TrapIfMisaligned(const ir::Op& op) {
  const bool is_known = (1u << std::min(v_.AlignmentOf(op), 8u)) >= op.width;
  if (is_known) {
    return;
  }
  const SpvId operand = v_.Narrow(values_.Operand(op, 0));
  const SpvId offset = c.AddK(operand, static_cast<uint32_t>(op.imm));
  const auto address = [&] {
    return op.space == ir::Space::kParam ? c.Add(offset, v_.ParamBase(op.space_index)) : offset;
  };
  traps_.TrapIf(c.Differ(c.AndK(offset, op.width - 1u), c.K(0)), TrapCode::kMisalignedAtomic, op, address, op.width);
}

bool Atomics::EmitAtomic(ir::OpId id) {
  const ir::Op& op = v_.f.op(id);
  TrapIfMisaligned(op);
  std::vector<SpvId> operands;
  for (uint32_t i = 1; i < op.operand_count; ++i) {
    operands.push_back(AtomicOperand(op, values_.Operand(op, i)));
  }
  const gpu::Reach reach = v_.plan.reach[id.index];
  SpvId old = 0;
  if (reach == gpu::Reach::kParam || reach == gpu::Reach::kGroup) {
    std::optional<Spot> spot = reach == gpu::Reach::kParam ? search_.FindInParam(id) : search_.FindInGroup(id);
    if (!spot) {
      return false;
    }
    spot->alignment = std::max(spot->alignment, op.width == 8 ? 3u : op.width == 4 ? 2u : op.width == 2 ? 1u : 0u);
    if (partners_[id.index] != gpu::SumPartners::kNone) {
      FloatSumForAll(id, *spot, operands[0]);
      return true;
    }
    old = AtomicAt(*spot, op, operands);
    if (v_.cuts_loops && IsExchanged(op, reach == gpu::Reach::kGroup)) {
      search_.TrapIfFault(op, Memory::kState, 0);  // The address is valid, so none is recorded.
    }
  } else {
    const Memory memory = search_.MemoryOf(reach);
    const SpvId address = search_.AddressOf(op);
    std::vector<SpvId> arguments{SearchAtomic(memory, op), address};
    arguments.insert(arguments.end(), operands.begin(), operands.end());
    old = w.Op(spv::OpFunctionCall, op.width == 8 ? w.Int(64) : c.U32(), arguments);
    search_.TrapIfFault(op, memory, address);
  }
  if (op.result_count > 0) {
    values_.SetResult(op, AtomicResult(op, old));
  }
  return true;
}

}  // namespace hpvm::vulkan
