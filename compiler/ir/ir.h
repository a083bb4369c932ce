// SPDX-License-Identifier: Apache-2.0
// The kernel IR: front ends build it, back ends read it.
//
// Shape. A Module holds functions; a Function holds one body region; a Region is a list of operations and ends in
// exactly one terminator. Control flow is structured: `block`, `loop` and `if` are operations that own regions, take
// typed arguments and yield typed results.
//   block (a: T...) -> (R...) { ... }    runs its region once
//   loop  (a: T...) -> (R...) { ... }    `continue` runs the region again with new arguments
//   if cond -> (R...) { ... } else { ... }   both regions always exist; neither takes arguments
// Terminators:
//   br target(values)      ends `target`, an enclosing block, loop or if; the values become its results. Falling
//                             out of a region is a `leave` of the operation that owns it: no flow is implicit.
//   continue loop(values)     starts the next iteration of an enclosing loop.
//   return(values)            ends the function.
//   br_table i [t0, t1, ..., default](values)
//                             picks a target by an i32 (a `br_table`); a target is a br or a continue.
//   trap code                 ends the instance.
// Values are SSA: each is defined once, by an operation or as a parameter of a region or function, and used only
// after the definition, inside the region that defines it or regions nested in it. There are no phis and no mutable
// locals.
//
// Ids are 32-bit indices into the Function's arenas. An operation never moves in the arena; passes edit the regions'
// lists. verify.h lists the invariants. text.h specifies the strict text form. docs/KERNELS.md defines addresses,
// traps and barriers.
//
// Threads: a Module is plain data; concurrent reading is safe.
#ifndef HPVMD_COMPILER_IR_IR_H_
#define HPVMD_COMPILER_IR_IR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace hpvm::ir {

enum class Type : uint8_t { kI32, kI64, kF32, kF64 };
constexpr uint32_t Bytes(Type type) { return type == Type::kI32 || type == Type::kF32 ? 4 : 8; }
constexpr bool IsInt(Type type) { return type == Type::kI32 || type == Type::kI64; }
std::string_view Name(Type type);  // Returns "i32" and so on.
// Returns the number that the low bits, as many as the type has, stand for as a signed integer; higher bits are
// ignored.
constexpr int64_t SignedBits(Type type, uint64_t bits) {
  return Bytes(type) == 4 ? int64_t{static_cast<int32_t>(static_cast<uint32_t>(bits))} : static_cast<int64_t>(bits);
}

using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;
using RegionId = Id<struct RegionTag>;
using FunctionId = Id<struct FunctionTag>;

// The memory that a memory operation's base refers to.
//   flat    any address of the instance's virtual space: module memory, a parameter's buffer or group memory, located
//           by range.
//   param   `space_index` is the kernel parameter k; the operand is a byte offset from its base address, computed in
//           the address type. An offset outside the buffer means the flat address base(k) + offset (it may lie in
//           another buffer, or trap).
//   module  the operand is an address known to lie in module memory's range if it is valid at all.
//   stack   the operand is an address in Module::stack_frame; elsewhere the access traps. The frame's memory is private
//           to the instance and begins as zeros; no understood access of another space reaches it.
//   private `space_index` names a value that an instance keeps across barriers.
//   group   the operand is an address returned by `local_alloc`, or derived from it, expected in group-local memory;
//           elsewhere it means the same as in space flat.
//   state   bytes private to an instance that no address reaches: tables, the remaining sizes of segments, the memory
//           of the math library. The operand is an i32 offset in [0, Module::state_bytes); outside, the access traps as
//           out of bounds.
//   scratch the same bytes, by the same offsets, for stores of data that the next instance writes before it reads them
//           (the math library's stack): they need not be restored, so they do not count as written state.
enum class Space : uint8_t { kFlat, kParam, kModule, kStack, kPrivate, kGroup, kState, kScratch };
constexpr bool IsState(Space space) { return space == Space::kState || space == Space::kScratch; }
std::string_view Name(Space space);

// Effects of an operation besides producing its results; passes check them before moving or removing it.
enum Effect : uint8_t {
  kPure = 0,
  kReads = 1,     // Memory or globals.
  kWrites = 2,    // Memory or globals.
  kTraps = 4,     // May end the instance.
  kSyncs = 8,     // Waits for other instances.
  kControl = 16,  // Ends or owns a region.
};

// The table of operations (opcodes.def): enumerator, text name, effects, family. A new operation needs one line in
// the table, and a case in its family's file in each of: verify, interpreter, back ends.
enum class Family : uint8_t {
  kConst,
  kIntUnary,
  kIntBinary,
  kIntCompare,
  kFloatUnary,
  kApprox,
  kFloatBinary,
  kFloatCompare,
  kConvert,
  kSelect,
  kMemory,
  kAtomic,
  kGlobal,
  kCall,
  kQuery,
  kSync,
  kControl,
};
enum class Opcode : uint8_t {
#define HPVM_OP(name, text, effects, family) name,
#include "compiler/ir/opcodes.def"
#undef HPVM_OP
};
struct OpcodeInfo {
  Opcode code;
  std::string_view text;
  uint8_t effects;  // Bits of Effect.
  Family family;
};
const OpcodeInfo& Info(Opcode code);
// Returns the row of `code` in a table that has a row for each opcode from `first` on, in the order of opcodes.def.
template <typename Row, size_t kRows>
constexpr const Row& RowOf(const Row (&rows)[kRows], Opcode first, Opcode code) {
  const size_t row = static_cast<size_t>(code) - static_cast<size_t>(first);
  HPVMD_CHECK(row < kRows);
  return rows[row];
}
// Finds the opcode with that text name; returns false when there is none.
bool OpcodeFromText(std::string_view text, Opcode* code);
constexpr bool IsTerminator(Opcode code) {
  return code == Opcode::kBr || code == Opcode::kContinue || code == Opcode::kBrTable || code == Opcode::kReturn ||
         code == Opcode::kTrap;
}

// Reasons for which an instance ends early. Values are stable, because images and records contain them.
enum class TrapCode : uint32_t {
  kNone = 0,
  kUnreachable = 1,
  kOutOfBounds = 2,
  kDivideByZero = 3,
  kIntegerOverflow = 4,    // The quotient, or the float to be converted, is out of range.
  kInvalidConversion = 5,  // Float to integer: the float is a NaN.
  kIndirectCall = 6,       // The called function has another type than the call names.
  kStackOverflow = 7,
  kMisalignedAtomic = 8,
  kBarrierDivergence = 9,  // Some instance of a group has ended or waits at another barrier.
  kAssert = 10,
  kGroupMemoryExhausted = 11,
  kReadOnlyBuffer = 12,        // A store into an `in` port's buffer.
  kTableOutOfBounds = 13,      // Table instructions except call_indirect.
  kUndefinedElement = 14,      // An indirect call's index is outside the table.
  kUninitializedElement = 15,  // An indirect call through a null reference.
  kExpectedShared = 16,        // An atomic wait on memory that is not shared.
  kWaitsForever = 17,          // An atomic wait that nothing can end.
  kHost = 18,                  // A function of another module ended early (hpvm-wast only).
  kStopped = 100,              // Not a fault of the kernel: the stop word was set.
  // A fault of the compiler: an access that was proven to stay inside its buffer leaves it. Only code that audits
  // proofs checks for it (compiler/api/audit.h); the host process then terminates.
  kWrongProof = 101,
};
std::string_view Name(TrapCode code);  // Returns "out of bounds memory access" and so on.

struct Target {
  OpId op{};                 // An enclosing block, loop or if.
  bool is_continue = false;  // For loops only.
};

// One operation. The opcode determines which fields are meaningful (opcodes.def).
struct Op {
  Opcode code;
  // The type in which it computes: for comparisons and conversions, the operands' type, else the result's type.
  Type type = Type::kI32;
  Space space = Space::kFlat;  // For memory operations and atomics.
  // For memory operations and atomics: number of bytes accessed, 1, 2, 4 or 8, at most Bytes(type); 16 for load128
  // and store128.
  uint8_t width = 0;
  bool sign = false;  // For narrow loads: sign-extend.
  // For loads and stores of kParam: preceding code has checked that the bytes lie in the buffer, and for a store that
  // the buffer is writable. Only a pass sets this (compiler/pass/tile/guard_loops.h).
  bool is_inside = false;
  uint32_t space_index = 0;  // For kParam, kPrivate.
  // const: the bits; memory: the offset that is added to the address without wrapping; global, call: the index.
  uint64_t imm = 0;
  uint32_t source = 0;  // Byte offset in the module's file, for traps and explanations; 0 when unknown.
  // 1 + the index of the function in which an inlined operation was written; 0 for the function that contains it.
  uint32_t origin = 0;
  uint32_t first_operand = 0, operand_count = 0;  // Index in Function::operands.
  ValueId first_result{};                         // Results are consecutive.
  uint32_t result_count = 0;
  RegionId body{}, otherwise{};                 // block, loop: body; if: body and otherwise.
  uint32_t first_target = 0, target_count = 0;  // For terminators; index in Function::targets.
};

struct Value {
  Type type;
};

struct Region {
  OpId owner;           // Invalid for a function's body.
  ValueId first_param;  // For block and loop, the arguments; for a body, the function's parameters. Consecutive.
  uint32_t param_count = 0;
  std::vector<OpId> ops;  // The last one is the terminator.
};

struct FunctionType {
  std::vector<Type> params;
  std::vector<Type> results;
  friend bool operator==(const FunctionType&, const FunctionType&) = default;
};

// The extent to which "math": "fast" of a node may change a function's code. The math library depends on the order of
// its operations, so it is never reassociated; its functions for fast math permit contraction.
enum class FastMath : uint8_t { kAll, kContract, kNone };

struct Function {
  std::string name;  // For people; need not be unique.
  FunctionType type;
  FastMath fast_math = FastMath::kAll;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<Region> regions;
  std::vector<ValueId> operands;
  std::vector<Target> targets;
  RegionId body;

  const Op& op(OpId id) const { return ops[id.index]; }
  Op& op(OpId id) { return ops[id.index]; }
  const Region& region(RegionId id) const { return regions[id.index]; }
  Region& region(RegionId id) { return regions[id.index]; }
  Type type_of(ValueId id) const { return values[id.index].type; }
  template <typename Values>
  std::vector<Type> types_of(const Values& ids) const {
    std::vector<Type> types;
    for (const ValueId id : ids) {
      types.push_back(type_of(id));
    }
    return types;
  }
  std::span<const ValueId> operands_of(const Op& op) const {
    return {operands.data() + op.first_operand, op.operand_count};
  }
  std::span<const Target> targets_of(const Op& op) const { return {targets.data() + op.first_target, op.target_count}; }
};

struct Global {
  Type type;
  bool is_mutable = false;
  uint64_t init = 0;  // The bits.
};

// Bytes of module memory in its initial state. Segments do not overlap and are sorted; bytes outside segments are
// zero.
struct DataSegment {
  uint64_t address = 0;
  std::vector<uint8_t> bytes;
};

// The target of a function reference. The value of a reference is an i32: 0 is null, r names references[r -
// Module::first_reference].
struct Reference {
  FunctionId function;
  uint32_t type = 0;  // Index in Module::reference_types.
};

// A kernel parameter, in the order of the entry's parameters.
struct KernelParam {
  std::string name;
  bool is_buffer = true;    // For buffers, the value is the base address, of the module's address type.
  bool is_writable = true;  // For buffers: false for `in` ports; a store traps with kReadOnlyBuffer.
  Type type = Type::kI32;   // For scalars, the type; for buffers, the address type.
  bool is_read = true;      // For buffers, only informative: false for `out` ports.
};

// The part of the shadow stack that a kernel uses, as addresses of module memory: the memory of Space::kStack. All
// accesses are aligned to the smaller of their width and the unit.
struct StackFrame {
  uint64_t begin = 0, end = 0;  // Multiples of 8.
  uint32_t unit = 4;            // In bytes, 4 or 8; with 8, every access has this width.
  uint64_t bytes() const { return end - begin; }
  // `lowest` is the lowest address at which an access of that width touches the frame; `places` counts such
  // addresses.
  uint64_t lowest(uint64_t width) const { return begin - (width - 1 < begin ? width - 1 : begin); }
  uint64_t places(uint64_t width) const { return end - lowest(width); }
};

struct Module {
  std::string name;
  bool is_memory64 = false;       // Addresses are i64 instead of i32.
  uint64_t memory_bytes = 0;      // Initial module memory, a multiple of 64 KiB, at [0, memory_bytes).
  uint64_t memory_bytes_max = 0;  // Limit for memory_grow; parameter buffers lie above. >= memory_bytes.
  std::vector<DataSegment> data;
  std::vector<Global> globals;
  // References and their types. The index alone distinguishes types: the front end gives equal source types one
  // index, and gives different source types that look alike here (a reference is an i32) different indices.
  std::vector<Reference> references;
  std::vector<FunctionType> reference_types;
  // The store's number of references[0]. 1 for kernels. A module of hpvm-wast shares a store with others: references
  // outside its own go to Launch::host.
  uint32_t first_reference = 1;
  bool is_linked = false;
  uint64_t state_bytes = 0;                            // Bytes of Space::kState.
  std::vector<DataSegment> state;                      // Initial content of the state, in the same form as `data`.
  std::vector<std::vector<uint8_t>> passive_segments;  // Constant; memory_init refers to one by index.
  // In printf's syntax; print refers to one by index. All prints of one format have operands of the same types.
  std::vector<std::string> formats;
  // The global that points to the shadow stack in module memory, when the front end knows it: the stack lies between
  // the global's value and its initial value. For the checker (check.h).
  std::optional<uint32_t> stack_pointer;
  std::optional<StackFrame> stack_frame;  // Set by a pass (compiler/pass/memory/promote_stack.h).
  std::vector<Function> functions;
  FunctionId entry;  // The kernel. Its parameters are `params`; it returns nothing.
  std::vector<KernelParam> params;
  bool uses_barrier = false;       // True when some reachable function has a barrier.
  bool uses_group_memory = false;  // True when some reachable function calls local_alloc.
  // True when every address derived from a buffer serves only accesses to that buffer, all of space param(k), and
  // nothing else observes such an address; set by a pass. A launch may then give each buffer an address space of its
  // own.
  bool has_separate_buffers = false;

  Type address_type() const { return is_memory64 ? Type::kI64 : Type::kI32; }
  const Function& function(FunctionId id) const { return functions[id.index]; }
  Function& function(FunctionId id) { return functions[id.index]; }
};

// Appends operations to a function. Regions are opened and closed like brackets.
//   Builder b(function);  b.BeginBody(...); ValueId x = b.Add(Opcode::kConst, ...); ... b.Return({x});
class Builder {
 public:
  explicit Builder(Function& function) : f_(function) {}

  // Creates the body region with the function type's parameters and makes it current. The span lives as long as the
  // builder.
  std::span<const ValueId> BeginBody();
  // Appends a plain operation to the current region. `op` provides everything except operands and results. Returns
  // the operation; its results are consecutive from first_result.
  OpId Append(Op op, std::span<const ValueId> operands, std::span<const Type> results);
  ValueId Append1(Op op, std::span<const ValueId> operands, Type result);
  ValueId Const(Type type, uint64_t bits);

  // Opens a block or loop: the arguments are its operands, and its region's parameters have their types.
  OpId BeginBlock(Opcode block_or_loop, std::span<const ValueId> arguments, std::span<const Type> results,
                  uint32_t source = 0);
  // Opens an if; its first region becomes current, Else() switches to the second.
  OpId BeginIf(ValueId condition, std::span<const Type> results, uint32_t source = 0);
  void Else();
  // Closes the innermost block, loop or if. Every region of it must already have its terminator.
  void End();

  // These append a terminator to the current region.
  void Leave(OpId target, std::span<const ValueId> values, uint32_t source = 0);
  void Continue(OpId loop, std::span<const ValueId> values, uint32_t source = 0);
  void BrTable(ValueId index, std::span<const Target> targets, std::span<const ValueId> values, uint32_t source = 0);
  void Return(std::span<const ValueId> values, uint32_t source = 0);
  void Trap(TrapCode code, uint32_t source = 0);
  // Appends a terminator like another one, whose operands and targets are ignored. A jump with a single target
  // becomes a br or a continue, as the target says.
  void Terminate(const Op& like, std::span<const ValueId> operands, std::span<const Target> targets);

  std::vector<ValueId> Params(OpId block_or_loop) const;
  std::vector<ValueId> Results(OpId op) const;
  // Returns true when the current region already ends in a terminator.
  bool Terminated() const;
  // Returns the open regions, outermost first; the last one is current. Values defined in them so far can be used.
  std::span<const RegionId> open() const { return open_; }

 private:
  ValueId NewValues(std::span<const Type> types);

  Function& f_;
  std::vector<RegionId> open_;
  std::vector<ValueId> body_params_;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_IR_H_
