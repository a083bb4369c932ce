// SPDX-License-Identifier: Apache-2.0
// Tests every v128 instruction alone, lowered without the rest of the front end.
#include "compiler/front/wasm/lower/simd.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "gtest/gtest.h"
#include "wabt/opcode.h"

#include "compiler/front/wasm/testing/v128_golden.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"

namespace hpvm::wasm {
namespace {

using ir::Opcode;
using ir::Type;
using ir::ValueId;

const std::string kGolden = HPVMD_SOURCE_DIR "/tests/golden/wasm_simd/v128.golden";

// Returns the fixed-width instructions by name.
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

// Builds a kernel whose instance i runs the instruction on case i of its buffer.
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
    const size_t before = function.ops.size();
    simd.Lower(instr, stack);
    const size_t after = function.ops.size();
    if (has_result) {
      StoreResult(builder, opcode.GetResultType(), base, stack);
    }
    EXPECT_EQ(stack.size(), 0u);
    builder.Return({});
    simd.Finish();
    ir::ForEachOp(function, [&](ir::OpId id) {
      size_ += id.index >= before && id.index < after && function.op(id).code != Opcode::kConst;
    });
    return std::move(module_);
  }
  // Returns the number of operations, without constants, that the instruction became.
  size_t size() const { return size_; }

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
  size_t size_ = 0;
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

// The instructions give V8's results.
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

// Limits the number of IR operations per instruction. A chain costs less, since lanes between two instructions are
// not packed.
TEST(SimdTest, StaysSmall) {
  const auto limit = [](const std::string& name) -> size_t {
    if (name == "i8x16.swizzle") {
      return 200;
    }
    const bool is_packed = name.starts_with("i8x16.") || name.starts_with("i16x8.");
    return name.starts_with("i8x16.narrow") ? 116 : is_packed ? 76 : 30;
  };
  for (const V128Group& group : ReadV128Golden(kGolden)) {
    KernelBuilder kernel;
    kernel.Build(Instructions().at(group.name), group.immediate);
    EXPECT_LE(kernel.size(), limit(group.name)) << group.name;
  }
}

// Loads and stores reach the last bytes of a buffer. One byte further they trap at their file offset, without having
// written anything.
TEST(SimdTest, TrapsAtTheEdge) {
  size_t count = 0;
  for (const auto& [name, opcode] : Instructions()) {
    const uint64_t width = opcode.GetMemorySize();
    const uint64_t start = opcode.GetResultType() == wabt::Type::Void ? kV128ResultAt : 0;
    for (const Type address : {Type::kI32, Type::kI64}) {
      for (const uint64_t past : {0, 1, 16}) {
        if (width == 0) {
          continue;
        }
        ++count;
        const V128Immediate immediate{
            .text = "", .offset = kV128CaseBytes - width + past - start, .lane = 0, .bytes = {}};
        std::vector<uint8_t> memory(kV128CaseBytes);
        for (size_t i = 0; i < memory.size(); ++i) {
          memory[i] = static_cast<uint8_t>(i + 1);
        }
        const std::vector<uint8_t> before = memory;
        const ir::Module module = KernelBuilder(address).Build(opcode, immediate);
        ASSERT_EQ(ToString(ir::Verify(module)), "");
        const ir::TrapReport report = RunCases(module, 1, memory);
        EXPECT_EQ(report.code, past == 0 ? ir::TrapCode::kNone : ir::TrapCode::kOutOfBounds) << name << ' ' << past;
        if (past > 0) {
          EXPECT_EQ(report.source, 7u) << name;
          EXPECT_EQ(report.bytes, width) << name;
          EXPECT_EQ(memory, before) << name;
        }
      }
    }
  }
  EXPECT_EQ(count, 22u * 2 * 3);
}

// Lowers into a function of four i32, without the rest of a kernel.
class SimdScopeTest : public testing::Test {
 protected:
  SimdScopeTest() {
    function_.type = {{Type::kI32, Type::kI32, Type::kI32, Type::kI32}, {Type::kI32}};
    const auto params = builder_.BeginBody();
    input_ = {params[0], params[1], params[2], params[3]};
  }

  V128 Binary(wabt::Opcode opcode, const V128& a, const V128& b) {
    stack_.PushV128(a);
    stack_.PushV128(b);
    simd_.Lower({.opcode = opcode}, stack_);
    return stack_.PopV128();
  }
  // Counts operations that remain at the end.
  size_t Count(Opcode code) const {
    size_t count = 0;
    ir::ForEachOp(function_, [&](ir::OpId id) { count += function_.op(id).code == code; });
    return count;
  }
  std::string Faults() {
    ir::Module module;
    module.functions.push_back(function_);
    module.functions.emplace_back();
    module.functions[1].name = "run";
    ir::Builder entry(module.functions[1]);
    entry.BeginBody();
    entry.Return({});
    module.entry = ir::FunctionId(uint32_t{1});
    return ToString(ir::Verify(module));
  }

  ir::Function function_;
  ir::Builder builder_{function_};
  SimdLowering simd_{function_, builder_};
  OperandStack stack_;
  V128 input_;
};

// Known values are reused inside nested regions, but not after these end nor in the other branch of an if.
TEST_F(SimdScopeTest, ReusesWhatIsInScope) {
  const V128 first = Binary(wabt::Opcode::F32X4Add, input_, input_);
  const ir::OpId branch = builder_.BeginIf(input_[0], std::array{Type::kI32});
  EXPECT_EQ(Binary(wabt::Opcode::F32X4Add, input_, input_), first);
  const V128 inner = Binary(wabt::Opcode::F32X4Mul, input_, input_);
  EXPECT_EQ(Binary(wabt::Opcode::F32X4Mul, input_, input_), inner);
  builder_.Leave(branch, std::array{inner[1]});
  builder_.Else();
  const V128 other = Binary(wabt::Opcode::F32X4Mul, input_, input_);
  EXPECT_NE(other, inner);
  builder_.Leave(branch, std::array{other[1]});
  builder_.End();
  const V128 last = Binary(wabt::Opcode::F32X4Mul, input_, input_);
  EXPECT_NE(last, inner);
  EXPECT_NE(last, other);
  const ir::OpId loop = builder_.BeginBlock(Opcode::kLoop, {}, {});
  EXPECT_EQ(Binary(wabt::Opcode::F32X4Mul, input_, input_), last);
  builder_.Leave(loop, {});
  builder_.End();
  builder_.Return(std::array{last[2]});
  EXPECT_EQ(Faults(), "");
  simd_.Finish();
  EXPECT_EQ(Faults(), "");
  EXPECT_EQ(Count(Opcode::kFMul), 3u);
  EXPECT_EQ(Count(Opcode::kFAdd), 0u);
}

// A chain of float instructions passes floats: only its ends are reinterpreted.
TEST_F(SimdScopeTest, ChainsStayInFloats) {
  V128 value = input_;
  for (int i = 0; i < 5; ++i) {
    value = Binary(wabt::Opcode::F32X4Mul, value, value);
    value = Binary(wabt::Opcode::F32X4Add, value, input_);
  }
  const V128 wide = Binary(wabt::Opcode::F64X2Add, Binary(wabt::Opcode::F64X2Mul, input_, input_), input_);
  const V128 both = Binary(wabt::Opcode::V128Xor, value, wide);
  const V128 last = Binary(wabt::Opcode::V128Xor, {both[1], both[3], both[0], both[2]}, both);
  builder_.Return(std::array{last[3]});
  simd_.Finish();
  EXPECT_EQ(Faults(), "");
  EXPECT_EQ(Count(Opcode::kFAdd), 5u * 2 + 1);
  EXPECT_EQ(Count(Opcode::kReinterpret), 2u * 2 + 1 + 1);
}

// Constants are computed when the kernel is compiled.
TEST_F(SimdScopeTest, FoldsConstants) {
  const auto constant = [&](uint8_t byte) {
    SimdInstr instr{.opcode = wabt::Opcode::V128Const};
    instr.bytes.fill(byte);
    simd_.Lower(instr, stack_);
    return stack_.PopV128();
  };
  const V128 sum = Binary(wabt::Opcode::I8X16AddSatS, constant(100), constant(100));
  const V128 picked = Binary(wabt::Opcode::I8X16Swizzle, input_, constant(200));
  const V128 both = Binary(wabt::Opcode::V128Or, sum, picked);
  builder_.Return(std::array{both[0]});
  simd_.Finish();
  ASSERT_EQ(function_.region(function_.body).ops.size(), 2u);
  EXPECT_EQ(function_.op(function_.region(function_.body).ops[0]).imm, 0x7f7f7f7fu);
}

// Every instruction in the table except relaxed SIMD is accepted.
TEST(SimdTest, RefusesRelaxedOnesByName) {
  EXPECT_EQ(SimdRefusal(wabt::Opcode::I8X16Add), nullptr);
  EXPECT_STREQ(SimdRefusal(wabt::Opcode::F32X4RelaxedMadd),
               "relaxed SIMD is not supported; build without -mrelaxed-simd");
  for (const auto& [name, opcode] : Instructions()) {
    EXPECT_EQ(SimdRefusal(opcode), nullptr) << name;
  }
}

}  // namespace
}  // namespace hpvm::wasm
