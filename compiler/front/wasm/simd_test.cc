// SPDX-License-Identifier: Apache-2.0
// Every v128 instruction on its own, lowered without the rest of the front end.
#include "compiler/front/wasm/simd.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "gtest/gtest.h"
#include "wabt/opcode.h"

#include "compiler/front/wasm/testing/v128_golden.h"
#include "compiler/ir/interpret.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::wasm {
namespace {

using ir::Opcode;
using ir::Type;
using ir::ValueId;

const std::string kGolden = HPVMD_SOURCE_DIR "/tests/golden/wasm_simd/v128.golden";

// The fixed-width instructions by name.
const std::map<std::string, wabt::Opcode>& Instructions() {
  static const auto* const kInstructions = [] {
    auto* map = new std::map<std::string, wabt::Opcode>;
    for (uint32_t i = 0; i < wabt::Opcode::Invalid; ++i) {
      const wabt::Opcode opcode(static_cast<wabt::Opcode::Enum>(i));
      if (opcode.GetPrefix() == 0xfd && opcode.GetCode() < 0x100) {
        map->emplace(opcode.GetName(), opcode);
      }
    }
    return map;
  }();
  return *kInstructions;
}

std::optional<Type> ScalarType(wabt::Type type) {
  switch (type) {
    case wabt::Type::I32:
      return Type::kI32;
    case wabt::Type::I64:
      return Type::kI64;
    case wabt::Type::F32:
      return Type::kF32;
    case wabt::Type::F64:
      return Type::kF64;
    default:
      return std::nullopt;
  }
}

// A kernel whose instance i does the instruction on case i of its buffer.
class KernelBuilder {
 public:
  explicit KernelBuilder(Type address = Type::kI32) : address_type_(address) {
    module_.name = "simd";
    module_.is_memory64 = address == Type::kI64;
    module_.functions.emplace_back();
    module_.functions[0].name = "run";
    module_.functions[0].type.params = {address};
    module_.params = {{.name = "cases", .type = address}};
    module_.entry = ir::FunctionId(uint32_t{0});
  }

  ir::Module Build(wabt::Opcode opcode, const V128Immediate& immediate) {
    ir::Function& function = module_.functions[0];
    ir::Builder builder(function);
    SimdLowering simd(function, builder);
    const ValueId base = Address(builder, builder.BeginBody()[0]);
    OperandStack stack;
    const bool has_result = opcode.GetResultType() != wabt::Type::Void;
    for (int i = 1; i <= 3 && opcode.GetParamType(i) != wabt::Type::Void; ++i) {
      if (i == 1 && opcode.GetMemorySize() > 0) {
        stack.Push(has_result ? base : AddTo(builder, base, kV128ResultAt));
      } else {
        PushOperand(builder, opcode.GetParamType(i), base, 16 * static_cast<uint64_t>(i - 1), stack);
      }
    }
    SimdInstr instr{.opcode = opcode, .source = 7, .lane = immediate.lane, .offset = immediate.offset, .bytes = {}};
    std::copy(immediate.bytes.begin(), immediate.bytes.end(), instr.bytes.begin());
    simd.Lower(instr, stack);
    if (has_result) {
      StoreResult(builder, opcode.GetResultType(), base, stack);
    }
    EXPECT_EQ(stack.size(), 0u);
    builder.Return({});
    simd.Finish();
    return std::move(module_);
  }

 private:
  ValueId AddTo(ir::Builder& builder, ValueId address, uint64_t bytes) {
    ir::Op op{.code = Opcode::kAdd};
    op.type = address_type_;
    return builder.Append1(op, std::array{address, builder.Const(address_type_, bytes)}, address_type_);
  }
  ValueId Address(ir::Builder& builder, ValueId buffer) {
    const ValueId id = builder.Append1({.code = Opcode::kInstanceId, .type = address_type_},
                                       std::array{builder.Const(Type::kI32, 0)}, address_type_);
    const std::array product = {id, builder.Const(address_type_, kV128CaseBytes)};
    const ValueId offset = builder.Append1({.code = Opcode::kMul, .type = address_type_}, product, address_type_);
    return builder.Append1({.code = Opcode::kAdd, .type = address_type_}, std::array{buffer, offset}, address_type_);
  }
  static ir::Op Access(Opcode code, Type type, uint64_t offset) {
    ir::Op op{.code = code};
    op.type = type;
    op.width = static_cast<uint8_t>(ir::Bytes(type));
    op.imm = offset;
    return op;
  }
  void PushOperand(ir::Builder& builder, wabt::Type type, ValueId base, uint64_t at, OperandStack& stack) {
    if (const std::optional<Type> scalar = ScalarType(type)) {
      stack.Push(builder.Append1(Access(Opcode::kLoad, *scalar, at), std::array{base}, *scalar));
      return;
    }
    V128 words;
    for (size_t i = 0; i < 4; ++i) {
      words[i] = builder.Append1(Access(Opcode::kLoad, Type::kI32, at + 4 * i), std::array{base}, Type::kI32);
    }
    stack.PushV128(words);
  }
  void StoreResult(ir::Builder& builder, wabt::Type type, ValueId base, OperandStack& stack) {
    if (const std::optional<Type> scalar = ScalarType(type)) {
      builder.Append(Access(Opcode::kStore, *scalar, kV128ResultAt), std::array{base, stack.Pop()}, {});
      return;
    }
    const V128 words = stack.PopV128();
    for (size_t i = 0; i < 4; ++i) {
      builder.Append(Access(Opcode::kStore, Type::kI32, kV128ResultAt + 4 * i), std::array{base, words[i]}, {});
    }
  }

  Type address_type_;
  ir::Module module_;
};

ir::TrapReport RunCases(const ir::Module& module, uint64_t instances, std::vector<uint8_t>& memory) {
  ir::Launch launch;
  launch.extent[0] = instances;
  std::vector<uint64_t> aligned((memory.size() + 7) / 8);
  std::memcpy(aligned.data(), memory.data(), memory.size());
  launch.arguments.push_back({reinterpret_cast<uint8_t*>(aligned.data()), memory.size(), 0});
  const auto report = ir::Interpret(module, launch);
  EXPECT_TRUE(report.ok()) << report.status();
  std::memcpy(memory.data(), aligned.data(), memory.size());
  return report.ok() ? *report : ir::TrapReport{.code = ir::TrapCode::kStopped};
}

// The instructions give what V8 gives.
TEST(SimdTest, ComputesAsV8Does) {
  std::set<std::string> tested;
  for (const V128Group& group : ReadV128Golden(kGolden)) {
    const auto instruction = Instructions().find(group.name);
    ASSERT_NE(instruction, Instructions().end()) << group.name;
    tested.insert(group.name);
    const ir::Module module = KernelBuilder().Build(instruction->second, group.immediate);
    const Diagnostics faults = ir::Verify(module);
    ASSERT_TRUE(faults.empty()) << ToString(faults) << ir::Print(module);
    std::vector<uint8_t> memory = group.memory;
    ASSERT_EQ(RunCases(module, group.cases(), memory).code, ir::TrapCode::kNone) << group.name;
    for (size_t i = 0; i < group.cases(); ++i) {
      const uint8_t* const found = &memory[i * kV128CaseBytes];
      EXPECT_TRUE(SameV128(group.name, found + kV128ResultAt, &group.want[16 * i]))
          << group.name << ' ' << group.immediate.text << ' ' << HexOf(&group.memory[i * kV128CaseBytes], 48)
          << "\nfound " << HexOf(found + kV128ResultAt, 16) << "\nwant  " << HexOf(&group.want[16 * i], 16);
      EXPECT_EQ(std::memcmp(found, &group.memory[i * kV128CaseBytes], kV128ResultAt), 0) << group.name;
    }
  }
  EXPECT_EQ(tested.size(), 236u);
  EXPECT_EQ(Instructions().size(), 236u);
}

}  // namespace
}  // namespace hpvm::wasm
