// SPDX-License-Identifier: Apache-2.0
// Compares a small kernel in every shape and level, checked and unchecked, with the interpreter. Every buffer lies
// right before a page that faults, and in a second run right after one.
#ifndef HPVMD_COMPILER_BACK_LLVM_TESTING_GANG_COMPARE_H_
#define HPVMD_COMPILER_BACK_LLVM_TESTING_GANG_COMPARE_H_

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::cpu::testing {

// GuardedBytes holds bytes that end right before a page that faults, or begin right after one.
class GuardedBytes {
 public:
  GuardedBytes(const std::vector<uint8_t>& content, bool at_end) : bytes_(content.size()) {
    const uint64_t inner = (bytes_ + kPage - 1) / kPage * kPage;
    mapped_bytes_ = inner + 2 * kPage;
    void* mapped = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HPVMD_CHECK(mapped != MAP_FAILED);
    mapped_ = static_cast<uint8_t*>(mapped);
    data_ = mapped_ + kPage + (at_end ? (inner - bytes_) / ir::kDataAlignment * ir::kDataAlignment : 0);
    if (inner > 0) {
      HPVMD_CHECK(mprotect(mapped_ + kPage, inner, PROT_READ | PROT_WRITE) == 0);
      std::memcpy(data_, content.data(), bytes_);
    }
  }
  ~GuardedBytes() { munmap(mapped_, mapped_bytes_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  std::vector<uint8_t> Content() const { return {data_, data_ + bytes_}; }

 private:
  static constexpr uint64_t kPage = 4096;
  uint64_t bytes_, mapped_bytes_ = 0;
  uint8_t* mapped_ = nullptr;
  uint8_t* data_ = nullptr;
};

inline std::vector<uint8_t> BytesOf(const std::vector<uint32_t>& words) {
  std::vector<uint8_t> bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}
template <typename F>
std::vector<uint8_t> WordsOf(size_t count, F word) {
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) {
    words[i] = static_cast<uint32_t>(word(i));
  }
  return BytesOf(words);
}

struct GangInput {
  std::vector<std::vector<uint8_t>> buffers;  // One per parameter; empty for scalars.
  std::vector<uint64_t> scalars = {};         // One per parameter; missing ones are 0.
  std::array<uint64_t, 3> extent{1, 1, 1};
  std::array<uint64_t, 3> group{1, 1, 1};
};

inline constexpr pass::GangShape kGangTestShapes[] = {{4, 1, 1}, {8, 2, 1}, {16, 1, 3}};
inline constexpr const char* kGangTestLevels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};

class GangCompared {
 public:
  // `is_refused`: no tile variant may exist for the kernel.
  explicit GangCompared(const std::string& text, bool is_refused = false,
                        const std::vector<pass::GangShape>& shapes = {std::begin(kGangTestShapes),
                                                                      std::end(kGangTestShapes)}) {
    StatusOr<ir::Module> module = ir::ParseModule(text);
    EXPECT_TRUE(module.ok()) << module.status() << text;
    if (!module.ok()) {
      return;
    }
    const Diagnostics faults = ir::Verify(*module);
    EXPECT_TRUE(faults.empty()) << ToString(faults);
    StatusOr<ir::Interpreter> interpreter = ir::Interpreter::Create(*module);
    EXPECT_TRUE(interpreter.ok()) << interpreter.status();
    if (!interpreter.ok()) {
      return;
    }
    interpreter_ = std::make_unique<ir::Interpreter>(*std::move(interpreter));
    EXPECT_TRUE(pass::RunCpuPipeline(*module, {.verify_each = true}).ok());
    for (const char* level : kGangTestLevels) {
      KernelReport report;
      CpuOptions options;
      options.shapes = shapes;
      options.report = &report;
      StatusOr<Artifact> artifact = EmitCpuImage(*module, {level}, options);
      EXPECT_TRUE(artifact.ok()) << level << ": " << artifact.status();
      if (!artifact.ok()) {
        continue;
      }
      EXPECT_EQ(artifact->variants.empty(), is_refused) << level;
      for (const KernelRemark& remark : report.remarks) {
        EXPECT_TRUE(is_refused || remark.kind != KernelRemark::Kind::kRefused) << remark.text;
      }
      if (std::string(level) <= HostCpuTarget()->level) {  // Other levels are emitted, but not run here.
        images_.push_back(std::make_unique<ImageRunner>(*artifact));
      }
    }
  }

  // Runs every variant whose proof holds. Returns the interpreter's trap; `buffers`, if not null, receives its
  // buffers.
  ir::TrapReport Check(const GangInput& input, std::vector<std::vector<uint8_t>>* buffers = nullptr) {
    if (interpreter_ == nullptr) {
      return {};
    }
    Run expected(input, *this, /*at_end=*/false);
    const StatusOr<ir::TrapReport> trap = interpreter_->Run(expected.launch);
    EXPECT_TRUE(trap.ok()) << trap.status();
    if (!trap.ok()) {
      return {};
    }
    for (const std::unique_ptr<ImageRunner>& image : images_) {
      for (const CpuVariant& variant : image->artifact().variants) {
        if (variant.needs_proof && !HasProof(image->artifact(), input)) {
          continue;
        }
        unchecked_runs += variant.needs_proof ? 1 : 0;
        for (bool at_end : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << image->artifact().target << " " << variant.lanes << "x" << variant.columns << "x"
                       << variant.rows << (variant.needs_proof ? " unchecked" : " checked") << ", extent "
                       << input.extent[0] << " " << input.extent[1] << " " << input.extent[2]);
          CompareOne(input, *image, variant, at_end, *trap, expected);
        }
      }
    }
    if (buffers != nullptr) {
      *buffers = expected.Contents();
    }
    return *trap;
  }

  const std::vector<std::unique_ptr<ImageRunner>>& images() const { return images_; }
  uint32_t unchecked_runs = 0;

 private:
  // Keeps, for each instance, the formats and operands' bits that it prints, in order.
  struct Prints final : ir::PrintSink {
    void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> operands) override {
      std::vector<uint64_t>& own = values[instance];
      own.push_back(format);
      own.insert(own.end(), operands.begin(), operands.end());
    }
    std::map<std::array<uint64_t, 3>, std::vector<uint64_t>> values;
  };

  // Memory and launch of one run.
  struct Run {
    Run(const GangInput& input, const GangCompared& kernel, bool at_end) {
      const auto& params = kernel.interpreter_->module().params;
      launch.extent = input.extent;
      launch.group = input.group;
      launch.print = &prints;
      for (size_t k = 0; k < params.size(); ++k) {
        memory.push_back(std::make_unique<GuardedBytes>(
            k < input.buffers.size() ? input.buffers[k] : std::vector<uint8_t>(), at_end));
        const uint64_t scalar = k < input.scalars.size() ? input.scalars[k] : 0;
        launch.arguments.push_back({memory[k]->data(), params[k].is_buffer ? memory[k]->bytes() : 0, scalar});
      }
    }
    std::vector<std::vector<uint8_t>> Contents() const {
      std::vector<std::vector<uint8_t>> contents;
      for (const std::unique_ptr<GuardedBytes>& bytes : memory) {
        contents.push_back(bytes->Content());
      }
      return contents;
    }
    std::vector<std::unique_ptr<GuardedBytes>> memory;
    Prints prints;
    ir::Launch launch;
  };

  static bool HasProof(const Artifact& artifact, const GangInput& input) {
    ir::BoundsFacts facts;
    facts.extent = input.extent;
    facts.group = input.group;
    for (size_t k = 0; k < artifact.params.size(); ++k) {
      const ir::KernelParam& param = artifact.params[k];
      const uint64_t scalar = k < input.scalars.size() ? input.scalars[k] : 0;
      const uint64_t bytes = k < input.buffers.size() ? input.buffers[k].size() : 0;
      facts.params.push_back({param.is_buffer, param.is_writable, param.is_buffer ? bytes : scalar,
                              static_cast<uint8_t>(8 * ir::Bytes(param.type))});
    }
    return ir::ProveBounds(artifact.bounds, facts);
  }

  void CompareOne(const GangInput& input, ImageRunner& image, const CpuVariant& variant, bool at_end,
                  const ir::TrapReport& want, const Run& expected) {
    Run run(input, *this, at_end);
    const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(interpreter_->module(), run.launch.arguments);
    ASSERT_TRUE(space.ok()) << space.status();
    const ir::TrapReport got = image.RunVariant(run.launch, *space, variant).trap;
    const ir::Module& module = interpreter_->module();
    if (want.code == ir::TrapCode::kNone) {
      ASSERT_EQ(got.code, want.code) << ir::ToString(got, module);
      ASSERT_EQ(run.prints.values, expected.prints.values);
      const auto contents = run.Contents(), wanted = expected.Contents();
      for (size_t k = 0; k < contents.size(); ++k) {
        const auto differing = std::mismatch(contents[k].begin(), contents[k].end(), wanted[k].begin());
        ASSERT_TRUE(differing.first == contents[k].end())
            << "buffer " << k << " at byte " << differing.first - contents[k].begin();
      }
      return;
    }
    // Any of the trapping instances may be reported, with its own trap.
    ASSERT_NE(got.code, ir::TrapCode::kNone) << "interpreted: " << ir::ToString(want, module);
    const auto& [x, y, z] = got.instance;
    ASSERT_TRUE(x < input.extent[0] && y < input.extent[1] && z < input.extent[2]) << ir::ToString(got, module);
    Run alone(input, *this, /*at_end=*/false);
    const uint64_t instance = x + input.extent[0] * (y + input.extent[1] * z);
    const StatusOr<ir::TrapReport> own = interpreter_->Run(alone.launch, {.begin = instance, .end = instance + 1});
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_EQ(ir::ToString(got, module), ir::ToString(*own, module));
  }

  std::unique_ptr<ir::Interpreter> interpreter_;
  std::vector<std::unique_ptr<ImageRunner>> images_;
};

// Returns a kernel over r (inout) and x (in), both of i32 or f32, and the i32 n. `body` may use: %id, %at (the byte
// offset of the instance's word), %ra and %xa (addresses of its words), %v (the word of x) and constants %zero, %one,
// %two, %three, %four, %seven; it ends the function.
inline std::string KernelText(const std::string& body, const std::string& functions = "",
                              const std::string& directives = "") {
  return R"(module "gang"
)" + directives +
         R"(param buffer inout "r"
param buffer in "x"
param i32 "n"
entry f0
func f0 "gang" (%r: i32, %x: i32, %n: i32) -> () {
  %zero: i32 = const.i32 0
  %one: i32 = const.i32 1
  %two: i32 = const.i32 2
  %three: i32 = const.i32 3
  %four: i32 = const.i32 4
  %seven: i32 = const.i32 7
  %id: i32 = instance_id.i32 %zero
  %at: i32 = shl.i32 %id, %two
  %ra: i32 = add.i32 %r, %at
  %xa: i32 = add.i32 %x, %at
  %v: i32 = load.i32 flat %xa @1
)" + body +
         "}\n" + functions;
}

}  // namespace hpvm::cpu::testing

#endif  // HPVMD_COMPILER_BACK_LLVM_TESTING_GANG_COMPARE_H_
