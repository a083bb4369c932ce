// SPDX-License-Identifier: Apache-2.0
// Runs one kernel interpreted and compiled; every launch must leave the same bytes and the same trap.
#ifndef HPVMD_COMPILER_BACK_LLVM_TESTING_COMPARE_H_
#define HPVMD_COMPILER_BACK_LLVM_TESTING_COMPARE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu::testing {

// Returns the words of one buffer, which are aligned.
inline std::vector<uint64_t> Words(std::initializer_list<uint64_t> words) { return words; }

class Compared {
 public:
  // With `with_passes` the image is made from the module after the pipeline; the interpreter runs the original module.
  explicit Compared(const ir::Module& module, bool with_passes = true) {
    Diagnostics faults = ir::Verify(module);
    EXPECT_TRUE(faults.empty()) << ToString(faults) << ir::Print(module);
    if (!faults.empty()) {
      return;
    }
    StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(module);
    EXPECT_TRUE(interpreter.ok()) << interpreter.status();
    ir::Module lowered = module;
    if (with_passes) {
      Status passed = pass::RunCpuPipeline(lowered, {.verify_each = true});
      EXPECT_TRUE(passed.ok()) << passed;
    }
    StatusOr<Artifact> artifact = EmitCpuImage(lowered, *HostCpuTarget());
    EXPECT_TRUE(artifact.ok()) << artifact.status() << ir::Print(lowered);
    if (!interpreter.ok() || !artifact.ok()) {
      return;
    }
    interpreter_ = std::make_unique<ir::Interpreter>(*std::move(interpreter));
    image_ = std::make_unique<ImageRunner>(*artifact);
    image_->reference_types = module.reference_types;
  }
  explicit Compared(const std::string& text, bool with_passes = true) : Compared(Parse(text), with_passes) {}

  static ir::Module Parse(const std::string& text) {
    StatusOr<ir::Module> module = ir::ParseModule(text);
    EXPECT_TRUE(module.ok()) << module.status();
    return module.ok() ? *std::move(module) : ir::Module{};
  }

  bool ok() const { return image_ != nullptr; }
  ImageRunner& image() { return *image_; }

  // Buffers by parameter, and scalars by parameter where there is no buffer. After Check, `buffers` holds the image's
  // results.
  struct Input {
    std::vector<std::vector<uint64_t>> buffers;  // One per parameter; words, empty for scalars.
    std::vector<uint64_t> bytes = {};            // Sizes of buffers that are not whole words; 0: all.
    std::vector<uint64_t> scalars = {};
    std::array<uint64_t, 3> extent{1, 1, 1};
    std::array<uint64_t, 3> group{1, 1, 1};
    bool nan_is_any = false;  // Words that are NaN of the same width in both are equal.
    uint32_t float_bytes = 4;
    ir::HostCalls* host = nullptr;  // Called by both.
  };

  // Runs both and compares the results. Returns the image's run.
  ImageRun Check(Input& input) {
    if (!ok()) {
      return {};
    }
    Input other = input;
    ir::Launch expected_launch = LaunchOf(other);
    ir::Launch launch = LaunchOf(input);
    StatusOr<ir::AddressSpace> space = ir::AssignAddresses(interpreter_->module(), launch.arguments);
    EXPECT_TRUE(space.ok()) << space.status();
    Records expected_records, records;
    expected_launch.print = &expected_records;
    launch.print = &records;
    StatusOr<ir::TrapReport> expected = interpreter_->Run(expected_launch);
    EXPECT_TRUE(expected.ok()) << expected.status();
    if (!space.ok() || !expected.ok()) {
      return {};
    }
    ImageRun run = image_->Run(launch, *space, 0, launch.instances());
    const ir::Module& module = interpreter_->module();
    if (expected->code == ir::TrapCode::kMisalignedAtomic && run.trap.code == expected->code && !module.is_memory64) {
      // The interpreter does not wrap base + offset here, although it does everywhere else.
      EXPECT_EQ(run.trap.address & 0xffffffff, expected->address & 0xffffffff);
      run.trap.address = expected->address;
    }
    EXPECT_EQ(ir::ToString(run.trap, module), ir::ToString(*expected, module));
    EXPECT_EQ(records.values, expected_records.values);
    EXPECT_EQ(run.trap.source, expected->source);
    EXPECT_EQ(run.trap.instance, expected->instance);
    for (size_t k = 0; k < input.buffers.size(); ++k) {
      for (size_t i = 0; i < input.buffers[k].size(); ++i) {
        uint64_t got = input.buffers[k][i];
        uint64_t want = other.buffers[k][i];
        if (got != want && !(input.nan_is_any && IsNan(got, input.float_bytes) && IsNan(want, input.float_bytes))) {
          ADD_FAILURE() << "buffer " << k << " word " << i << ": 0x" << std::hex << got << ", interpreted 0x" << want;
        }
      }
    }
    return run;
  }

 private:
  // Records the prints of instances in order: ids, format, operands' bits.
  struct Records final : ir::PrintSink {
    void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> operands) override {
      values.insert(values.end(), instance.begin(), instance.end());
      values.push_back(format);
      values.insert(values.end(), operands.begin(), operands.end());
    }
    std::vector<uint64_t> values;
  };

  static bool IsNan(uint64_t bits, uint32_t bytes) {
    return bytes == 4 ? (bits & 0x7fffffff) > 0x7f800000 : (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
  }

  ir::Launch LaunchOf(Input& input) const {
    ir::Launch launch;
    launch.extent = input.extent;
    launch.group = input.group;
    launch.host = input.host;
    const auto& params = interpreter_->module().params;
    input.buffers.resize(params.size());
    input.scalars.resize(params.size());
    input.bytes.resize(params.size());
    for (size_t k = 0; k < params.size(); ++k) {
      ir::Argument argument;
      if (params[k].is_buffer) {
        argument.data = reinterpret_cast<uint8_t*>(input.buffers[k].data());
        argument.bytes = input.bytes[k] != 0 ? input.bytes[k] : input.buffers[k].size() * 8;
      } else {
        argument.scalar = input.scalars[k];
      }
      launch.arguments.push_back(argument);
    }
    return launch;
  }

  std::unique_ptr<ir::Interpreter> interpreter_;
  std::unique_ptr<ImageRunner> image_;
};

}  // namespace hpvm::cpu::testing

#endif  // HPVMD_COMPILER_BACK_LLVM_TESTING_COMPARE_H_
