// SPDX-License-Identifier: Apache-2.0
// Tests what a request can ask of one compile: fast math, explanations, listings, inferred parameters.
#include "compiler/driver/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/hash.h"
#include "compiler/api/source_text.h"
#include "compiler/back/back_ends.h"
#include "compiler/driver/infer_params.h"
#include "compiler/front/opencl/program.h"
#include "compiler/front/spirv/testing/assemble.h"
#include "compiler/front/spirv/testing/modules.h"
#include "compiler/front/wasm/testing/files.h"
#include "compiler/front/wasm/testing/wabt.h"
#include "compiler/ir/access.h"
#include "compiler/ir/walk.h"
#if HPVMD_HAS_KERNEL_IL
#include "compiler/back/kernel_il/kernel_il.h"
#endif

namespace hpvm::compile {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Computes out[id] = exp(in[id] * scale) for the first n instances.
constexpr char kKernel[] = R"((module
  (import "hpvm" "instance_id" (func $id (param i32) (result i32)))
  (import "hpvm" "exp_f32" (func $exp (param f32) (result f32)))
  (memory 1)
  (func (export "run") (param $in i32) (param $out i32) (param $n i32) (param $scale f32) (local $at i32)
    (if (i32.lt_s (call $id (i32.const 0)) (local.get $n))
      (then
        (local.set $at (i32.shl (call $id (i32.const 0)) (i32.const 2)))
        (f32.store (i32.add (local.get $out) (local.get $at))
          (call $exp (f32.mul (f32.load (i32.add (local.get $in) (local.get $at))) (local.get $scale)))))))
))";

struct Compiled {
  std::vector<uint8_t> bytes = wasm::Assemble(kKernel);
  CompileRequest request;
  Compiled() {
    request.module_name = "m";
    request.entry = "run";
    request.params = {{.name = "in", .is_writable = false},
                      {.name = "out"},
                      {.name = "n", .is_buffer = false},
                      {.name = "scale", .is_buffer = false, .scalar = ir::Type::kF32}};
  }
  CompileResult Run() {
    const StatusOr<cpu::CpuTarget> target = cpu::HostCpuTarget();
    HPVMD_CHECK(target.ok());
    return CompileModule(request, bytes, *target);
  }
};

// Only a node that asks for it gets the fast library, and only on targets that compile.
TEST(CompileTest, FastMathReachesTheCodeAndTheArtifact) {
  struct Case {
    ArtifactKind target;
    bool asks, gets;
  };
  for (const Case& item : {Case{ArtifactKind::kCpuImage, false, false}, Case{ArtifactKind::kCpuImage, true, true},
                           Case{ArtifactKind::kInterp, false, false}, Case{ArtifactKind::kInterp, true, false}}) {
    Compiled compiled;
    compiled.request.target = item.target;
    compiled.request.fast_math = item.asks;
    const CompileResult result = compiled.Run();
    ASSERT_TRUE(result.artifact.has_value()) << ToString(result.diagnostics);
    EXPECT_EQ(result.artifact->fast_math, item.gets);
    EXPECT_EQ(std::count(result.artifact->function_names.begin(), result.artifact->function_names.end(),
                         std::string("fast_exp_f32")) != 0,
              item.gets);
    EXPECT_THAT(result.artifact->remarks, IsEmpty());
  }
}

// The forms that use a device's own functions go to devices that have them, for fast nodes.
TEST(CompileTest, DeviceMathReachesItsDevices) {
  for (const ArtifactKind kind : {ArtifactKind::kOpenCl, ArtifactKind::kVulkan}) {
    for (int i = 0; i < 4; ++i) {
      Compiled compiled;
      compiled.request.target = kind;
      compiled.request.gpu = gpu::FindBackEnd(kind)->h200();
      EXPECT_TRUE(compiled.request.gpu.device_math);
      compiled.request.gpu.device_math = (i & 1) != 0;
      compiled.request.fast_math = (i & 2) != 0;
      const CompileResult result = compiled.Run();
      ASSERT_TRUE(result.artifact.has_value()) << ToString(result.diagnostics);
      const auto has = [&](const char* name) {
        return std::ranges::count(result.artifact->function_names, std::string(name)) != 0;
      };
      EXPECT_EQ(has("device_exp_f32"), i == 3);
      EXPECT_EQ(has("fast_exp_f32"), i == 2);
    }
  }
}

// An explained compile has remarks on the kernel as a whole; other compiles have none.
TEST(CompileTest, ExplainsAndLists) {
  struct Case {
    Listing listing;
    const char* want;
  };
  for (const Case& item : {Case{Listing::kNone, ""}, Case{Listing::kIr, "func f0 \"run\""},
                           Case{Listing::kLlvm, "define "}, Case{Listing::kAssembly, "\tret"}}) {
    Compiled compiled;
    compiled.request.explain = true;
    compiled.request.listing = item.listing;
    const CompileResult result = compiled.Run();
    ASSERT_TRUE(result.artifact.has_value()) << ToString(result.diagnostics);
    EXPECT_THAT(result.artifact->remarks, Contains(Field(&KernelRemark::text, HasSubstr("accesses to buffers"))));
    EXPECT_THAT(result.artifact->listing, HasSubstr(item.want));
    EXPECT_EQ(result.artifact->listing.empty(), item.listing == Listing::kNone);
  }
}

// Code can be listed for another processor than this one.
TEST(CompileTest, ExplainsForAnotherProcessor) {
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"}) {
    Compiled compiled;
    compiled.request.explain = true;
    compiled.request.level = level;
    compiled.request.listing = Listing::kAssembly;
    const CompileResult result = compiled.Run();
    ASSERT_TRUE(result.artifact.has_value()) << level << ": " << ToString(result.diagnostics);
    EXPECT_EQ(result.artifact->target, level);
    EXPECT_THAT(result.artifact->listing, HasSubstr("ret"));
    EXPECT_THAT(result.artifact->remarks, Not(IsEmpty()));
  }
  Compiled compiled;
  compiled.request.explain = true;
  compiled.request.level = "pdp-11";
  const CompileResult result = compiled.Run();
  EXPECT_FALSE(result.artifact.has_value());
  EXPECT_THAT(ToString(result.diagnostics), HasSubstr("pdp-11"));
}

// Parameters are inferred from addresses, numbers and stores.
TEST(CompileTest, InfersParameters) {
  Compiled compiled;
  compiled.request.explain = true;
  compiled.request.infers_params = true;
  compiled.request.params.clear();
  const CompileResult result = compiled.Run();
  ASSERT_TRUE(result.artifact.has_value()) << ToString(result.diagnostics);
  const std::vector<ir::KernelParam>& params = result.artifact->params;
  ASSERT_EQ(params.size(), 4u);
  EXPECT_TRUE(params[0].is_buffer && !params[0].is_writable);
  EXPECT_TRUE(params[1].is_buffer && params[1].is_writable);
  EXPECT_TRUE(!params[2].is_buffer && params[2].type == ir::Type::kI32);
  EXPECT_TRUE(!params[3].is_buffer && params[3].type == ir::Type::kF32);
}

// Covers a pointer that is incremented, a pointer that is selected, a copy, and HPVM-web's sizes.
TEST(CompileTest, InfersParametersThroughLoopsAndConventions) {
  struct Case {
    const char* name;
    Abi abi;
    const char* wat;
    const char* want;  // r: read, w: written, i: an i32.
  };
  const Case kCases[] = {
      {"loop", Abi::kHpvm,
       R"((module (memory 1) (func (export "run") (param $p i32) (param $n i32)
            (loop $l (i32.store (local.get $p) (i32.const 1))
              (local.set $p (i32.add (local.get $p) (i32.const 4)))
              (local.set $n (i32.sub (local.get $n) (i32.const 1)))
              (br_if $l (i32.gt_s (local.get $n) (i32.const 0)))))))",
       "wi"},
      {"chosen", Abi::kHpvm,
       R"((module (memory 1) (func (export "run") (param $a i32) (param $b i32) (param $c i32)
            (i32.store (select (local.get $a) (local.get $b) (local.get $c)) (i32.const 1)))))",
       "wwi"},
      {"copy", Abi::kHpvm,
       R"((module (memory 1) (func (export "run") (param $to i32) (param $from i32) (param $bytes i32)
            (memory.copy (local.get $to) (local.get $from) (local.get $bytes)))))",
       "wri"},
      {"web", Abi::kHpvmWeb,
       R"((module (memory 1) (func (export "run") (param $p i32) (param $size i32) (param $n i32)
            (param i32 i32 i32 i32 i32 i32)
            (i32.store (local.get $p) (i32.mul (local.get $n) (local.get $size))))))",
       "wi"},
      {"none", Abi::kHpvm, R"((module (memory 1) (func (export "run"))))", ""},
  };
  for (const Case& item : kCases) {
    Compiled compiled;
    compiled.bytes = wasm::Assemble(item.wat);
    compiled.request.explain = true;
    compiled.request.infers_params = true;
    compiled.request.params.clear();
    compiled.request.abi = item.abi;
    const CompileResult result = compiled.Run();
    ASSERT_TRUE(result.artifact.has_value()) << item.name << ": " << ToString(result.diagnostics);
    std::string got;
    for (const ir::KernelParam& param : result.artifact->params) {
      got += !param.is_buffer ? 'i' : param.is_writable ? 'w' : 'r';
    }
    EXPECT_EQ(got, item.want) << item.name;
  }
}

// For any device, kKernel's artifact says which bytes half of a launch touches and how much it computes; a native
// module's artifact has no such facts.
void ExpectFacts(const Artifact& artifact, bool is_native) {
  ir::BoundsFacts facts;
  facts.extent = {100, 1, 1};
  facts.params = {{true, false, 400, 32}, {true, true, 400, 32}, {false, true, 100, 32}, {false, true, 0, 32}};
  std::vector<ir::ParamAccess> accesses;
  const ir::WorkCount work = ir::CountWork(artifact.work, artifact.bounds, facts);
  ASSERT_EQ(ir::FindAccesses(artifact.bounds, facts, {{50, 0, 0}, {50, 1, 1}}, &accesses), !is_native);
  if (is_native) {
    EXPECT_TRUE(work.is_guess && work.operations == 0);
    return;
  }
  EXPECT_EQ(accesses[0].read.begin, 200u);
  EXPECT_EQ(accesses[0].read.end, 400u);
  EXPECT_TRUE(accesses[0].written.is_empty());
  EXPECT_EQ(accesses[1].written.begin, 200u);
  EXPECT_EQ(accesses[1].written.end, 400u);
  EXPECT_TRUE(accesses[1].overwrites);
  EXPECT_EQ(work.bytes, 800);
  EXPECT_GT(work.operations, 100 * 10);
}

constexpr char kOpenClText[] = "__kernel void scale(__global const float* in, __global float* out, float factor) {}";

// Each kind of module on each target either compiles, or the message says where it runs.
TEST(CompileTest, MakesOfEachKindWhatEachTargetTakes) {
  const std::vector<uint8_t> wasm = wasm::Assemble(kKernel), shader = spirv::Assemble(spirv::kShader, 3),
                             kernel = spirv::Assemble(spirv::kKernel, 0),
                             text(std::begin(kOpenClText), std::end(kOpenClText) - 1), bits = {1, 2, 3};
  const ParamSpec in{.name = "in", .is_writable = false}, out{.name = "out"}, n{.name = "n", .is_buffer = false},
      factor{.name = "factor", .is_buffer = false, .scalar = ir::Type::kF32};
  struct Case {
    ModuleKind kind;
    const std::vector<uint8_t>* module;
    const char* entry;
    ArtifactKind target;
    GpuFormat il = GpuFormat::kSpirvKernel;
    GpuFormat want = GpuFormat::kNone;
    const char* refusal = "";
  };
  using Target = ArtifactKind;
  const char* kOpenClOnly = "OpenCL C runs on OpenCL devices only; this compile is for ";
  const Case kCases[] = {
      {ModuleKind::kWasm, &wasm, "run", Target::kInterp},
      {ModuleKind::kWasm, &wasm, "run", Target::kCpuImage},
      {ModuleKind::kWasm, &wasm, "run", Target::kOpenCl, GpuFormat::kNone, GpuFormat::kOpenClC},
      {ModuleKind::kWasm, &wasm, "run", Target::kVulkan, GpuFormat::kNone, GpuFormat::kSpirvShader},
      {ModuleKind::kSpirv, &shader, "main", Target::kVulkan, GpuFormat::kNone, GpuFormat::kSpirvShader},
      {ModuleKind::kSpirv, &kernel, "scale", Target::kOpenCl, GpuFormat::kSpirvKernel, GpuFormat::kSpirvKernel},
      {ModuleKind::kSpirv, &kernel, "scale", Target::kOpenCl, GpuFormat::kPtx, GpuFormat::kPtx},
      {ModuleKind::kSpirv, &kernel, "scale", Target::kOpenCl, GpuFormat::kSpirBitcode, GpuFormat::kSpirBitcode},
      {ModuleKind::kOpenCl, &text, "scale", Target::kOpenCl, GpuFormat::kNone, GpuFormat::kOpenClC},
      {ModuleKind::kBitstream, &bits, "scale", Target::kOpenCl, GpuFormat::kNone, GpuFormat::kBitstream},
      {ModuleKind::kSpirv, &kernel, "scale", Target::kOpenCl, GpuFormat::kNone, GpuFormat::kNone,
       "The device's driver accepts no form of SPIR-V kernels."},
      {ModuleKind::kSpirv, &shader, "main", Target::kOpenCl, GpuFormat::kSpirvKernel, GpuFormat::kNone,
       "is a Vulkan shader (capability Shader), and the device is an OpenCL one"},
      {ModuleKind::kSpirv, &kernel, "scale", Target::kVulkan, GpuFormat::kNone, GpuFormat::kNone,
       "is an OpenCL kernel (capability Kernel), and the device is a Vulkan one"},
      {ModuleKind::kSpirv, &shader, "main", Target::kCpuImage, GpuFormat::kNone, GpuFormat::kNone,
       "SPIR-V runs on OpenCL devices (kernels) and Vulkan devices (compute shaders) only; this compile is for the "
       "processor."},
      {ModuleKind::kOpenCl, &text, "scale", Target::kCpuImage, GpuFormat::kNone, GpuFormat::kNone, kOpenClOnly},
      {ModuleKind::kOpenCl, &text, "scale", Target::kVulkan, GpuFormat::kNone, GpuFormat::kNone, kOpenClOnly},
      {ModuleKind::kOpenCl, &text, "scale", Target::kInterp, GpuFormat::kNone, GpuFormat::kNone, kOpenClOnly},
      {ModuleKind::kBitstream, &bits, "scale", Target::kVulkan, GpuFormat::kNone, GpuFormat::kNone,
       "A bitstream runs on FPGA-class OpenCL devices only; this compile is for a Vulkan device."},
      {static_cast<ModuleKind>(9), &bits, "scale", Target::kOpenCl, GpuFormat::kNone, GpuFormat::kNone,
       "The module's kind (9) is not known."},
  };
  ASSERT_TRUE(opencl::PrepareOpenCl().ok());
#if HPVMD_HAS_KERNEL_IL
  ASSERT_TRUE(kernel_il::PrepareKernelIl().ok());
#endif
  for (const Case& item : kCases) {
    SCOPED_TRACE(std::to_string(static_cast<int>(item.kind)) + " for " + std::to_string(static_cast<int>(item.target)) +
                 " as " + std::to_string(static_cast<int>(item.il)));
    Compiled compiled;
    compiled.bytes = *item.module;
    compiled.request.module_kind = item.kind;
    compiled.request.entry = item.entry;
    compiled.request.target = item.target;
    compiled.request.gpu = spirv::FullTarget();
    compiled.request.gpu.kernel_il = item.il;
    compiled.request.params = {in, out, n, factor};
    if (item.entry == std::string("scale")) {
      compiled.request.params = {in, out, factor};
    }
    const CompileResult result = compiled.Run();
    ASSERT_EQ(result.artifact.has_value(), *item.refusal == 0) << ToString(result.diagnostics);
    EXPECT_THAT(ToString(result.diagnostics), HasSubstr(item.refusal));
    if (result.artifact.has_value()) {
      EXPECT_EQ(result.artifact->kind, item.target);
      EXPECT_EQ(result.artifact->gpu.format, item.want);
      EXPECT_EQ(result.artifact->gpu.is_native, item.want != GpuFormat::kNone && item.kind != ModuleKind::kWasm);
      EXPECT_TRUE(ValidateGpuCode(result.artifact->gpu, result.artifact->params.size()).ok());
      ExpectFacts(*result.artifact, item.kind != ModuleKind::kWasm);
    }
  }
}

// The device's own text can be listed, with remarks.
TEST(CompileTest, ListsWhatTheDeviceGets) {
  struct Case {
    ArtifactKind target;
    const char* want;
  };
  for (const Case& item :
       {Case{ArtifactKind::kOpenCl, "__kernel void"}, Case{ArtifactKind::kVulkan, "OpEntryPoint GLCompute"}}) {
    Compiled compiled;
    compiled.request.target = item.target;
    compiled.request.gpu = spirv::FullTarget();
    compiled.request.explain = true;
    compiled.request.listing = Listing::kDevice;
    CompileResult result = compiled.Run();
    ASSERT_TRUE(result.artifact.has_value()) << ToString(result.diagnostics);
    EXPECT_THAT(result.artifact->listing, HasSubstr(item.want));
    EXPECT_THAT(result.artifact->remarks, Contains(Field(&KernelRemark::text, HasSubstr("Variant 0 ("))));
    compiled.request.listing = Listing::kAssembly;
    result = compiled.Run();
    EXPECT_THAT(ToString(result.diagnostics), HasSubstr("for a GPU ask for the kernel IR (ir)"));
  }
}

// A kernel in Rust with std (tests/golden/rust): panicking code is cut, so that little more than the author's code
// remains for any back end, and each panic has the author's line. The budget counts operations, since time would
// depend on the machine; before the cut there were 80,000.
TEST(CompileTest, RustPanicsAreCutAtTheAuthorsLines) {
  const std::string folder = HPVMD_SOURCE_DIR "/tests/golden/rust/";
  Compiled compiled;
  compiled.bytes = wasm::ReadBytes(folder + "panics.wasm");
  compiled.request.params = {
      {.name = "x", .is_writable = false}, {.name = "out"}, {.name = "count", .is_buffer = false}};
  const std::string source = wasm::ReadText(folder + "panics.rs");
  const auto line_of = [&](const std::string& mark) {
    const size_t at = source.find("// LINE " + mark);
    HPVMD_CHECK(at != std::string::npos);
    return "panics.rs:" +
           std::to_string(1 + std::count(source.begin(), source.begin() + static_cast<ptrdiff_t>(at), '\n'));
  };
  struct Case {
    const char* entry;
    std::set<std::string> lines;
  };
  for (const Case& item :
       {Case{"gather", {line_of("gather")}}, Case{"root", {line_of("unwrap"), line_of("panic"), line_of("store")}}}) {
    compiled.request.entry = item.entry;
    for (const ArtifactKind target : {ArtifactKind::kCpuImage, ArtifactKind::kOpenCl}) {
      compiled.request.target = target;
      const FrontResult front = PrepareModule(compiled.request, compiled.bytes);
      ASSERT_TRUE(front.module.has_value()) << ToString(front.diagnostics);
      const ir::Function& entry = front.module->function(front.module->entry);
      uint32_t ops = 0, calls = 0;
      ir::ForEachOp(entry, [&](ir::OpId id) {
        ++ops;
        calls += ir::Info(entry.op(id).code).family == ir::Family::kCall ? 1 : 0;
      });
      EXPECT_LE(ops, 200u) << item.entry;
      EXPECT_EQ(calls, 0u) << item.entry;
    }
    compiled.request.target = ArtifactKind::kCpuImage;
    const CompileResult result = compiled.Run();
    ASSERT_TRUE(result.artifact.has_value()) << ToString(result.diagnostics);
    const FrontResult front = PrepareModule(compiled.request, compiled.bytes);
    const ir::Function& entry = front.module->function(front.module->entry);
    std::set<std::string> lines;
    ir::ForEachOp(entry, [&](ir::OpId id) {
      if (entry.op(id).code == ir::Opcode::kTrap) {
        const std::string place = PlaceOf(*result.artifact, entry.op(id).source);
        lines.insert(place.substr(0, place.rfind(':')));
      }
    });
    EXPECT_EQ(lines, item.lines) << item.entry;
  }
}

}  // namespace
}  // namespace hpvm::compile
