// SPDX-License-Identifier: Apache-2.0
// Compares every numeric operation on vectors of lanes, at every pair of edge values and every level, with the
// interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/forms.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu {
namespace {

using ir::Opcode;
using ir::Type;
using testing::Form;
using testing::ImageRun;
using testing::ImageRunner;

// Returns a kernel r[i] = op(x[i], y[i]) where m[i] is not 0.
ir::Module KernelOf(const Form& form) {
  const std::string type(ir::Name(form.type)), result(ir::Name(form.result));
  const std::string shift = ir::Bytes(form.type) == 4 ? "%two" : "%three";
  const std::string result_shift = ir::Bytes(form.result) == 4 ? "%two" : "%three";
  std::string text = R"(module "op"
param buffer inout "r"
param buffer in "x"
param buffer in "y"
param buffer in "m"
entry f0
func f0 "op" (%r: i32, %x: i32, %y: i32, %m: i32) -> () {
  %zero: i32 = const.i32 0
  %two: i32 = const.i32 2
  %three: i32 = const.i32 3
  %id: i32 = instance_id.i32 %zero
  %word: i32 = shl.i32 %id, %two
  %at: i32 = shl.i32 %id, )" +
                     shift + R"(
  %to: i32 = shl.i32 %id, )" +
                     result_shift + R"(
  %ma: i32 = add.i32 %m, %word
  %xa: i32 = add.i32 %x, %at
  %ya: i32 = add.i32 %y, %at
  %ra: i32 = add.i32 %r, %to
  %on: i32 = load.i32 flat %ma
  %a: T = load.T flat %xa
  %b: T = load.T flat %ya
  if b0 %on {
    %v: R = OP.T %a, %b
    store.R flat %ra, %v
    br b0 ()
  } else {
    br b0 ()
  }
  return ()
}
)";
  auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) {
      text.replace(at, from.size(), to);
    }
  };
  replace("OP.T %a, %b", std::string(ir::Info(form.code).text) + "." + type + (form.operands == 2 ? " %a, %b" : " %a"));
  replace(": T ", ": " + type + " ");
  replace("load.T", "load." + type);
  replace(": R ", ": " + result + " ");
  replace("store.R", "store." + result);
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << text;
  return module.ok() ? *std::move(module) : ir::Module{};
}

struct Data {
  std::vector<uint8_t> r, x, y, m;
  uint64_t count = 0;
};

void Append(std::vector<uint8_t>& bytes, uint64_t value, uint32_t width) {
  for (uint32_t i = 0; i < width; ++i) {
    bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
}

uint64_t At(const std::vector<uint8_t>& bytes, uint64_t index, uint32_t width) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < width; ++i) {
    value |= uint64_t{bytes[index * width + i]} << (8 * i);
  }
  return value;
}

bool IsNan(uint64_t bits, Type type) {
  return type == Type::kF32   ? (bits & 0x7fffffff) > 0x7f800000
         : type == Type::kF64 ? (bits & 0x7fffffffffffffff) > 0x7ff0000000000000
                              : false;
}

class Kernel {
 public:
  Kernel(const Form& form, const CpuOptions& options, const std::string& level) : form_(form) {
    ir::Module module = KernelOf(form);
    interpreter_.emplace(*ir::Interpreter::Create(module));
    Status passed = pass::RunCpuPipeline(module, {.verify_each = true});
    EXPECT_TRUE(passed.ok()) << passed;
    KernelReport report;
    CpuOptions with_report = options;
    with_report.report = &report;
    StatusOr<Artifact> artifact = EmitCpuImage(module, {level}, with_report);
    if (!artifact.ok()) {
      ADD_FAILURE() << artifact.status();
      return;
    }
    if (artifact->variants.empty()) {
      for (const KernelRemark& remark : report.remarks) {
        ADD_FAILURE() << remark.text;
      }
    }
    EXPECT_GE(artifact->variants.size(), options.shapes.size());
    image_.emplace(*artifact);
  }
  bool ok() const { return image_.has_value(); }

  // Runs all variants; `trapping` is the instance that has to trap, if any.
  void Check(const Data& data, std::optional<uint64_t> trapping) {
    Data expected = data;
    ir::Launch launch = LaunchOf(expected);
    StatusOr<ir::TrapReport> want = interpreter_->Run(launch);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_EQ(want->code != ir::TrapCode::kNone, trapping.has_value());
    for (const CpuVariant& variant : image_->artifact().variants) {
      SCOPED_TRACE(::testing::Message() << variant.lanes << "x" << variant.columns << " proof " << variant.needs_proof);
      Data got = data;
      ir::Launch other = LaunchOf(got);
      StatusOr<ir::AddressSpace> space = ir::AssignAddresses(interpreter_->module(), other.arguments);
      ASSERT_TRUE(space.ok());
      const ImageRun run = image_->RunVariant(other, *space, variant);
      ASSERT_EQ(ir::ToString(run.trap, interpreter_->module()), ir::ToString(*want, interpreter_->module()));
      if (!trapping.has_value()) {
        Compare(data, got, expected);
      }
    }
  }

 private:
  static ir::Launch LaunchOf(Data& data) {
    ir::Launch launch;
    launch.extent = {data.count, 1, 1};
    for (std::vector<uint8_t>* bytes : {&data.r, &data.x, &data.y, &data.m}) {
      ir::Argument argument;
      argument.data = bytes->data();
      argument.bytes = bytes->size();
      launch.arguments.push_back(argument);
    }
    return launch;
  }

  void Compare(const Data& data, const Data& got, const Data& expected) {
    for (uint64_t i = 0; i < data.count; ++i) {
      const uint64_t value = At(got.r, i, ir::Bytes(form_.result)), want = At(expected.r, i, ir::Bytes(form_.result));
      if (value != want && !(IsNan(value, form_.result) && IsNan(want, form_.result))) {
        ADD_FAILURE() << std::hex << "x 0x" << At(data.x, i, ir::Bytes(form_.type)) << " y 0x"
                      << At(data.y, i, ir::Bytes(form_.type)) << " gives 0x" << value << ", interpreted 0x" << want;
        return;
      }
    }
  }

  const Form form_;
  std::optional<ir::Interpreter> interpreter_;
  std::optional<ImageRunner> image_;
};

// Finds the pairs that trap, by a launch of one instance each.
std::vector<bool> Trapping(const Form& form, const std::vector<std::pair<uint64_t, uint64_t>>& pairs);

Data DataOf(const Form& form, const std::vector<std::pair<uint64_t, uint64_t>>& pairs, const std::vector<bool>& on) {
  Data data;
  for (size_t i = 0; i < pairs.size(); ++i) {
    Append(data.x, pairs[i].first, ir::Bytes(form.type));
    Append(data.y, pairs[i].second, ir::Bytes(form.type));
    Append(data.m, on[i] ? 1 : 0, 4);
    Append(data.r, 0x5555555555555555, ir::Bytes(form.result));
  }
  data.count = pairs.size();
  return data;
}

std::vector<bool> Trapping(const Form& form, const std::vector<std::pair<uint64_t, uint64_t>>& pairs) {
  StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(KernelOf(form));
  std::vector<bool> trapping;
  for (const auto& pair : pairs) {
    Data data = DataOf(form, {pair}, {true});
    ir::Launch launch;
    for (std::vector<uint8_t>* bytes : {&data.r, &data.x, &data.y, &data.m}) {
      ir::Argument argument;
      argument.data = bytes->data();
      argument.bytes = bytes->size();
      launch.arguments.push_back(argument);
    }
    trapping.push_back(interpreter->Run(launch)->code != ir::TrapCode::kNone);
  }
  return trapping;
}

class VectorArithmeticTest : public ::testing::TestWithParam<Opcode> {};

// Active lanes give the interpreter's bits, inactive lanes never trap, and a lane that traps is identified.
TEST_P(VectorArithmeticTest, AgreesWithInterpreter) {
  const std::pair<const char*, std::vector<pass::GangShape>> kLevels[] = {{"x86-64-v2", {{.lanes = 4}, {.lanes = 2}}},
                                                                          {"x86-64-v3", {{.lanes = 8, .columns = 2}}},
                                                                          {"x86-64-v4", {{.lanes = 16}, {.lanes = 8}}}};
  for (const Form& form : testing::AllFormsOf(GetParam())) {
    const std::vector<uint64_t> edges = testing::EdgesOf(form.type);
    std::vector<std::pair<uint64_t, uint64_t>> pairs;
    for (uint64_t x : edges) {
      for (uint64_t y : form.operands == 2 ? edges : std::vector<uint64_t>{0}) {
        pairs.emplace_back(x, y);
      }
    }
    const std::vector<bool> trapping = Trapping(form, pairs);
    std::vector<bool> calm = trapping;
    calm.flip();
    for (const auto& [level, shapes] : kLevels) {
      if (std::string(level) > HostCpuTarget()->level) {
        continue;
      }
      SCOPED_TRACE(std::string(level) + " " + std::string(ir::Info(form.code).text) + "." +
                   std::string(ir::Name(form.type)) + " -> " + std::string(ir::Name(form.result)));
      Kernel kernel(form, {.shapes = shapes}, level);
      ASSERT_TRUE(kernel.ok());
      kernel.Check(DataOf(form, pairs, calm), std::nullopt);
      for (size_t i = 0, found = 0; i < pairs.size() && found < 12; ++i) {
        if (trapping[i]) {
          std::vector<bool> one = calm;
          one[i] = true;
          kernel.Check(DataOf(form, pairs, one), i);
          ++found;
        }
      }
      if (HasFailure()) {
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, VectorArithmeticTest, ::testing::ValuesIn(testing::ArithmeticOpcodes()),
                         [](const auto& info) { return std::string(ir::Info(info.param).text); });

// Gangs also compile for NEON: vectors of four floats, without x86-specific code.
TEST(VectorTextTest, IsMadeForNeon) {
  ir::Module module = KernelOf({Opcode::kFMul, Type::kF32, 2, Type::kF32});
  ASSERT_TRUE(pass::RunCpuPipeline(module, {}).ok());
  KernelReport report;
  const CpuOptions options{.shapes = {{.lanes = 4, .columns = 2}}, .report = &report};
  const StatusOr<std::string> text = EmitCpuText(module, {"aarch64"}, CpuText::kAssembly, options);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->find("hpvm_tile0:"), std::string::npos);
  EXPECT_NE(text->find("fmul\tv"), std::string::npos) << *text;
  EXPECT_EQ(EmitCpuImage(module, {"aarch64"}, options).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(EmitCpuText(module, {"x86-64-v9"}, CpuText::kAssembly, options).ok());
}

// Without fast math a product and a sum of lanes stay two operations; with it LLVM may fuse them.
TEST(VectorTextTest, FusesOnlyWithFastMath) {
  const std::string text = R"(module "fuse"
param buffer inout "r"
param buffer in "x"
entry f0
func f0 "fuse" (%r: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %two: i32 = const.i32 2
  %id: i32 = instance_id.i32 %zero
  %at: i32 = shl.i32 %id, %two
  %xa: i32 = add.i32 %x, %at
  %ra: i32 = add.i32 %r, %at
  %a: f32 = load.f32 flat %xa
  %b: f32 = load.f32 flat %ra
  %p: f32 = fmul.f32 %a, %a
  %s: f32 = fadd.f32 %p, %b
  store.f32 flat %ra, %s
  return ()
}
)";
  ir::Module module = *ir::ParseModule(text);
  ASSERT_TRUE(pass::RunCpuPipeline(module, {}).ok());
  CpuOptions options{.shapes = {{.lanes = 16}}};
  const StatusOr<std::string> exact = EmitCpuText(module, {"x86-64-v4"}, CpuText::kAssembly, options);
  options.fast_math = true;
  const StatusOr<std::string> fast = EmitCpuText(module, {"x86-64-v4"}, CpuText::kAssembly, options);
  ASSERT_TRUE(exact.ok() && fast.ok());
  EXPECT_EQ(exact->find("vfmadd"), std::string::npos);
  EXPECT_NE(fast->find("vfmadd"), std::string::npos);
  EXPECT_NE(exact->find("zmm"), std::string::npos);  // One vector, not two halves.
  module.functions[module.entry.index].fast_math = ir::FastMath::kNone;
  const StatusOr<std::string> rests = EmitCpuText(module, {"x86-64-v4"}, CpuText::kAssembly, options);
  ASSERT_TRUE(rests.ok());
  EXPECT_EQ(rests->find("vfmadd"), std::string::npos);
}

// Returns a kernel whose loop carries that many values for each instance.
std::string CarryingKernel(int values) {
  std::string text = R"(module "large"
param buffer inout "r"
param buffer in "x"
entry f0
func f0 "large" (%r: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %id: i32 = instance_id.i32 %zero
  %at: i32 = shl.i32 %id, %two
  %xa: i32 = add.i32 %x, %at
  %ra: i32 = add.i32 %r, %at
)";
  const auto repeat = [&](const std::string& line) {
    for (int i = 0; i < values; ++i) {
      std::string one = line;
      for (size_t place; (place = one.find('#')) != std::string::npos;) {
        one.replace(place, 1, std::to_string(i));
      }
      text += one;
    }
  };
  for (int i = 0; i < values; ++i) {
    text += "  %v" + std::to_string(i) + ": f32 = load.f32 flat %xa + " + std::to_string(4 * i) + "\n";
  }
  text += "  %sum: f32 = loop b0 (%k: i32 = %zero";
  repeat(", %a#: f32 = %v#");
  text += ") {\n";
  repeat("    %n#: f32 = fmul.f32 %a#, %a#\n");
  text += "    %next: i32 = add.i32 %k, %one\n    %more: i32 = lt_u.i32 %next, %two\n";
  text += "    if b1 %more {\n      continue b0 (%next";
  repeat(", %n#");
  text += ")\n    } else {\n      br b1 ()\n    }\n    %s0: f32 = fadd.f32 %n0, %n0\n";
  for (int i = 1; i < values; ++i) {
    text += "    %s" + std::to_string(i) + ": f32 = fadd.f32 %s" + std::to_string(i - 1) + ", %n" + std::to_string(i) +
            "\n";
  }
  return text + "    br b0 (%s" + std::to_string(values - 1) + ")\n  }\n  store.f32 flat %ra, %sum\n  return ()\n}\n";
}

// A tile whose frame exceeds the limit is replaced by a smaller one, and the kernel still compiles.
TEST(VectorTextTest, ShrinksTilesWithLargeFrames) {
  constexpr int kValues = 30;  // 60 KiB for 64 x 8 instances.
  StatusOr<ir::Module> module = ir::ParseModule(CarryingKernel(kValues));
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(pass::RunCpuPipeline(*module, {}).ok());
  KernelReport report;
  const CpuOptions options{.shapes = {{.lanes = 64, .columns = 8}}, .report = &report};
  const StatusOr<Artifact> artifact = EmitCpuImage(*module, {"x86-64-v4"}, options);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  ASSERT_FALSE(artifact->variants.empty());
  EXPECT_EQ(artifact->variants[0].lanes, 64u);
  EXPECT_LT(artifact->variants[0].columns, 8u);
  EXPECT_TRUE(std::any_of(report.remarks.begin(), report.remarks.end(), [](const KernelRemark& remark) {
    return remark.kind == KernelRemark::Kind::kRefused && remark.text.find("stack frame") != std::string::npos;
  }));
}

// A kernel with a loop has a variant that runs one instance at a time without checks, and all variants agree.
TEST(VariantTest, RunsInstancesWithoutChecks) {
  const std::string text = R"(module "sum"
param buffer inout "r"
param buffer in "x"
entry f0
func f0 "sum" (%r: i32, %x: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %four: i32 = const.i32 4
  %id: i32 = instance_id.i32 %zero
  %at: i32 = shl.i32 %id, %two
  %row: i32 = shl.i32 %id, %four
  %ra: i32 = add.i32 %r, %at
  %xa: i32 = add.i32 %x, %row
  %sum: i32 = loop b0 (%k: i32 = %zero, %acc: i32 = %zero) {
    %o: i32 = shl.i32 %k, %two
    %p: i32 = add.i32 %xa, %o
    %v: i32 = load.i32 flat %p
    %n: i32 = add.i32 %acc, %v
    %next: i32 = add.i32 %k, %one
    %more: i32 = lt_u.i32 %next, %four
    if b1 %more {
      continue b0 (%next, %n)
    } else {
      br b1 ()
    }
    br b0 (%n)
  }
  store.i32 flat %ra, %sum
  return ()
}
)";
  StatusOr<ir::Module> module = ir::ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(pass::RunCpuPipeline(*module, {}).ok());
  const StatusOr<Artifact> artifact = EmitCpuImage(*module, *HostCpuTarget(), {.shapes = {{.lanes = 8, .columns = 2}}});
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const auto is_unchecked = [](const CpuVariant& variant) { return variant.lanes == 1 && variant.needs_proof; };
  EXPECT_EQ(std::count_if(artifact->variants.begin(), artifact->variants.end(), is_unchecked), 1);
  ImageRunner image(*artifact);
  constexpr uint32_t kCount = 37;
  std::vector<uint32_t> x(4 * kCount);
  for (uint32_t i = 0; i < x.size(); ++i) {
    x[i] = i * i;
  }
  for (const CpuVariant& variant : artifact->variants) {
    SCOPED_TRACE(variant.lanes);
    std::vector<uint32_t> r(kCount);
    ir::Launch launch;
    launch.extent = {kCount, 1, 1};
    launch.arguments = {{reinterpret_cast<uint8_t*>(r.data()), 4 * r.size(), 0},
                        {reinterpret_cast<uint8_t*>(x.data()), 4 * x.size(), 0}};
    const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(*module, launch.arguments);
    ASSERT_TRUE(space.ok());
    EXPECT_EQ(image.RunVariant(launch, *space, variant, 3).trap.code, ir::TrapCode::kNone);
    for (uint32_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(r[i], x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3]);
    }
  }
}

}  // namespace
}  // namespace hpvm::cpu
