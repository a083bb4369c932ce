// SPDX-License-Identifier: Apache-2.0
// Internals of the generator, spread over generate.cc (the module and its launch), generate_expression.cc and
// generate_statement.cc.
#ifndef HPVMD_TESTS_DIFF_GENERATOR_H_
#define HPVMD_TESTS_DIFF_GENERATOR_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/diff/generate.h"
#include "tests/diff/program.h"
#include "tests/diff/random.h"

namespace hpvm::diff {

// Bytes of memory that an instance may use freely.
struct Area {
  uint32_t local = 0;   // The entry's local that holds the base.
  uint32_t global = 0;  // The global that holds the base, for other functions.
  bool is_absolute = false;
  uint32_t base = 0;    // For absolute areas.
  uint32_t bytes = 64;  // A power of two.
  bool is_writable = true;
};

class Generator {
 public:
  Generator(uint64_t seed, const Features& features);
  Program Run();

 private:
  // The features of this program.
  struct Swarm {
    bool simd = false, floats = true, wide = true, atomics = false, bulk = false, grow = false, traps = false;
    bool calls = true, loops = true, tables = false, block_params = false, wild = false, references = false;
    bool tiny = false;  // A few statements: many such programs cost little and reach most pairs of instructions.
  };
  struct Label {
    uint32_t id = 0;
    std::vector<ValueType> types;
  };
  struct Callee {
    bool is_recursive = false;  // Its first parameter bounds the depth.
    bool is_leaf = false;       // In the table; calls no function.
  };

  // generate.cc
  void ChooseSwarm(const Features& features);
  void ChooseLaunch();
  void ChooseParams();
  void AddParam(uint32_t bytes, bool is_writable, bool is_sliced);
  void AddShared();
  void ChooseMemory();
  void ChooseGlobals();
  void ChooseFunctions();
  void FillTable();
  void GenerateFunction(uint32_t index);
  void GenerateEntry();
  void AddLocals();
  void ChooseBudget(uint32_t parts);
  std::vector<Node> Prologue();
  Node LinearId();
  void AllocateGroupMemory(std::vector<Node>& body);
  Node Bits(Node value);
  void Observe(std::vector<Node>& body);
  void FillLocals(std::vector<Node>& body);
  void FillBytes(std::vector<uint8_t>& bytes);
  std::vector<ValueType> Types(uint32_t count_max);

  // generate_expression.cc
  Node Expression(ValueType type);
  Node Leaf(ValueType type);
  Node Constant(ValueType type);
  uint64_t ConstantBits(ValueType type);
  Node Operate(uint32_t row);
  Node OperateFor(ValueType type);
  Node Address(uint32_t width, bool for_store, bool is_aligned, uint32_t* offset);
  Node Masked(uint32_t mask);
  Node BaseOf(const Area& area);
  Node Query(ValueType type);
  Node Select(ValueType type);
  Node ValueOfCall(ValueType type);
  Node ValueOfBranch(ValueType type);
  Node MinMaxAtomic(ValueType type);
  Node Canonical(Node value);
  Node Grow();
  Node TableNode(TableOp op, std::vector<Node> operands);
  Node Reference();
  Node TableQuery();
  Node Small(uint32_t mask);

  // generate_statement.cc
  Node Statement();
  void Statements(uint32_t count, std::vector<Node>& body);
  Node Store();
  Node UpdateShared();
  Node Assign();
  Node Branch();
  Node BranchTable();
  Node Terminator();
  Node Trap();
  Node Bulk();
  Node InitMemory();
  Node TableStatement();
  Node CallStatement();
  Node Recurse();
  Node Consume(Node value, const std::vector<ValueType>& types);
  Node Call(uint32_t function, bool is_indirect);
  std::vector<Node> Arguments(const Signature& type, bool is_recursive);
  Node Block(NodeKind kind, const std::vector<ValueType>& results);
  Node Loop(const std::vector<ValueType>& results);
  void CountedLoop(Node& loop, const Node& outer, uint32_t counter);
  void PopParams(const std::vector<ValueType>& params, std::vector<Node>& body);
  void Body(const std::vector<ValueType>& results, std::vector<Node>& body);
  void Exchange(std::vector<Node>& body);
  void ExchangeOnce(std::vector<Node>& body);

  // Small pieces.
  Node Const32(uint64_t value) { return ConstOf(ValueType::kI32, value); }
  static Node ConstOf(ValueType type, uint64_t bits);
  static Node Get(uint32_t local, ValueType type);
  static Node Set(uint32_t local, Node value);
  static Node Operation(uint32_t prefix, uint32_t code, std::vector<Node> operands);
  static Node Pin(Node node);
  Node ToAddress(Node value32);
  uint32_t NewLocal(ValueType type, bool may_write);
  uint32_t WritableLocal(ValueType type);
  bool InEntry() const { return function_index_ == 0; }

  Random random_;
  Program program_;
  Swarm swarm_;
  std::vector<ValueType> types_;  // The types in use.
  std::vector<Area> areas_;
  std::vector<Callee> callees_;
  std::vector<uint32_t> referable_;          // Functions of one type, referenced by the second table.
  std::vector<std::vector<uint32_t>> rows_;  // Operators by result; the last list has those without one.
  // The current function.
  Function* function_ = nullptr;
  uint32_t function_index_ = 0;
  std::array<std::vector<uint32_t>, kValueTypes> readable_, writable_;
  std::vector<Label> labels_;
  uint32_t next_label_ = 1;
  int budget_ = 0;
  int depth_ = 0;
  uint32_t iterations_ = 1;  // Product of the trip counts of the enclosing loops.
  // A buffer shared by all instances, which one commutative atomic operation updates; no operation when the row is 0.
  uint32_t shared_param_ = 0, shared_row_ = 0;
  // Barrier kernels.
  uint32_t group_local_ = 0, group_slot_ = 0, group_slots_ = 1;
};

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_GENERATOR_H_
