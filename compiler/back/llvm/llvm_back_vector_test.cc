// SPDX-License-Identifier: Apache-2.0
// Every operation on numbers in vectors of lanes, at every pair of edge values and every level, against the
// interpreter.
#include <gtest/gtest.h>

#include <optional>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/forms.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/interpret.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm {
namespace {

using ir::Opcode;
using ir::Type;
using testing::Form;
using testing::ImageRun;
using testing::ImageRunner;

// r[i] = op(x[i], y[i]) where m[i] is not 0.
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
    leave b0 ()
  } else {
    leave b0 ()
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
    Status passed = RunCpuPipeline(module, {.verify_each = true});
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

  // Runs it every way; `trapping` is the instance that has to trap, if any.
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

// Which of the pairs trap, by a launch of one instance each.
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

// Lanes that are on give the interpreter's bits, lanes that are off never trap, and a lane that traps is found.
TEST_P(VectorArithmeticTest, AgreesWithInterpreter) {
  const std::pair<const char*, std::vector<GangShape>> kLevels[] = {{"x86-64-v2", {{.lanes = 4}, {.lanes = 8}}},
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

}  // namespace
}  // namespace hpvm
