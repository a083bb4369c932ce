// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "compiler/back/opencl/literal.h"
#include "compiler/back/opencl/memory.h"

namespace hpvm::opencl {
namespace {

using gpu::Reach;

bool IsStore(Opcode code) { return code == Opcode::kStore || code == Opcode::kStore128; }

}  // namespace

// Returns the known alignment of the address with its immediate. Views begin at multiples of 8 bytes.
uint32_t Memory::AlignmentOf(const Op& op) const {
  const uint32_t immediate = op.imm == 0 ? 64 : static_cast<uint32_t>(std::countr_zero(op.imm));
  return std::min<uint32_t>(
      {v_.plan.alignment[v_.f.operands_of(op)[0].index], immediate,
       (op.space == ir::Space::kParam && v_.options.is_aligned) || op.space == ir::Space::kGroup ? 4u : 3u});
}

std::string Memory::Effective(OpId id) {
  const Op& op = v_.f.op(id);
  const ValueId address = v_.f.operands_of(op)[0];
  uint64_t constant = 0, sum = 0;
  if (text_.ConstantOf(address, &constant) && !__builtin_add_overflow(constant, op.imm, &sum)) {
    return Literal(Type::kI64, sum);
  }
  if (text_.TypeOf(address) == Type::kI32) {
    return op.imm == 0 ? Cat("(ulong)", text_.Name(address))
                       : Cat("((ulong)", text_.Name(address), " + ", Literal(Type::kI64, op.imm), ")");
  }
  if (op.imm == 0) {
    return text_.Name(address);
  }
  const std::string name = text_.Fresh("at");
  text_.Local("const ", "ulong", name, Cat(text_.Name(address), " + ", Literal(Type::kI64, op.imm)));
  if (!v_.OmitsCheck(id) && !v_.plan.is_inside[id.index]) {
    traps_.Trap(id, Cat(name, " < ", text_.Name(address)), v_.MissCode(id), "0xffffffffu", op.width);
  }
  return name;
}

void Memory::WriteAccess(OpId id) {
  const Op& op = v_.f.op(id);
  switch (op.code) {
    case Opcode::kMemorySize:
      return text_.Define(op.first_result, Literal(v_.module.address_type(), v_.module.memory_bytes / (64 * 1024)));
    case Opcode::kMemoryCopy:
    case Opcode::kMemoryFill:
    case Opcode::kMemoryInit:
      return WriteBulk(id);
    default:
      break;
  }
  if (v_.plan.reach[id.index] == Reach::kFlat) {
    return WriteFlatAccess(id);
  }
  Bytes bytes;
  if (!Locate(id, &bytes)) {
    return;
  }
  IsStore(op.code) ? WriteStore(op, bytes) : WriteLoad(op, bytes);
}

// Returns false when the access has been written, or always traps.
bool Memory::Locate(OpId id, Bytes* bytes) {
  switch (v_.plan.reach[id.index]) {
    case Reach::kParam:
      return LocateParam(id, bytes);
    case Reach::kGroup:
      return LocateGroup(id, bytes);
    default:
      return LocateOwn(id, bytes);
  }
}

// Returns a pointer to the parameter's byte at the access's address. Pointer arithmetic never uses the address
// directly (AT in the prelude says why); the immediate stays outside of AT, where it becomes part of the device's
// instruction.
std::string Memory::ParamPointer(const Op& op, std::string_view space) {
  const ValueId address = v_.f.operands_of(op)[0];
  const std::string buffer = facts_.Buffer(op.space_index);
  uint64_t constant = 0, sum = 0;
  if (text_.ConstantOf(address, &constant) && !__builtin_add_overflow(constant, op.imm, &sum)) {
    return Cat(buffer, " + ", Literal(Type::kI64, sum));
  }
  const std::string at = Cat("AT(", space, ", ", buffer, ", ", text_.TypeOf(address) == Type::kI32 ? "(ulong)" : "",
                             text_.Name(address), ")");
  return op.imm == 0 ? at : Cat(at, " + ", Literal(Type::kI64, op.imm));
}

// If one of the members misses, each is checked, in order.
void Memory::CheckShared(const pass::SharedCheck& check) {
  const std::string& first = text_.Operand(v_.f.op(check.members[0]), 0);
  std::string most;
  for (const pass::SharedCheck::Bound& bound : check.bounds) {
    const std::string places = facts_.Places(bound.param, bound.reach);
    most = most.empty() ? places : Cat("min(", most, ", ", places, ")");
  }
  const auto sum = [&](uint64_t bytes) {
    const auto low = static_cast<uint32_t>(bytes);
    return low == 0 ? first : Cat("(", first, " + ", low, "u)");
  };
  text_.Line("if (", sum(0 - check.below), " >= ", most, ") {");
  text_.Indent();
  for (size_t i = 0; i < check.members.size(); ++i) {
    const Op& op = v_.f.op(check.members[i]);
    const std::string offset = sum(check.from_first[i]);
    traps_.Trap(check.members[i], Cat(offset, " >= ", facts_.Places(op.space_index, op.imm + op.width)),
                v_.MissCode(check.members[i]),
                Cat("(uint)(", facts_.Fact(GpuArgument::Kind::kBufferBase, op.space_index), " + (ulong)", offset, " + ",
                    Literal(Type::kI64, op.imm), ")"),
                op.width);
  }
  text_.Outdent();
  text_.Line("}");
}

bool Memory::LocateParam(OpId id, Bytes* bytes) {
  const Op& op = v_.f.op(id);
  const uint32_t k = op.space_index;
  const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
  const bool is_refused = writes && !v_.module.params[k].is_writable;
  const std::string at = v_.OmitsCheck(id) && !is_refused ? "" : Effective(id);
  const auto address = [&] { return Cat("(uint)(", facts_.Fact(GpuArgument::Kind::kBufferBase, k), " + ", at, ")"); };
  if (const int32_t shared = shared_.of[id.index]; shared >= 0) {
    const pass::SharedCheck& check = shared_.checks[static_cast<size_t>(shared)];
    check.members[0] == id ? CheckShared(check) : void();
  } else if (!v_.OmitsCheck(id) && gpu::HasSmallOffset(v_.module, op)) {
    const std::string miss = Cat(text_.Operand(op, 0), " >= ", facts_.Places(k, op.imm + op.width));
    traps_.Trap(id, miss, v_.MissCode(id), address(), op.width);
  } else if (!v_.OmitsCheck(id)) {
    const std::string size = facts_.BufferBytes(k);
    const std::string miss = Cat(size, " < ", op.width, "ul || ", at, " > ", size, " - ", op.width, "ul");
    traps_.Trap(id, miss, v_.MissCode(id), address(), op.width);
  }
  if (is_refused) {
    traps_.Trap(id, "", ir::TrapCode::kReadOnlyBuffer, address(), op.width);
    for (uint32_t i = 0; i < op.result_count; ++i) {
      text_.Define(ValueId(op.first_result.index + i), Cat("(", TypeName(op.type), ")0"));
    }
    return false;
  }
  const std::string_view space = v_.module.params[k].is_writable ? "__global" : "__global const";
  *bytes = {space, ParamPointer(op, space), AlignmentOf(op)};
  return true;
}

bool Memory::LocateGroup(OpId id, Bytes* bytes) {
  const Op& op = v_.f.op(id);
  const ValueId address = v_.f.operands_of(op)[0];
  const std::string base = facts_.Fact(GpuArgument::Kind::kGroupBase);
  if (v_.plan.local_bytes == 0) {
    traps_.Trap(id, "", ir::TrapCode::kOutOfBounds, Cat("(uint)", text_.Name(address)), op.width);
    for (uint32_t i = 0; i < op.result_count; ++i) {
      text_.Define(ValueId(op.first_result.index + i), Cat("(", TypeName(op.type), ")0"));
    }
    return false;
  }
  // Addresses below the base wrap around to offsets beyond all memory.
  const std::string at = text_.Fresh("at");
  if (text_.TypeOf(address) == Type::kI32) {
    text_.Local("const ", "ulong", at,
                Cat("(ulong)(", text_.Name(address), " - ", base, ") + ", Literal(Type::kI64, op.imm)));
  } else {
    text_.Local("const ", "ulong", at, Cat(text_.Name(address), " - ", base, " + ", Literal(Type::kI64, op.imm)));
  }
  if (!v_.OmitsCheck(id)) {
    const std::string miss =
        op.width > v_.plan.local_bytes ? "1" : Cat(at, " > ", v_.plan.local_bytes - op.width, "ul");
    traps_.Trap(id, miss, v_.MissCode(id), Cat("(uint)(", base, " + ", at, ")"), op.width);
  }
  *bytes = {"__local", Cat("(__local uchar*)group_memory + ", at), AlignmentOf(op)};
  return true;
}

bool Memory::LocateOwn(OpId id, Bytes* bytes) {
  const Op& op = v_.f.op(id);
  const bool is_state = v_.plan.reach[id.index] == Reach::kState;
  const int32_t part = v_.plan.part[id.index];
  if (part < 0) {
    WriteOwnAccess(id);
    return false;
  }
  const gpu::OwnMemory& memory = *v_.plan.PartOf(id);
  if (v_.plan.is_inside[id.index]) {
    *bytes = {memory.is_written ? "__private" : "__constant const",
              Cat(ranges_.PartPointer(is_state, part, memory), " + ", PlaceInside(op, memory)), AlignmentOf(op)};
    uint64_t constant = 0;
    bytes->is_table = !memory.is_written && !text_.ConstantOf(v_.f.operands_of(op)[0], &constant);
    return true;
  }
  const std::string at = Effective(id);
  const std::string begin = Literal(Type::kI64, memory.begin);
  const uint64_t size = memory.end - memory.begin;
  const std::string miss = op.width > size ? "1" : Cat(at, " - ", begin, " > ", size - op.width, "ul");
  traps_.Trap(id, miss, ir::TrapCode::kOutOfBounds, is_state ? "0u" : Cat("(uint)", at), is_state ? 0 : op.width);
  const bool is_written = memory.is_written;
  *bytes = {is_written ? "__private" : "__constant const",
            Cat(ranges_.PartPointer(is_state, part, memory), " + (", at, " - ", begin, ")"), AlignmentOf(op)};
  return true;
}

// Returns the offset, in private or constant memory, of an access that is known to be inside. The safety of other
// memory does not depend on that: a computed offset is also clamped.
std::string Memory::PlaceInside(const Op& op, const gpu::OwnMemory& memory) {
  const ValueId address = v_.f.operands_of(op)[0];
  const Type type = text_.TypeOf(address);
  const uint64_t add = op.imm - memory.begin;
  uint64_t constant = 0;
  if (text_.ConstantOf(address, &constant)) {
    return Literal(Type::kI64, type == Type::kI32 ? static_cast<uint32_t>(constant + add) : constant + add);
  }
  const std::string place =
      add == 0 ? text_.Name(address) : Cat("(", text_.Name(address), " + ", Literal(type, add), ")");
  const uint64_t size = memory.end - memory.begin;
  return Cat("min(", place, ", ", Literal(type, size - std::min<uint64_t>(op.width, size)), ")");
}

// Loads words of 1 to 8 bytes, as uint or ulong.
std::string Memory::LoadWord(const Bytes& bytes, uint32_t width, uint64_t at) {
  const std::string pointer = at == 0 ? bytes.pointer : Cat(bytes.pointer, " + ", at, "ul");
  if (width == 1) {
    return Cat("(uint)*(", bytes.space, " uchar*)(", pointer, ")");
  }
  const uint32_t log2 = static_cast<uint32_t>(std::countr_zero(width));
  if (bytes.is_table && bytes.alignment >= log2 && width >= 4) {
    const std::string name = width == 4 ? "table32" : "table64";
    v_.helpers.Need(name);
    return Cat(name, "(", pointer, ")");
  }
  if (bytes.alignment >= log2) {
    return Cat(width == 2 ? "(uint)" : "", "*(", bytes.space, " u", width * 8, "*)(", pointer, ")");
  }
  const std::string name = Cat("load", width * 8, "_", bytes.space.substr(2, bytes.space.find(' ') - 2));
  v_.helpers.Need(name);
  return Cat(name, "(", pointer, ")");
}

std::string Memory::StoreWord(const Bytes& bytes, uint32_t width, uint64_t at, const std::string& value) {
  const std::string pointer = at == 0 ? bytes.pointer : Cat(bytes.pointer, " + ", at, "ul");
  const uint32_t log2 = static_cast<uint32_t>(std::countr_zero(width));
  if (width == 1) {
    return Cat("*(", bytes.space, " uchar*)(", pointer, ") = (uchar)", value, ";");
  }
  if (bytes.alignment >= log2) {
    return Cat("*(", bytes.space, " u", width * 8, "*)(", pointer, ") = ", width == 2 ? "(ushort)" : "", value, ";");
  }
  const std::string name = Cat("store", width * 8, "_", bytes.space.substr(2));
  v_.helpers.Need(name);
  return Cat(name, "(", pointer, ", ", value, ");");
}

// Returns the word such that all uses see the same value if a bound depends on it (pass/index_loads.h).
std::string Memory::Once(ValueId result, uint32_t width, const std::string& word, bool is_own) {
  if (is_own || !index_loads_[result.index]) {
    return word;
  }
  const std::string name = width == 8 ? "once64" : "once32";
  v_.helpers.Need(name);
  return Cat(name, "(", word, ")");
}

// Defines a result of its type from the word of Op::width bytes.
void Memory::DefineLoaded(const Op& op, const std::string& loaded, bool is_own) {
  const std::string_view type = TypeName(op.type);
  const std::string word = Once(op.first_result, op.width, loaded, is_own);
  if (!ir::IsInt(op.type)) {
    return text_.Define(op.first_result, Cat("as_", type, "(", word, ")"));
  }
  if (op.width == ir::Bytes(op.type) && !op.sign) {
    return text_.Define(op.first_result, word);
  }
  if (!op.sign || op.width == ir::Bytes(op.type)) {
    return text_.Define(op.first_result, Cat("(", type, ")(", word, ")"));
  }
  const std::string_view narrow = op.width == 1 ? "char" : op.width == 2 ? "short" : "int";
  text_.Define(op.first_result, Cat("(", type, ")(", SignedName(op.type), ")(", narrow, ")(", word, ")"));
}

std::string Memory::WordOf(const Op& op, uint32_t operand) {
  const std::string& value = text_.Operand(op, operand);
  switch (text_.OperandType(op, operand)) {
    case Type::kF32:
      return Cat("as_uint(", value, ")");
    case Type::kF64:
      return Cat("as_ulong(", value, ")");
    case Type::kI64:
      return op.width < 8 ? Cat("(uint)", value) : value;
    default:
      return value;
  }
}

void Memory::WriteLoad(const Op& op, const Bytes& bytes) {
  if (op.code == Opcode::kLoad) {
    return DefineLoaded(op, LoadWord(bytes, op.width, 0), bytes.is_own());
  }
  if (bytes.alignment >= 2) {
    const std::string four = text_.Fresh("four");
    text_.Local("const ", "uint4", four,
                bytes.alignment >= 4 ? Cat("*(", bytes.space, " u128*)(", bytes.pointer, ")")
                                     : Cat("vload4(0, (", bytes.space, " uint*)(", bytes.pointer, "))"));
    for (uint32_t i = 0; i < 4; ++i) {
      const ValueId result(op.first_result.index + i);
      text_.Define(result, Once(result, 4, Cat(four, ".s", i), bytes.is_own()));
    }
    return;
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const ValueId result(op.first_result.index + i);
    text_.Define(result, Once(result, 4, LoadWord(bytes, 4, 4 * i), bytes.is_own()));
  }
}

void Memory::WriteStore(const Op& op, const Bytes& bytes) {
  if (op.code == Opcode::kStore) {
    return text_.Line(StoreWord(bytes, op.width, 0, WordOf(op, 1)));
  }
  if (bytes.alignment >= 2) {
    const std::string four = Cat("(uint4)(", text_.Operand(op, 1), ", ", text_.Operand(op, 2), ", ",
                                 text_.Operand(op, 3), ", ", text_.Operand(op, 4), ")");
    if (bytes.alignment >= 4) {
      return text_.Line("*(", bytes.space, " u128*)(", bytes.pointer, ") = ", four, ";");
    }
    return text_.Line("vstore4(", four, ", 0, (", bytes.space, " uint*)(", bytes.pointer, "));");
  }
  for (uint32_t i = 0; i < 4; ++i) {
    text_.Line(StoreWord(bytes, 4, 4 * i, text_.Operand(op, 1 + i)));
  }
}

// Accesses private memory whose part is not known: byte by byte, out of line.
void Memory::WriteOwnAccess(OpId id) {
  const Op& op = v_.f.op(id);
  const bool is_state = v_.plan.reach[id.index] == Reach::kState;
  const std::string ranges = ranges_.Use();
  const std::string at = Effective(id);
  const std::string name = Cat(is_state ? "state" : "own", v_.options.suffix);
  const std::string address = is_state ? "0u" : Cat("(uint)", at);
  const uint32_t bytes = is_state ? 0 : op.width;
  if (IsStore(op.code)) {
    traps_.Trap(id, Cat("!", name, "_holds(", at, ", ", op.width, "ul, 1)"), ir::TrapCode::kOutOfBounds, address,
                bytes);
    if (op.code == Opcode::kStore) {
      return text_.Line(name, "_store(", ranges, ", ", at, ", ", op.width, "u, ", WordOf(op, 1), ");");
    }
    for (uint32_t i = 0; i < 4; ++i) {
      text_.Line(name, "_store(", ranges, ", ", at, " + ", 4 * i, "ul, 4u, ", text_.Operand(op, 1 + i), ");");
    }
    return;
  }
  traps_.Trap(id, Cat("!", name, "_holds(", at, ", ", op.width, "ul, 0)"), ir::TrapCode::kOutOfBounds, address, bytes);
  if (op.code == Opcode::kLoad) {
    const std::string word = Cat(name, "_load(", ranges, ", ", at, ", ", op.width, "u)");
    return DefineLoaded(op, op.width < 8 ? Cat("(uint)", word) : word);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const ValueId result(op.first_result.index + i);
    text_.Define(result, Once(result, 4, Cat("(uint)", name, "_load(", ranges, ", ", at, " + ", 4 * i, "ul, 4u)")));
  }
}

void Memory::WriteFlatAccess(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string ranges = ranges_.Use();
  const std::string at = Effective(id);
  const std::string place = text_.Fresh("place");
  text_.Local(
      "const ", "Place" + v_.options.suffix, place,
      Cat("find", v_.options.suffix, "(", ranges, ", ", at, ", ", op.width, "ul, ", IsStore(op.code) ? "1" : "0", ")"));
  traps_.Trap(id, Cat(place, ".kind == 0u"), ir::TrapCode::kOutOfBounds, Cat("(uint)", at), op.width);
  if (IsStore(op.code)) {
    traps_.Trap(id, Cat(place, ".kind == 3u"), ir::TrapCode::kReadOnlyBuffer, Cat("(uint)", at), op.width);
    if (op.code == Opcode::kStore) {
      return text_.Line("flat_store", v_.options.suffix, "(", ranges, ", ", place, ", 0ul, ", op.width, "u, ",
                        WordOf(op, 1), ");");
    }
    for (uint32_t i = 0; i < 4; ++i) {
      text_.Line("flat_store", v_.options.suffix, "(", ranges, ", ", place, ", ", 4 * i, "ul, 4u, ",
                 text_.Operand(op, 1 + i), ");");
    }
    return;
  }
  const auto load = [&](uint32_t offset, uint32_t width) {
    return Cat(width < 8 ? "(uint)" : "", "flat_load", v_.options.suffix, "(", ranges, ", ", place, ", ", offset,
               "ul, ", width, "u)");
  };
  if (op.code == Opcode::kLoad) {
    return DefineLoaded(op, load(0, op.width));
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const ValueId result(op.first_result.index + i);
    text_.Define(result, Once(result, 4, load(4 * i, 4)));
  }
}

void Memory::WriteBulk(OpId id) {
  const Op& op = v_.f.op(id);
  const std::string ranges = ranges_.Use();
  const std::string to = Cat("(ulong)", text_.Operand(op, 0));
  const std::string size = Cat("(ulong)", text_.Operand(op, 2));
  const std::string place = text_.Fresh("place");
  const std::string type = Cat("Place", v_.options.suffix);
  const std::string find = Cat("find", v_.options.suffix, "(", ranges, ", ");
  if (op.code == Opcode::kMemoryInit) {
    const uint64_t segment = v_.module.passive_segments[op.imm].size();
    traps_.Trap(id, Cat("(ulong)", text_.Operand(op, 1), " + ", size, " > ", segment, "ul"),
                ir::TrapCode::kOutOfBounds);
  }
  text_.Local("const ", type, place, Cat(find, to, ", ", size, ", 1)"));
  // Records have room for 65,535 bytes.
  const auto code = [&](ir::TrapCode trap) {
    return Cat("(uint)min(", size, ", 65535ul) << 16 | ", static_cast<uint32_t>(trap), "u");
  };
  traps_.TrapWith(id, Cat(place, ".kind == 0u"), code(ir::TrapCode::kOutOfBounds), Cat("(uint)", to));
  traps_.TrapWith(id, Cat(place, ".kind == 3u"), code(ir::TrapCode::kReadOnlyBuffer), Cat("(uint)", to));
  const std::string byte = text_.Fresh("i");
  if (op.code == Opcode::kMemoryCopy) {
    const std::string from = text_.Fresh("place");
    text_.Local("const ", type, from, Cat(find, "(ulong)", text_.Operand(op, 1), ", ", size, ", 0)"));
    traps_.TrapWith(id, Cat(from, ".kind == 0u"), code(ir::TrapCode::kOutOfBounds),
                    Cat("(uint)", text_.Operand(op, 1)));
    return text_.Line("flat_copy", v_.options.suffix, "(", ranges, ", ", place, ", ", from, ", ", size, ");");
  }
  std::string value = text_.Operand(op, 1);
  if (op.code == Opcode::kMemoryInit) {
    std::vector<uint8_t> bytes = v_.module.passive_segments[op.imm];
    bytes.resize(std::max<size_t>((bytes.size() + 7) / 8 * 8, 8));
    value = Cat("((__constant const uchar*)", v_.helpers.Constant(bytes), ")[", text_.Operand(op, 1), " + ", byte, "]");
  }
  text_.Line("for (ulong ", byte, " = 0ul; ", byte, " < ", size, "; ++", byte, ") flat_store", v_.options.suffix, "(",
             ranges, ", ", place, ", ", byte, ", 1u, ", value, ");");
}

void Memory::WriteLocalAlloc(OpId id) {
  const Op& op = v_.f.op(id);
  text_.Define(op.first_result, Cat(facts_.Fact(GpuArgument::Kind::kGroupBase), " + ",
                                    Literal(v_.module.address_type(), v_.plan.local_offset[id.index])));
}

}  // namespace hpvm::opencl
