// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "compiler/back/opencl/literal.h"
#include "compiler/back/opencl/memory.h"

namespace hpvm::opencl {
namespace {

using gpu::Reach;

// Returns the builtin's name after "atomic_" or "atom_".
std::string_view Builtin(Opcode code) {
  constexpr std::string_view kNames[] = {"add", "sub", "and", "or",  "xor",    "xchg",
                                         "min", "min", "max", "max", "cmpxchg"};
  const size_t index = static_cast<size_t>(code) - static_cast<size_t>(Opcode::kAtomicAdd);
  return index < std::size(kNames) ? kNames[index] : "xchg";
}

bool IsSigned(Opcode code) { return code == Opcode::kAtomicMinS || code == Opcode::kAtomicMaxS; }

// Returns a word as a value of the operation's type.
std::string OfType(const Op& op, const std::string& word) {
  return Cat(ir::IsInt(op.type) ? "(" : "as_", TypeName(op.type), ir::IsInt(op.type) ? ")" : "(", word,
             ir::IsInt(op.type) ? "" : ")");
}

// Returns the code that adds `a` to the float at `at` and returns from the helper. Compilers know only what the inline
// PTX declares: that it changes memory. The pointer is passed as a number, because one into group memory might be
// narrower.
std::string PtxSum(const Op& op, std::string_view space, bool is_used) {
  const std::string_view real = op.width == 8 ? "double" : "float", letter = op.width == 8 ? "d" : "f";
  const std::string where = Cat(space == "__local" ? "shared" : "global", ".add.f", 8 * op.width);
  const std::string inputs = Cat(" : \"l\"((ulong)at), \"", letter, "\"(as_", real, "(a)) : \"memory\");\n");
  if (!is_used) {
    return Cat("    asm volatile(\"red.", where, " [%0], %1;\" :", inputs, "    return;\n");
  }
  return Cat("    ", real, " old;\n    asm volatile(\"atom.", where, " %0, [%1], %2;\" : \"=", letter, "\"(old)",
             inputs, "    return as_", op.width == 8 ? "ulong" : "uint", "(old);\n");
}

}  // namespace

// Only the sum of f32 in buffers flushes denormal numbers to zero (PTX ISA, "atom").
gpu::FloatSum FloatSumIn(const ir::Module& module, const Op& op, const GpuTarget& target, std::string_view space,
                         bool fast_math) {
  const bool has_operation = op.width == 4 ? target.has_f32_atomic_add : target.has_f64_atomic_add;
  const bool flushes = op.width == 4 && space == "__global";
  return gpu::FloatSumOf(module, op, has_operation, flushes, fast_math);
}

bool Atomics::GivesOld(const Op& op) const {
  return op.result_count != 0 && (op.code != Opcode::kAtomicFAdd || is_used_[op.first_result.index]);
}

// Orders other accesses before and after the atomic, for all instances (S73).
void Atomics::Fence() {
  if (v_.plan.needs_fences) {
    v_.helpers.Add("FENCE", R"(
#ifdef __opencl_c_atomic_scope_device
#define FENCE() \
  atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device)
#else
#define FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE)
#endif
)");
    text_.Line("FENCE();");
  }
}

void Atomics::WriteAtomic(OpId id) {
  const Op& op = v_.f.op(id);
  if (op.width == 8) {
    v_.helpers.uses_int64_atomics = true;
  }
  if (op.width > 1 && memory_.AlignmentOf(op) < static_cast<uint32_t>(__builtin_ctz(op.width))) {
    const std::string low = Cat("((uint)", text_.Operand(op, 0), " + ", op.imm & 7, "u)");
    const std::string base = v_.plan.reach[id.index] == Reach::kParam
                                 ? Cat("(uint)", facts_.Fact(GpuArgument::Kind::kBufferBase, op.space_index), " + ")
                                 : "";
    traps_.Trap(id, Cat("(", low, " & ", op.width - 1, "u) != 0u"), ir::TrapCode::kMisalignedAtomic,
                Cat(base, "(uint)", text_.Operand(op, 0), " + ", op.imm & 0xffffffffull, "u"), op.width);
  }
  const bool is_flat = v_.plan.reach[id.index] == Reach::kFlat;
  Bytes bytes;
  if (!is_flat) {
    if (v_.plan.part[id.index] < 0 && (v_.plan.reach[id.index] == Reach::kModule)) {
      return WriteOwnAtomic(id);
    }
    if (!memory_.Locate(id, &bytes)) {
      return;
    }
    Fence();
    if (bytes.space == "__private" || bytes.space == "__constant const") {
      WritePlainAtomic(op, bytes);
    } else if (partners_[id.index] != gpu::SumPartners::kNone) {
      WriteSum(id, bytes);
    } else if (!GivesOld(op)) {
      text_.Line("(void)", AtomicOn(op, bytes), ";");
    } else {
      text_.Define(op.first_result, AtomicOn(op, bytes));
    }
    return Fence();
  }
  const std::string ranges = ranges_.Use();
  const std::string at = memory_.Effective(id);
  const std::string place = text_.Fresh("place");
  const bool is_load = op.code == Opcode::kAtomicLoad;
  text_.Local("const ", "Place" + v_.options.suffix, place,
              Cat("find", v_.options.suffix, "(", ranges, ", ", at, ", ", op.width, "ul, ", is_load ? "0" : "1", ")"));
  traps_.Trap(id, Cat(place, ".kind == 0u"), ir::TrapCode::kOutOfBounds, Cat("(uint)", at), op.width);
  if (!is_load) {
    traps_.Trap(id, Cat(place, ".kind == 3u"), ir::TrapCode::kReadOnlyBuffer, Cat("(uint)", at), op.width);
  }
  Fence();
  const std::string result = GivesOld(op) ? Cat("v", op.first_result.index) : "";
  if (!result.empty()) {
    text_.Declare(op.first_result);
  }
  const std::string assign = result.empty() ? "(void)" : Cat(result, " = ");
  text_.Line("if (", place, ".kind == 1u) {");
  text_.Indent();
  WriteOwnUpdate(op, place + ".at", result);
  text_.Outdent();
  if (v_.plan.local_bytes != 0) {
    text_.Line("} else if (", place, ".kind == 4u) {");
    text_.Line("  ", assign, AtomicOn(op, {"__local", place + ".group", 3}), ";");
  }
  text_.Line("} else {");
  text_.Line("  ", assign, AtomicOn(op, {"__global", place + ".p", 3}), ";");
  text_.Line("}");
  Fence();
}

// Writes a sum that one work item performs for all active ones of its subgroup, if all add to one address.
void Atomics::WriteSum(OpId id, const Bytes& bytes) {
  const Op& op = v_.f.op(id);
  const std::string adds = Cat("total", 8 * op.width);
  v_.helpers.Need(adds);
  const std::string word = text_.Fresh("total");
  const std::string own = memory_.WordOf(op, 1);
  text_.Local("", op.width == 8 ? "ulong" : "uint", word,
              carried_.empty() ? own : NextValue(op, carried_, own, "", op.width));
  carried_ = partners_[id.index] == gpu::SumPartners::kNext ? word : "";
  if (!carried_.empty()) {
    return;
  }
  const std::string lane = text_.Fresh("lane"), here = text_.Fresh("here");
  text_.Local("", "uint", lane, "0u");
  text_.Local("", "uint", here, Cat("here32(&", lane, ")"));
  std::string differ;
  if (partners_[id.index] == gpu::SumPartners::kAtOnce) {
    v_.helpers.Need("differ32");
    differ = Cat("differ32(", text_.Operand(op, 0), ", ", here, ") || ");
  }
  text_.Line("if (", differ, adds, "(&", word, ", ", lane, ", ", here, ")) ", FloatSumOn(op, bytes, word), ";");
}

// Returns the value that the operation computes from `old` and its operands.
std::string Atomics::Updated(const Op& op, const std::string& old) {
  return NextValue(op, old, op.operand_count > 1 ? memory_.WordOf(op, 1) : "",
                   op.operand_count > 2 ? memory_.WordOf(op, 2) : "", op.width);
}

// The instance's private memory is not shared, so plain accesses suffice. `result`: a variable, or empty.
void Atomics::WriteOwnUpdate(const Op& op, const std::string& at, const std::string& result) {
  const std::string name = Cat("own", v_.options.suffix);
  const std::string ranges = ranges_.Use();
  const std::string_view type = op.width == 8 ? "ulong" : "uint";
  const std::string old = text_.Fresh("old");
  text_.Local("const ", type, old, Cat("(", type, ")", name, "_load(", ranges, ", ", at, ", ", op.width, "u)"));
  if (op.code != Opcode::kAtomicLoad) {
    text_.Line(name, "_store(", ranges, ", ", at, ", ", op.width, "u, ", Updated(op, old), ");");
  }
  if (!result.empty()) {
    text_.Line(result, " = ", OfType(op, old), ";");
  }
}

void Atomics::WriteOwnAtomic(OpId id) {
  const Op& op = v_.f.op(id);
  ranges_.Use();
  const std::string at = memory_.Effective(id);
  traps_.Trap(id,
              Cat("!own", v_.options.suffix, "_holds(", at, ", ", op.width, "ul, ",
                  op.code == Opcode::kAtomicLoad ? "0" : "1", ")"),
              ir::TrapCode::kOutOfBounds, Cat("(uint)", at), op.width);
  if (op.result_count != 0) {
    text_.Declare(op.first_result);
  }
  WriteOwnUpdate(op, at, op.result_count != 0 ? text_.Name(op.first_result) : "");
}

// The same through a pointer.
void Atomics::WritePlainAtomic(const Op& op, const Bytes& bytes) {
  const std::string_view type = op.width == 8 ? "ulong" : "uint";
  const std::string old = text_.Fresh("old");
  text_.Local("const ", type, old, memory_.LoadWord(bytes, op.width, 0));
  if (op.code != Opcode::kAtomicLoad) {
    text_.Line(memory_.StoreWord(bytes, op.width, 0, Cat("(", Updated(op, old), ")")));
  }
  if (op.result_count != 0) {
    text_.Define(op.first_result, OfType(op, old));
  }
}

// Returns the value to store when `old` was read: words of the access's width, zero-extended. Higher bits are
// undefined.
std::string Atomics::NextValue(const Op& op, std::string_view old, std::string_view a, std::string_view b,
                               uint32_t width) {
  const std::string_view narrow = width == 1 ? "char" : width == 2 ? "short" : width == 4 ? "int" : "long";
  const std::string mask = width == 1 ? " & 0xffu" : width == 2 ? " & 0xffffu" : "";
  const auto pick = [&](std::string_view sign, std::string_view cast) {
    return Cat("((", cast, ")(", old, ") ", sign, " (", cast, ")(", a, ") ? (", old, ") : (", a, "))");
  };
  const std::string wide = Cat("u", narrow);
  switch (op.code) {
    case Opcode::kAtomicAdd:
      return Cat(old, " + ", a);
    case Opcode::kAtomicSub:
      return Cat(old, " - ", a);
    case Opcode::kAtomicAnd:
      return Cat(old, " & ", a);
    case Opcode::kAtomicOr:
      return Cat(old, " | ", a);
    case Opcode::kAtomicXor:
      return Cat(old, " ^ ", a);
    case Opcode::kAtomicMinS:
      return pick("<", narrow);
    case Opcode::kAtomicMaxS:
      return pick(">", narrow);
    case Opcode::kAtomicMinU:
      return pick("<", wide);
    case Opcode::kAtomicMaxU:
      return pick(">", wide);
    case Opcode::kAtomicCmpxchg:
      return Cat("((", old, ") == ((", a, ")", mask, ") ? (", b, ") : (", old, "))");
    case Opcode::kAtomicFAdd:
      return op.type == Type::kF32 ? Cat("as_uint(as_float(", old, ") + as_float(", a, "))")
                                   : Cat("as_ulong(as_double(", old, ") + as_double(", a, "))");
    default:
      return std::string(a);
  }
}

// Returns the helper that repeats compare and exchange on the word around the bytes.
std::string Atomics::LoopFor(const Op& op, std::string_view in) {
  const std::string space(in);
  const uint32_t bits = 8 * op.width;
  const std::string name = Cat(ir::Info(op.code).text, bits, "_", space.substr(2));
  const std::string_view type = op.width == 8 ? "ulong" : "uint";
  const std::string_view exchange = op.width == 8 ? "atom_cmpxchg" : "atomic_cmpxchg";
  std::string text = Cat("\n", type, " ", name, "(", space, " uchar* at, ", type, " a, ", type, " b) {\n");
  if (op.width < 4) {
    const std::string mask = op.width == 1 ? "0xffu" : "0xffffu";
    Append(text, "  const uint low = (uint)((size_t)at & 3), by = 8u * low;\n  volatile ", space,
           " uint* word = (volatile ", space,
           " uint*)(at - low);\n  uint seen = *word;\n  for (;;) {\n    const uint whole = seen;\n    const uint "
           "old = (whole >> by) & ",
           mask, ";\n    const uint next = (whole & ~(", mask, " << by)) | (((uint)(",
           NextValue(op, "old", "a", "b", op.width), ") & ", mask, ") << by);\n    seen = ", exchange,
           "(word, whole, next);\n    if (seen == whole) return old;\n");
  } else {
    Append(text, "  volatile ", space, " ", type, "* word = (volatile ", space, " ", type, "*)at;\n  ", type,
           " seen = *word;\n  for (;;) {\n    const ", type, " old = seen;\n    seen = ", exchange, "(word, old, ",
           NextValue(op, "old", "a", "b", op.width), ");\n    if (seen == old) return old;\n");
  }
  text += "  }\n}\n";
  v_.helpers.Add(name, text);
  return name;
}

std::string Atomics::AtomicByLoop(const Op& op, const Bytes& bytes) {
  const std::string name = LoopFor(op, bytes.space);
  const std::string zero = op.width == 8 ? "0ul" : "0u";
  return Cat(name, "(", bytes.pointer, ", ", op.operand_count > 1 ? memory_.WordOf(op, 1) : zero, ", ",
             op.operand_count > 2 ? memory_.WordOf(op, 2) : zero, ")");
}

// Returns the device's native sum, or else an exchange loop. Adding a zero changes only a zero of the other sign.
// Helpers whose old value is not used return none. `word`: the operand.
std::string Atomics::FloatSumOn(const Op& op, const Bytes& bytes, const std::string& word) {
  const gpu::FloatSum form = FloatSumIn(v_.module, op, v_.target, bytes.space, v_.options.fast_math);
  if (form == gpu::FloatSum::kExchange) {
    return Cat(LoopFor(op, bytes.space), "(", bytes.pointer, ", ", word, ", ", op.width == 8 ? "0ul)" : "0u)");
  }
  const bool is_guarded = form == gpu::FloatSum::kGuarded, is_used = GivesOld(op);
  const std::string space(bytes.space), loop = LoopFor(op, bytes.space);
  const std::string name = Cat(is_used ? "sum" : "add", 8 * op.width, "_", space.substr(2), is_guarded ? "" : "_fast");
  const std::string_view type = op.width == 8 ? "ulong" : "uint";
  std::string text = Cat("\n", is_used ? type : "void", " ", name, "(", space, " uchar* at, ", type,
                         " a) {\n#if defined(__NV_CL_C_VERSION)\n  ");
  if (is_guarded) {
    const Type bits = op.width == 8 ? Type::kI64 : Type::kI32;
    const uint64_t sign = uint64_t{1} << (8 * op.width - 1);
    Append(text, "const ", type, " magnitude = a & ", Literal(bits, sign - 1), ";\n  if (magnitude == 0) {\n    ",
           is_used ? "return " : "", op.width == 8 ? "atom_cmpxchg" : "atomic_cmpxchg", "((volatile ", space, " ", type,
           "*)at, ", Literal(bits, sign), ", a);\n", is_used ? "" : "    return;\n",
           "  }\n  if (magnitude >= ", Literal(bits, gpu::LeastGuardedOperand(op.type)), ") ");
  }
  Append(text, "{\n", PtxSum(op, space, is_used), "  }\n#endif\n  ", is_used ? "return " : "", loop,
         "(at, a, 0);\n}\n");
  v_.helpers.Add(name, text);
  return Cat(name, "(", bytes.pointer, ", ", word, ")");
}

// Returns the old value, of the operation's type.
std::string Atomics::AtomicOn(const Op& op, const Bytes& bytes) {
  const std::string_view type = op.width == 8 ? "ulong" : "uint";
  const auto of_type = [&](const std::string& word) {
    if (!ir::IsInt(op.type)) {
      return Cat("as_", TypeName(op.type), "(", word, ")");
    }
    return op.width < ir::Bytes(op.type) ? Cat("(", TypeName(op.type), ")", word) : word;
  };
  if (op.code == Opcode::kAtomicLoad) {
    const std::string_view stored = op.width == 1 ? "uchar" : op.width == 2 ? "ushort" : type;
    return of_type(
        Cat(op.width < 4 ? "(uint)" : "", "*(volatile ", bytes.space, " ", stored, "*)(", bytes.pointer, ")"));
  }
  if (op.code == Opcode::kAtomicFAdd) {
    const std::string sum = FloatSumOn(op, bytes, memory_.WordOf(op, 1));
    return GivesOld(op) ? of_type(sum) : sum;
  }
  if (op.width < 4) {
    return of_type(AtomicByLoop(op, bytes));
  }
  const std::string_view pointee = !IsSigned(op.code) ? type : op.width == 8 ? "long" : "int";
  const std::string cast = IsSigned(op.code) ? Cat("(", pointee, ")") : "";
  std::string call = Cat(op.width == 8 ? "atom_" : "atomic_", Builtin(op.code), "((volatile ", bytes.space, " ",
                         pointee, "*)(", bytes.pointer, "), ", cast, memory_.WordOf(op, 1),
                         op.operand_count > 2 ? Cat(", ", memory_.WordOf(op, 2)) : std::string(), ")");
  if (IsSigned(op.code)) {
    call = Cat("(", type, ")", call);
  }
  return of_type(call);
}

}  // namespace hpvm::opencl
