// SPDX-License-Identifier: Apache-2.0
// Every operation on numbers, at every pair of edge values, on every OpenCL and Vulkan device against the interpreter:
// the same bits (any NaN for a NaN), and the same traps.
#include "gtest/gtest.h"

#include <cstdlib>

#include "compiler/back/llvm/testing/forms.h"
#include "compiler/ir/interpret.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

using ir::Opcode;
using ir::Type;
using testing::Form;

// r[i] = op(x[i], y[i]).
ir::Module KernelOf(const Form& form) {
  ir::Module module;
  module.name = "op";
  ir::Function function;
  function.name = "op";
  function.type.params = {Type::kI32, Type::kI32, Type::kI32};
  for (const char* name : {"r", "x", "y"}) {
    module.params.push_back({name, true, true, Type::kI32});
  }
  ir::Builder builder(function);
  const std::span<const ir::ValueId> params = builder.BeginBody();
  const std::vector<ir::ValueId> base(params.begin(), params.end());
  const ir::ValueId zero = builder.Const(Type::kI32, 0);
  const ir::ValueId i = builder.Append1({.code = Opcode::kInstanceId}, std::array{zero}, Type::kI32);
  const ir::ValueId eight = builder.Const(Type::kI32, 8);
  const ir::ValueId offset = builder.Append1({.code = Opcode::kMul}, std::array{i, eight}, Type::kI32);
  std::vector<ir::ValueId> operands;
  for (uint32_t k = 0; k < form.operands; ++k) {
    const ir::ValueId at = builder.Append1({.code = Opcode::kAdd}, std::array{base[1 + k], offset}, Type::kI32);
    ir::Op load{.code = Opcode::kLoad, .type = form.type};
    load.width = static_cast<uint8_t>(ir::Bytes(form.type));
    operands.push_back(builder.Append1(load, std::array{at}, form.type));
  }
  ir::Op op{.code = form.code, .type = form.type};
  op.source = 77;
  const ir::ValueId result = builder.Append1(op, operands, form.result);
  const ir::ValueId at = builder.Append1({.code = Opcode::kAdd}, std::array{base[0], offset}, Type::kI32);
  ir::Op store{.code = Opcode::kStore, .type = form.result};
  store.width = static_cast<uint8_t>(ir::Bytes(form.result));
  builder.Append(store, std::array{at, result}, {});
  builder.Return({});
  module.functions.push_back(std::move(function));
  module.entry = ir::FunctionId(0u);
  return module;
}

struct Columns {
  std::vector<uint64_t> r, x, y;

  ir::Launch Launch() {
    ir::Launch launch;
    launch.extent = {x.size(), 1, 1};
    for (std::vector<uint64_t>* column : {&r, &x, &y}) {
      launch.arguments.push_back({reinterpret_cast<uint8_t*>(column->data()), column->size() * 8, 0});
    }
    return launch;
  }
};

bool IsNan(uint64_t bits, Type type) {
  return type == Type::kF32 ? (bits & 0x7fffffff) > 0x7f800000 : (bits & ~(uint64_t{1} << 63)) > 0x7ff0000000000000;
}

class OpsTest : public ::testing::TestWithParam<std::string> {};

// Pairs of operands that trap are run one by one, the others together.
void CheckForm(DeviceRun& device, const Form& form) {
  const ir::Module module = KernelOf(form);
  StatusOr<Artifact> artifact = device.Compile(module);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  StatusOr<std::unique_ptr<Executable>> executable = device.Load(*std::move(artifact));
  ASSERT_TRUE(executable.ok()) << executable.status();
  Columns all;
  uint32_t traps = 0;
  const std::vector<uint64_t> edges = testing::EdgesOf(form.type);
  for (const uint64_t x : edges) {
    for (const uint64_t y : form.operands == 2 ? edges : std::vector<uint64_t>{0}) {
      Columns one{{0}, {x}, {y}};
      const StatusOr<ir::TrapReport> want = ir::Interpret(module, one.Launch());
      ASSERT_TRUE(want.ok()) << want.status();
      if (want->code == ir::TrapCode::kNone) {
        all.x.push_back(x);
        all.y.push_back(y);
        continue;
      }
      if (++traps > 24) {
        continue;  // Enough of them.
      }
      const StatusOr<ir::TrapReport> got = device.Launch(**executable, one.Launch());
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->code, want->code) << std::hex << "x 0x" << x << " y 0x" << y;
      EXPECT_EQ(got->source, 77u);
    }
  }
  all.r.assign(all.x.size(), 0);
  Columns want = all;
  ASSERT_TRUE(ir::Interpret(module, want.Launch()).ok());
  const StatusOr<ir::TrapReport> got = device.Launch(**executable, all.Launch());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->code, ir::TrapCode::kNone);
  uint32_t wrong = 0;
  for (size_t i = 0; i < all.r.size(); ++i) {
    const bool both_nan = !ir::IsInt(form.result) && IsNan(all.r[i], form.result) && IsNan(want.r[i], form.result);
    if (all.r[i] != want.r[i] && !both_nan && ++wrong <= 3) {
      ADD_FAILURE() << std::hex << "x 0x" << all.x[i] << " y 0x" << all.y[i] << ": 0x" << all.r[i]
                    << ", interpreted 0x" << want.r[i];
    }
  }
}

TEST_P(OpsTest, AgreesWithInterpreter) {
  DeviceRun device(GetParam());
  for (const Opcode code : testing::ArithmeticOpcodes()) {
    for (const Form& form : testing::AllFormsOf(code)) {
      const bool uses_f64 = form.type == Type::kF64 || form.result == Type::kF64;
      const bool uses_i64 = form.type == Type::kI64 || form.result == Type::kI64;
      if ((uses_f64 && !device.info().gpu.has_fp64) || (uses_i64 && !device.info().gpu.has_int64)) {
        continue;
      }
      SCOPED_TRACE(std::string(ir::Info(code).text) + "." + std::string(ir::Name(form.type)) + " -> " +
                   std::string(ir::Name(form.result)));
      CheckForm(device, form);
    }
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name[name.find(':')] = '_';
  return name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpsTest);
INSTANTIATE_TEST_SUITE_P(All, OpsTest, ::testing::ValuesIn(Devices()), TestName);

}  // namespace
}  // namespace hpvm::gpu_test

int main(int argc, char** argv) {
  setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", /*overwrite=*/0);  // As executors do, before the driver is loaded.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
