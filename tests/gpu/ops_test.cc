// SPDX-License-Identifier: Apache-2.0
// Every operation on numbers, at every pair of edge values, on every OpenCL and Vulkan device against the interpreter:
// the same bits (any NaN for a NaN), and the same traps.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

#include "backends/opencl/pocl.h"
#include "compiler/back/gpu/float_sums.h"
#include "compiler/back/llvm/testing/forms.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "tests/gpu/device_run.h"

namespace hpvm::gpu_test {
namespace {

using cpu::testing::Form;
using ir::Opcode;
using ir::Type;

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
  const std::vector<uint64_t> edges = cpu::testing::EdgesOf(form.type);
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
        continue;  // There are enough of them.
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
      ADD_FAILURE() << std::hex << "x 0x" << all.x[i] << " y 0x" << all.y[i] << ": 0x" << all.r[i] << ", interpreted 0x"
                    << want.r[i];
    }
  }
}

TEST_P(OpsTest, AgreesWithInterpreter) {
  DeviceRun device(GetParam());
  for (const Opcode code : cpu::testing::ArithmeticOpcodes()) {
    for (const Form& form : cpu::testing::AllFormsOf(code)) {
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

// A kernel of (r, x), where T is `type`: %px is the address of x[i], %pr that of its `words` words of r.
std::string KernelText(Type type, size_t words, const std::string& body) {
  const std::string text = absl::StrCat(R"(module "kernel"
param buffer inout "r"
param buffer in "x"
entry f0
func f0 "kernel" (%r: i32, %p: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %i: i32 = instance_id.i32 %zero
  %eight: i32 = const.i32 8
  %o: i32 = mul.i32 %i, %eight
  %px: i32 = add.i32 %p, %o
  %row: i32 = const.i32 )",
                                        8 * words, R"(
  %or: i32 = mul.i32 %i, %row
  %pr: i32 = add.i32 %r, %or
)",
                                        body, "  return ()\n}\n");
  return absl::StrReplaceAll(text, {{"T", std::string(ir::Name(type))}});
}

// r[i] = op(constant, x[i]) or op(x[i], constant), or op of two loads of x[i]. The constant is carried by a loop that
// runs once, so that only a driver that unrolls it sees the constant: code generators have special rules for
// constants.
std::string FoldedKernel(const Form& form, const std::string& constant, bool is_first) {
  const std::string folded = constant.empty() ? "%x2" : "%v";
  const std::string body = R"(  %start: T = const.T CONSTANT
  %end: T = loop b0 (%k: i32 = %one, %v: T = %start) {
    %done: i32 = le_s.i32 %k, %zero
    if b1 %done {
      br b0 (%v)
    } else {
      br b1 ()
    }
    %x: T = load.T flat %px
    %x2: T = load.T flat %px
    %next: T = OP.T OPERANDS
    %less: i32 = sub.i32 %k, %one
    continue b0 (%less, %next)
  }
  store.T flat %pr, %end
)";
  return KernelText(form.type, 1,
                    absl::StrReplaceAll(body, {{"CONSTANT", constant.empty() ? std::string("0x0") : constant},
                                               {"OPERANDS", is_first ? folded + ", %x" : "%x, " + folded},
                                               {"OP", std::string(ir::Info(form.code).text)}}));
}

// r[i] = x[i], then an atomic sum of r[i] and a constant.
std::string AtomicSumKernel(Type type, const std::string& constant) {
  return KernelText(type, 1,
                    absl::StrCat(R"(  %x: T = load.T flat %px
  store.T flat %pr, %x
  %k: T = const.T )",
                                 constant, "\n  %old: T = atomic_fadd.T flat %pr, %k\n"));
}

// An atomic sum of x[i] and y[i]; r[2 * i] receives the new value and r[2 * i + 1] the old one.
std::string AtomicSumOfLoads(Type type, bool is_group) {
  const std::string text = absl::StrCat(R"(module "kernel"
)",
                                        is_group ? "uses group_memory\n" : "", R"(param buffer inout "r"
param buffer in "x"
param buffer in "y"
entry f0
func f0 "kernel" (%r: i32, %p: i32, %q: i32) -> () {
  %zero: i32 = const.i32 0
  %eight: i32 = const.i32 8
  %sixteen: i32 = const.i32 16
  %i: i32 = instance_id.i32 %zero
  %o: i32 = mul.i32 %i, %eight
  %or: i32 = mul.i32 %i, %sixteen
  %pr: i32 = add.i32 %r, %or
  %px: i32 = add.i32 %p, %o
  %py: i32 = add.i32 %q, %o
  %x: T = load.T flat %px
  %y: T = load.T flat %py
)",
                                        is_group ? "  %at: i32 = local_alloc %eight\n" : "", R"(  store.T AT, %x
  %old: T = atomic_fadd.T AT, %y
  %sum: T = load.T AT
  store.T flat %pr, %sum
  store.T flat %pr + 8, %old
  return ()
}
)");
  return absl::StrReplaceAll(text, {{"AT", is_group ? "group %at" : "flat %pr"}, {"T", std::string(ir::Name(type))}});
}

// Edge values, numbers around the limit of compiler/back/gpu/float_sums.h, and denormal numbers.
std::vector<uint64_t> AddendsOf(Type type) {
  std::vector<uint64_t> addends = cpu::testing::EdgesOf(type);
  const uint64_t least = gpu::LeastGuardedOperand(type),
                 sign = type == Type::kF32 ? uint64_t{1} << 31 : uint64_t{1} << 63;
  const uint64_t normal = type == Type::kF32 ? uint64_t{1} << 23 : uint64_t{1} << 52;
  for (const uint64_t bits : {least, least - 1, least + 1, least - normal, least + normal, normal, normal - 1,
                              normal + 1, 2 * normal, uint64_t{1}, uint64_t{2}, uint64_t{0}}) {
    addends.push_back(bits);
    addends.push_back(bits | sign);
  }
  return addends;
}

// All pairs; `target` says whether the device is assumed to have an operation for sums. Returns false when the device
// refuses the kernel.
bool CheckAtomicSums(DeviceRun& device, const GpuTarget& target, Type type, bool is_group) {
  StatusOr<ir::Module> module = ir::ParseModule(AtomicSumOfLoads(type, is_group));
  EXPECT_TRUE(module.ok()) << module.status();
  StatusOr<Artifact> artifact = device.CompileFor(target, *module, {});
  if (!artifact.ok()) {
    return false;
  }
  StatusOr<std::unique_ptr<Executable>> executable = device.Load(*std::move(artifact));
  EXPECT_TRUE(executable.ok()) << executable.status();
  std::vector<uint64_t> x, y;
  for (const uint64_t old : AddendsOf(type)) {
    for (const uint64_t addend : AddendsOf(type)) {
      x.push_back(old);
      y.push_back(addend);
    }
  }
  std::vector<uint64_t> r(2 * x.size()), want(r);
  ir::Launch launch;
  launch.extent = {x.size(), 1, 1};
  launch.group = {1, 1, 1};
  for (std::vector<uint64_t>* column : {&want, &x, &y}) {
    launch.arguments.push_back({reinterpret_cast<uint8_t*>(column->data()), column->size() * 8, 0});
  }
  EXPECT_TRUE(ir::Interpret(*module, launch).ok());
  launch.arguments[0].data = reinterpret_cast<uint8_t*>(r.data());
  EXPECT_TRUE(executable.ok() && device.Launch(**executable, launch).ok());
  uint32_t wrong = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    const bool both_nan = IsNan(r[i], type) && IsNan(want[i], type);
    if (r[i] != want[i] && !both_nan && ++wrong <= 3) {
      ADD_FAILURE() << std::hex << "x 0x" << x[i / 2] << " y 0x" << y[i / 2] << (i % 2 == 0 ? ": sum 0x" : ": old 0x")
                    << r[i] << ", interpreted 0x" << want[i];
    }
  }
  return true;
}

// Every choice between two of the constants by whether the low half of x[i] is zero, by a select and by a branch,
// each in a separate word of r; sets `words` to their number.
std::string ChoiceKernel(Type type, const std::vector<std::string>& constants, size_t* words) {
  std::string body = "  %x: i32 = load.i32 flat %px\n  %is: i32 = eqz.i32 %x\n";
  *words = 0;
  for (const std::string& one : constants) {
    for (const std::string& another : constants) {
      for (const char* choice :
           {"select.T %is, %aN, %bN", "if bN %is {\n    br bN (%aN)\n  } else {\n    br bN (%bN)\n  }"}) {
        const std::string step =
            absl::StrCat("  %aN: T = const.T ", one, "\n  %bN: T = const.T ", another, "\n  %cN: T = ", choice,
                         "\n  store.T flat %pr + ", 8 * *words, ", %cN\n");
        body += absl::StrReplaceAll(step, {{"N", absl::StrCat((*words)++)}});
      }
    }
  }
  return KernelText(type, *words, body);
}

// Rounds each constant in each way; sets `words` to their number.
std::string RoundingKernel(Type type, const std::vector<std::string>& constants, size_t* words) {
  std::string body;
  *words = 0;
  for (const std::string& constant : constants) {
    for (const char* rounding : {"fceil", "ffloor", "ftrunc", "fnearest"}) {
      const std::string step = absl::StrCat("  %aN: T = const.T ", constant, "\n  %cN: T = ", rounding,
                                            ".T %aN\n  store.T flat %pr + ", 8 * *words, ", %cN\n");
      body += absl::StrReplaceAll(step, {{"N", absl::StrCat((*words)++)}});
    }
  }
  return KernelText(type, *words, body);
}

// Runs on x of every edge value; r has `words` words for each.
void CheckKernel(DeviceRun& device, Type type, const std::string& text, size_t words = 1) {
  SCOPED_TRACE(text);
  StatusOr<ir::Module> module = ir::ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  StatusOr<Artifact> artifact = device.Compile(*module);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  StatusOr<std::unique_ptr<Executable>> executable = device.Load(*std::move(artifact));
  ASSERT_TRUE(executable.ok()) << executable.status();
  std::vector<uint64_t> x = cpu::testing::EdgesOf(type), r(x.size() * words), want(r);
  ir::Launch launch;
  launch.extent = {x.size(), 1, 1};
  for (std::vector<uint64_t>* column : {&want, &x}) {
    launch.arguments.push_back({reinterpret_cast<uint8_t*>(column->data()), column->size() * 8, 0});
  }
  ASSERT_TRUE(ir::Interpret(*module, launch).ok());
  launch.arguments[0].data = reinterpret_cast<uint8_t*>(r.data());
  const StatusOr<ir::TrapReport> got = device.Launch(**executable, launch);
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < r.size(); ++i) {
    const bool both_nan = !ir::IsInt(type) && IsNan(r[i], type) && IsNan(want[i], type);
    EXPECT_TRUE(r[i] == want[i] || both_nan) << "word " << i % words << std::hex << ", x 0x" << x[i / words] << ": 0x"
                                             << r[i] << ", interpreted 0x" << want[i];
  }
}

std::vector<std::string> ConstantsOf(Type type) {
  return ir::Bytes(type) == 4 ? std::vector<std::string>{"0x0", "0x80000000", "0x3f800000", "0xbf800000", "0x7fc00000"}
                              : std::vector<std::string>{"0x0", "0x8000000000000000", "0x3ff0000000000000",
                                                         "0xbff0000000000000", "0x7ff8000000000000"};
}

// Includes numbers that no integer of their size can hold, and numbers that are integral because of their size.
TEST_P(OpsTest, RoundsConstants) {
  DeviceRun device(GetParam());
  size_t words = 0;
  const std::string narrow = RoundingKernel(Type::kF32,
                                            {"0x501502f9", "0x7f800000", "0xff800000", "0x7fc00000", "0x4b000001",
                                             "0xcafffffe", "0x3fc00000", "0x80000000", "0xbf000000"},
                                            &words);
  CheckKernel(device, Type::kF32, narrow, words);
  if (device.info().gpu.has_fp64) {
    const std::string wide =
        RoundingKernel(Type::kF64,
                       {"0x4202a05f20000000", "0x7ff0000000000000", "0xfff0000000000000", "0x7ff8000000000000",
                        "0x4330000000000001", "0xc340000000000000", "0x3ff8000000000000", "0x8000000000000000"},
                       &words);
    CheckKernel(device, Type::kF64, wide, words);
  }
}

TEST_P(OpsTest, AgreesOnOperandsThatDriversKnow) {
  DeviceRun device(GetParam());
  for (const Opcode code : {Opcode::kFAdd, Opcode::kFSub, Opcode::kFMul, Opcode::kFDiv}) {
    for (const Form& form : cpu::testing::AllFormsOf(code)) {
      if (form.type == Type::kF64 && !device.info().gpu.has_fp64) {
        continue;
      }
      CheckKernel(device, form.type, FoldedKernel(form, "", /*is_first=*/true));
      for (const std::string& constant : ConstantsOf(form.type)) {
        CheckKernel(device, form.type, FoldedKernel(form, constant, /*is_first=*/true));
        CheckKernel(device, form.type, FoldedKernel(form, constant, /*is_first=*/false));
      }
    }
  }
}

TEST_P(OpsTest, Chooses) {
  DeviceRun device(GetParam());
  for (const Type type : {Type::kF32, Type::kI32, Type::kF64, Type::kI64}) {
    if ((type == Type::kF64 && !device.info().gpu.has_fp64) || (type == Type::kI64 && !device.info().gpu.has_int64)) {
      continue;
    }
    size_t words = 0;
    const std::string text = ChoiceKernel(type, ConstantsOf(type), &words);
    CheckKernel(device, type, text, words);
  }
}

TEST_P(OpsTest, AddsAtomically) {
  DeviceRun device(GetParam());
  for (const Form& form : cpu::testing::AllFormsOf(Opcode::kFAdd)) {
    const GpuTarget& gpu = device.info().gpu;
    if (form.type == Type::kF64 && !(gpu.has_fp64 && gpu.has_int64_atomics)) {
      continue;
    }
    for (const std::string& constant : ConstantsOf(form.type)) {
      CheckKernel(device, form.type, AtomicSumKernel(form.type, constant));
    }
  }
}

// Denormal numbers, zeros of both signs, infinities and NaNs too (S27), whichever code computes the sum.
TEST_P(OpsTest, AddsAtomicallyToAnything) {
  DeviceRun device(GetParam());
  // OpenCL C uses the operation only with NVIDIA's compiler, whatever the target says.
  const bool is_opencl = GetParam().starts_with("opencl");
  for (const Type type : {Type::kF32, Type::kF64}) {
    for (const bool has_operation : {true, false}) {
      GpuTarget target = device.info().gpu;
      target.has_f32_atomic_add = has_operation && (is_opencl || target.has_f32_atomic_add);
      target.has_f64_atomic_add = has_operation && (is_opencl || target.has_f64_atomic_add);
      for (const bool is_group : {false, true}) {
        SCOPED_TRACE(std::string(ir::Name(type)) + (is_group ? " in group memory" : " in a buffer") +
                     (has_operation ? "" : ", exchanged"));
        // Vulkan has no 64-bit atomics in group memory.
        const bool may_lack = type == Type::kF64 && (is_group || !target.has_fp64 || !target.has_int64_atomics);
        EXPECT_TRUE(CheckAtomicSums(device, target, type, is_group) || may_lack);
      }
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
  hpvm::opencl::SetPoclEnvironment(/*keeps=*/true);  // As executors do.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
