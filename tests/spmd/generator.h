// SPDX-License-Identifier: Apache-2.0
// Builds one random kernel. Internal to this folder.
//
// Results must not depend on the order of instances: each writes only its own cells of a buffer, reads besides them
// only buffers that nothing writes, and updates shared cells with one commuting atomic operation per buffer, whose
// old value it drops. Loops end: each has a counter that every back edge advances.
#ifndef HPVMD_TESTS_SPMD_GENERATOR_H_
#define HPVMD_TESTS_SPMD_GENERATOR_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"
#include "tests/diff/random.h"
#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::Type;
using ir::ValueId;

// Properties of the whole kernel.
struct Traits {
  uint32_t dimensions = 1;
  // Percentage of the operations that may trap which are left unguarded; nothing traps when 0.
  uint32_t risk = 0;
  bool is_memory64 = false;
  bool has_flat = false;    // Some accesses use the flat space, as front ends emit them; otherwise all use param(k).
  bool has_tables = false;  // A table in module memory.
  bool is_refused = false;  // Constructs that force one instance at a time.
  bool has_groups = false;  // Barriers and group memory.
};

struct BufferInfo {
  enum class Role : uint8_t { kInput, kOwn, kShared, kDigest };
  // Layout of the instances' cells.
  enum class Layout : uint8_t { kStraight, kReversed, kByElement, kTransposed, kPermuted, kSpread };
  Role role = Role::kInput;
  uint32_t param = 0;
  uint32_t width = 4;     // Bytes of an element.
  uint32_t elements = 1;  // For kOwn: elements of a cell.
  uint64_t count = 0;     // Total number of elements.
  uint32_t mask = 0;      // A power of two minus one, below `count`.
  uint32_t float_bytes = 0;
  Layout layout = Layout::kStraight;
  Opcode atomic = Opcode::kAtomicAdd;  // For kShared.
  bool is_denormal = false;            // For kShared floats: the addends are denormal.
  ValueId index;                       // For kOwn: index of the cell's first element, as an i32.
  uint32_t stride = 1;                 // For kOwn: distance in elements between the elements of a cell.
};

// A function that the kernel calls.
struct Helper {
  ir::FunctionType type;
  uint32_t index = 0;             // In Module::functions.
  bool is_recursive = false;      // Its first parameter is the depth.
  std::optional<uint32_t> input;  // In buffers_: the last parameter is its address.
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) { kernel_.seed = seed; }
  Kernel Generate() &&;

 private:
  struct Slot {
    ValueId id;
    Type type;
    bool is_uniform = false;  // Only a hint.
  };
  // A loop's parameter: the value that each back edge passes, or any of that type.
  struct Carried {
    Type type;
    ValueId next;  // Any value when invalid.
  };
  struct Label {
    OpId op;
    std::vector<Type> results;
    bool may_continue = false;
    std::vector<Carried> carried;
  };
  // The function being built.
  struct Body {
    ir::Function function;
    std::optional<ir::Builder> builder;
    std::vector<Slot> pool;
    std::vector<Label> labels;
    const Helper* helper = nullptr;  // Null in the entry.
    std::vector<ValueId> addresses;  // Indexed by buffer; invalid where the function has none.
    uint32_t loops = 0;              // Loops around the current position.
    uint32_t calls_left = 0;
  };

  // --- generate.cc
  void PickTraits();
  void PickBuffers();
  void AddBuffer(BufferInfo info, Binding::Fill fill);
  void AddInput(bool is_permutation);
  void AddOwn();
  void AddShared();
  void AddScalars();
  void AddTable();
  void PickHelpers();
  void BuildEntry();
  void BuildHelper(const Helper& helper);
  void PlaceCells(ValueId x, ValueId y, ValueId z);
  ValueId CellIndex(BufferInfo& buffer, ValueId x, ValueId y, ValueId z, ValueId linear);
  void AddQueries();
  void LoadSeeds();
  void StoreResults();

  // --- generate_expression.cc
  ir::Builder& b() { return *body_->builder; }
  OpId Emit(Op op, std::span<const ValueId> operands, std::span<const Type> results);
  ValueId Emit1(Op op, std::initializer_list<ValueId> operands, Type result);
  ValueId Binary(Opcode code, Type type, ValueId a, ValueId b);
  ValueId Compare(Opcode code, Type type, ValueId a, ValueId b);
  ValueId Unary(Opcode code, Type type, ValueId a);
  ValueId Convert(Opcode code, Type from, ValueId a, Type to);
  ValueId Int(Type type, uint64_t bits) { return b().Const(type, bits); }
  Type AnyType();
  void Keep(ValueId id, Type type, bool is_uniform = false) { body_->pool.push_back({id, type, is_uniform}); }
  ValueId Constant(Type type);
  ValueId Pick(Type type);  // An existing value, or a constant.
  ValueId PickUniform(Type type);
  ValueId Value(Type type, uint32_t depth);
  ValueId IntValue(Type type, uint32_t depth);
  ValueId FloatValue(Type type, uint32_t depth);
  ValueId Divide(Type type, uint32_t depth);
  void AddEdges(ValueId x);
  ValueId EdgeValue(Type type, ValueId moved);
  ValueId Truncate(Type type, uint32_t depth);
  ValueId Condition();
  ValueId UniformCondition();
  ValueId NoNan(Type type, ValueId value);  // Makes NaNs canonical, so that all engines agree.
  ValueId Masked(ValueId value, uint32_t mask) {
    return Binary(Opcode::kAnd, Type::kI32, value, Int(Type::kI32, mask));
  }

  // --- generate_memory.cc
  ValueId AddressOf(ValueId base, ValueId element, uint32_t width, bool is_param);
  // Fields of a load or store; the address is `element` * `width` in the buffer.
  Op Access(Opcode code, Type type, uint32_t buffer, uint32_t width, ValueId element, ValueId* address);
  void LoadInput();
  ValueId InputElement(uint64_t count, uint32_t* imm_elements);
  ValueId PowerElement(uint64_t count, bool may_miss);
  void LoadTable();
  bool StoreCell(uint32_t own);
  void StoreOwn();
  void LoadOwn();
  ValueId OwnElement(const BufferInfo& buffer);
  void UpdateOwn();  // An atomic operation on the instance's own cell.
  ValueId Addend(const BufferInfo& buffer);
  void UpdateShared();
  void WalkInput();  // A loop that advances a pointer.
  void StoreModule();
  std::optional<uint32_t> PickBuffer(BufferInfo::Role role);

  // --- generate_stack.cc. Does nothing when the kernel has no frame.
  void AddStack();
  void OpenStack();
  void CloseStack();
  void SetStack(ValueId pointer);
  Op StackSlot(Opcode code, Type type, uint32_t width, ValueId* address);
  void StackStatement();  // A load or a store.

  // --- generate_group.cc. Barriers are only where every instance of a group passes.
  void AllocateGroupMemory();
  void GroupStatements(uint32_t count);
  void Exchange();  // Each instance puts a value into group memory and takes another's.
  void UniformLoop();
  void UniformIf();
  void OwnStatements(uint32_t count);  // None of them leaves the region.

  // --- generate_statement.cc
  void Statements(uint32_t count);
  void Statement();
  void IfStatement();
  void GuardedStatement();  // An operation that could trap, under the condition that it does not.
  void BlockStatement();
  void LoopStatement();
  void TableStatement();
  void JumpStatement();  // if (condition) leave, continue, return or trap.
  void CallStatement();
  bool EndElsewhere();  // Ends the region with a jump out of an enclosing one, if there is any.
  void LeaveTo(size_t label);
  void ContinueTo(size_t label);
  void ReturnNow();
  std::vector<Type> ResultTypes();
  std::vector<ValueId> Values(std::span<const Type> types);
  ValueId LoopLimit(bool* is_uniform);
  // Runs `fill` in an open region, whose values are forgotten afterwards.
  template <typename Fill>
  void InRegion(Fill fill) {
    const size_t kept = body_->pool.size();
    fill();
    body_->pool.resize(kept);
  }

  diff::Random random_;
  Kernel kernel_;
  Traits traits_;
  std::vector<BufferInfo> buffers_;
  std::vector<Helper> helpers_;
  std::vector<std::pair<uint32_t, Type>> scalars_;  // Parameters.
  Body* body_ = nullptr;
  ValueId linear_;                     // The instance's number, an i32; in the entry only.
  ValueId group_memory_, group_slot_;  // An address; the instance's number in its group.
  uint32_t group_slots_ = 0;
  uint32_t digest_ = 0;       // In buffers_.
  uint32_t frame_bytes_ = 0;  // On the shadow stack, a power of two; none when 0.
  bool only_eights_ = false;  // Accesses to it.
  ValueId top_, frame_;       // The frame's ends, in the entry.
  uint32_t source_ = 0;
  uint32_t budget_ = 0;  // Statements left.
  uint32_t depth_ = 0;
};

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_GENERATOR_H_
