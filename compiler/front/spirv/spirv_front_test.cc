// SPDX-License-Identifier: Apache-2.0
// Tests which SPIR-V is accepted, what the reflection finds, and how the rest is refused.
#include "compiler/front/spirv/spirv_front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "compiler/front/spirv/testing/assemble.h"
#include "compiler/front/spirv/testing/modules.h"

namespace hpvm::spirv {
namespace {

using ::testing::HasSubstr;

std::string Replace(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  HPVMD_CHECK(at != std::string::npos);
  return text.replace(at, what.size(), with);
}

ParamSpec Buffer(const std::string& name, bool is_writable) { return {.name = name, .is_writable = is_writable}; }
ParamSpec Scalar(const std::string& name, ir::Type type) { return {.name = name, .is_buffer = false, .scalar = type}; }

struct Input {
  bool is_shader = true;
  std::string entry = "main";
  std::vector<ParamSpec> params{Buffer("x", false), Buffer("y", true), Scalar("count", ir::Type::kI32),
                                Scalar("factor", ir::Type::kF32)};
  std::vector<SpecialisationConstant> constants;
  GpuTarget target = FullTarget();
  Diagnostics diagnostics;

  static Input Kernel() {
    Input input;
    input.is_shader = false;
    input.entry = "scale";
    input.params = {Buffer("x", false), Buffer("y", true), Scalar("factor", ir::Type::kF32)};
    input.target.api_version = 300;
    return input;
  }
  std::optional<Program> Read(std::span<const uint8_t> bytes) {
    return ReadSpirv(bytes,
                     {.module_name = "m",
                      .entry = entry,
                      .params = params,
                      .constants = constants,
                      .target = &target,
                      .is_shader = is_shader},
                     diagnostics);
  }
  std::optional<Program> Read(const std::string& text, int minor) { return Read(Assemble(text, minor)); }
  std::optional<Program> Read(const std::string& text) { return Read(text, is_shader ? 3 : 0); }
};

// Buffers bind in order of set and binding, scalars in order of offset, however the parameters interleave them.
TEST(SpirvFrontTest, BindsShaders) {
  Input input;
  input.params = {input.params[2], input.params[0], input.params[3], input.params[1]};
  const std::optional<Program> program = input.Read(kShader);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  const GpuVariant& variant = program->variant;
  EXPECT_EQ(variant.entry, "main");
  EXPECT_EQ(variant.group, (std::array<uint32_t, 3>{64, 1, 1}));
  EXPECT_EQ(variant.push_bytes, 8u);
  EXPECT_FALSE(variant.can_trap);
  using Kind = GpuArgument::Kind;
  const std::vector<GpuArgument> want = {
      {.kind = Kind::kBuffer, .index = 1, .bytes = 8, .is_writable = false, .set = 0, .binding = 0, .offset = 0},
      {.kind = Kind::kBuffer, .index = 3, .bytes = 8, .is_writable = true, .set = 0, .binding = 1, .offset = 0},
      {.kind = Kind::kScalar, .index = 0, .bytes = 4, .is_writable = false, .set = 0, .binding = 0, .offset = 0},
      {.kind = Kind::kScalar, .index = 2, .bytes = 4, .is_writable = false, .set = 0, .binding = 0, .offset = 4}};
  EXPECT_EQ(variant.arguments, want);
}

// Each parameter is one argument, in order.
TEST(SpirvFrontTest, BindsKernels) {
  Input input = Input::Kernel();
  const std::optional<Program> program = input.Read(kKernel);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  const GpuVariant& variant = program->variant;
  EXPECT_EQ(variant.entry, "scale");
  EXPECT_EQ(variant.group, (std::array<uint32_t, 3>{0, 0, 0}));
  ASSERT_EQ(variant.arguments.size(), 3u);
  EXPECT_EQ(variant.arguments[0].kind, GpuArgument::Kind::kBuffer);
  EXPECT_FALSE(variant.arguments[0].is_writable);
  EXPECT_TRUE(variant.arguments[1].is_writable);
  EXPECT_EQ(variant.arguments[2].kind, GpuArgument::Kind::kScalar);
  EXPECT_EQ(variant.arguments[2].bytes, 4);
}

// The document's constants are written in; open constants that size groups are left to the launcher.
TEST(SpirvFrontTest, FixesConstants) {
  Input input;
  input.constants = {{.id = 7, .bits = 5}};
  const std::optional<Program> program = input.Read(kShader);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  const StatusOr<std::string> text = Disassemble(program->code);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("OpConstant %float 5"));
  EXPECT_THAT(*text, ::testing::Not(HasSubstr("SpecId")));
}

// A document's number is converted to the type of the module's constant, or is refused.
TEST(SpirvFrontTest, ConvertsConstants) {
  struct Case {
    const char* declared;  // Declared with SpecId 7, and unused.
    SpecialisationConstant value;
    const char* want;  // Expected in the disassembly, or in the refusal.
    bool fits = true;
  };
  const auto real = [](double value) { return SpecialisationConstant{7, true, std::bit_cast<uint64_t>(value)}; };
  const auto whole = [](int64_t value) { return SpecialisationConstant{7, false, static_cast<uint64_t>(value)}; };
  const Case kCases[] = {
      {"%word = OpSpecConstant %float 2", real(0.5), "OpConstant %float 0.5"},
      {"%word = OpSpecConstant %float 2", whole(-3), "OpConstant %float -3"},
      {"%word = OpSpecConstant %int 2", whole(-3), "OpConstant %int -3"},
      {"%word = OpSpecConstant %uint 2", whole(4294967295), "OpConstant %uint 4294967295"},
      {"%word = OpSpecConstantTrue %bool", whole(0), "OpConstantFalse %bool"},
      {"%word = OpSpecConstant %int 2", whole(int64_t{1} << 32),
       "a 32-bit integer, which the document's value (4294967296)", false},
      {"%word = OpSpecConstant %int 2", real(0.5), "a 32-bit integer, which the document's value (0.5)", false},
      {"%word = OpSpecConstantTrue %bool", whole(2), "a truth value, which the document's value (2)", false},
  };
  for (const Case& item : kCases) {
    std::string text = Replace(kShader, "%word = OpSpecConstant %float 2", item.declared);
    text = Replace(text, "%z = OpFAdd %float %y %word", "%z = OpFAdd %float %y %y");
    Input input;
    input.constants = {item.value};
    const std::optional<Program> program = input.Read(text);
    ASSERT_EQ(program.has_value(), item.fits) << item.declared << ToString(input.diagnostics);
    EXPECT_THAT(item.fits ? *Disassemble(program->code) : ToString(input.diagnostics), HasSubstr(item.want));
  }
}

constexpr char kSizedBySpec[] = R"(OpDecorate %word SpecId 7
OpDecorate %size BuiltIn WorkgroupSize
OpDecorate %sx SpecId 10
OpDecorate %sy SpecId 11
OpDecorate %sz SpecId 12
)";
constexpr char kSpecSizes[] = R"(%word = OpSpecConstant %float 2
%sx = OpSpecConstant %uint 8
%sy = OpSpecConstant %uint 4
%sz = OpSpecConstant %uint 2
%size = OpSpecConstantComposite %uint3 %sx %sy %sz
)";

// Groups sized by specialisation constants are chosen by the launcher, unless one of the constants is fixed.
TEST(SpirvFrontTest, ReadsGroupsFromConstants) {
  const std::string text = Replace(Replace(kShader, "OpDecorate %word SpecId 7\n", kSizedBySpec),
                                   "%word = OpSpecConstant %float 2\n", kSpecSizes);
  Input input;
  std::optional<Program> program = input.Read(text);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  EXPECT_EQ(program->variant.group, (std::array<uint32_t, 3>{0, 0, 0}));
  EXPECT_EQ(program->variant.group_constant, (std::array<uint32_t, 3>{10, 11, 12}));
  input.constants = {{.id = 10, .bits = 16}};
  program = input.Read(text);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  EXPECT_EQ(program->variant.group, (std::array<uint32_t, 3>{16, 4, 2}));
  EXPECT_EQ(program->variant.group_constant[0], GpuVariant::kNoConstant);
}

// Uniform blocks are bound like other buffers.
TEST(SpirvFrontTest, TakesUniformBlocks) {
  std::string text =
      Replace(kShader, "%in = OpVariable %ptr_block StorageBuffer", "%in = OpVariable %ptr_uniform Uniform");
  text = Replace(text, "%from = OpAccessChain %ptr_float %in %zero %i",
                 "%from = OpAccessChain %ptr_uniform_float %in %zero %zero");
  text = Replace(text, "%ptr_block =", R"(%sixteen = OpConstant %int 16
%fixed = OpTypeArray %float %sixteen
%Uniform = OpTypeStruct %fixed
%ptr_uniform = OpTypePointer Uniform %Uniform
%ptr_uniform_float = OpTypePointer Uniform %float
%ptr_block =)");
  text = Replace(text, "OpDecorate %Block Block", R"(OpDecorate %fixed ArrayStride 16
OpDecorate %Uniform Block
OpMemberDecorate %Uniform 0 Offset 0
OpDecorate %Block Block)");
  Input input;
  const std::optional<Program> program = input.Read(text);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  EXPECT_EQ(program->variant.arguments[0].binding, 0u);
  EXPECT_THAT(*Disassemble(program->code), ::testing::Not(HasSubstr(" Uniform")));
}

// Words may have either byte order.
TEST(SpirvFrontTest, SwapsWords) {
  std::vector<uint8_t> bytes = Assemble(kShader);
  const std::vector<uint8_t> straight = bytes;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  }
  Input input;
  const std::optional<Program> program = input.Read(bytes);
  ASSERT_TRUE(program.has_value()) << ToString(input.diagnostics);
  EXPECT_EQ(program->code, straight);
}

struct Refusal {
  const char* name;
  const char* what;  // Text to replace in the module; empty when the module is left alone.
  const char* with;
  std::vector<const char*> want;
};

void ExpectRefused(const Refusal& item, const char* text, Input input) {
  const std::string changed = *item.what == 0 ? text : Replace(text, item.what, item.with);
  EXPECT_FALSE(input.Read(changed).has_value()) << item.name;
  for (const char* want : item.want) {
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(want)) << item.name;
  }
}

// Items that are not on the lists are refused with the instruction, its position and the reason.
TEST(SpirvFrontTest, RefusesWhatIsNotListed) {
  const Refusal kShaders[] = {
      {"physical pointers",
       "OpCapability Shader",
       "OpCapability Shader\nOpCapability PhysicalStorageBufferAddresses",
       {"OpCapability at word 7", "PhysicalStorageBufferAddresses", "reach any address"}},
      {"physical extension",
       "%glsl =",
       "OpExtension \"SPV_KHR_physical_storage_buffer\"\n%glsl =",
       {"OpExtension at word 7", "SPV_KHR_physical_storage_buffer", "reach any address"}},
      {"physical type",
       "%ptr_block =",
       "OpTypeForwardPointer %ptr_block StorageBuffer\n%ptr_block =",
       {"OpTypeForwardPointer at word ", "reach any address"}},
      {"pointer from integer",
       "%y = OpFMul %float %x %scale",
       "%q = OpConvertUToPtr %ptr_float %i\n%y = OpFMul %float %x %scale",
       {"OpConvertUToPtr at word ", "reach any address"}},
      {"variable pointers",
       "OpCapability Shader",
       "OpCapability Shader\nOpCapability VariablePointers",
       {"VariablePointers", "chosen at run time"}},
      {"pointer arithmetic",
       "%x = OpLoad %float %from",
       "%p = OpPtrAccessChain %ptr_float %from %i\n%x = OpLoad %float %p",
       {"OpPtrAccessChain at word ", "chosen at run time"}},
      {"ray tracing",
       "OpCapability Shader",
       "OpCapability Shader\nOpCapability RayTracingKHR",
       {"RayTracingKHR", "ray tracing"}},
      {"ray query", "%array =", "%rq = OpTypeRayQueryKHR\n%array =", {"OpTypeRayQueryKHR at word ", "ray tracing"}},
      {"mesh",
       "OpCapability Shader",
       "OpCapability Shader\nOpCapability MeshShadingEXT",
       {"MeshShadingEXT", "only compute"}},
      {"images",
       "%array =",
       "%image = OpTypeImage %float 2D 0 0 0 2 R32f\n%array =",
       {"OpTypeImage at word ", "neither images"}},
      {"half", "OpCapability Shader", "OpCapability Shader\nOpCapability Float16", {"Float16", "16-bit floats"}},
      {"both flavours",
       "OpCapability Shader",
       "OpCapability Shader\nOpCapability Kernel",
       {"both of the capabilities Shader"}},
      {"no flavour", "OpCapability Shader", "OpCapability Matrix", {"neither of the capabilities"}},
      {"kernel's",
       "OpCapability Shader",
       "OpCapability Shader\nOpCapability Addresses",
       {"Addresses", "in an OpenCL kernel"}},
      {"set", "GLSL.std.450", "SPV_AMD_gcn_shader", {"OpExtInstImport at word 7", "SPV_AMD_gcn_shader"}},
      {"printf", "GLSL.std.450", "NonSemantic.DebugPrintf", {"NonSemantic.DebugPrintf", "may not print"}},
      {"extension",
       "%glsl =",
       "OpExtension \"SPV_EXT_demote_to_helper_invocation\"\n%glsl =",
       {"SPV_EXT_demote_to_helper_invocation", "not on the list"}},
      {"graphics", "OpReturn\n", "OpKill\n", {"OpKill at word ", "only compute"}},
  };
  for (const Refusal& item : kShaders) {
    ExpectRefused(item, kShader, Input());
  }
  const Refusal kKernels[] = {
      {"printf",
       "%y = OpFMul %float %x %factor",
       "%p = OpExtInst %int %ocl printf %in\n%y = OpFMul %float %x %factor",
       {"OpExtInst at word ", "calls printf"}},
      {"enqueue", "%ulong3 =", "%queue = OpTypeQueue\n%ulong3 =", {"OpTypeQueue at word ", "start other kernels"}},
      {"pipes", "OpCapability Int64", "OpCapability Int64\nOpCapability Pipes", {"Pipes", "use pipes"}},
      {"import",
       "OpDecorate %gid LinkageAttributes",
       "OpDecorate %main LinkageAttributes \"other\" Import\nOpDecorate %gid LinkageAttributes",
       {"imports \"other\"", "complete"}},
      {"generic",
       "OpCapability Int64",
       "OpCapability Int64\nOpCapability GenericPointer",
       {"GenericPointer", "generic pointers (OpenCL 2.0)"}},
  };
  for (const Refusal& item : kKernels) {
    const std::string text =
        Replace(kKernel, "%float = OpTypeFloat 32", "%int = OpTypeInt 32 0\n%float = OpTypeFloat 32");
    ExpectRefused(item, text.c_str(), Input::Kernel());
  }
}

// A feature that the device lacks is refused before its driver sees the module.
TEST(SpirvFrontTest, RefusesWhatTheDeviceLacks) {
  struct Case {
    const char* capability;
    bool GpuTarget::*fact;
    const char* want;
  };
  for (const Case& item :
       {Case{"Float64", &GpuTarget::has_fp64, "64-bit floats"}, Case{"Int64", &GpuTarget::has_int64, "64-bit integers"},
        Case{"Int64Atomics", &GpuTarget::has_int64_atomics, "64-bit atomic"},
        Case{"StorageBuffer8BitAccess", &GpuTarget::has_8_bit_storage, "8-bit"},
        Case{"Int16", &GpuTarget::has_16_bit_storage, "16-bit"}}) {
    const std::string text =
        Replace(kShader, "OpCapability Shader",
                std::string("OpCapability Shader\nOpCapability Int64\nOpCapability ") + item.capability);
    Input input;
    input.target.*item.fact = false;
    EXPECT_FALSE(input.Read(text).has_value()) << item.capability;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(std::string("the device lacks ") + item.want));
  }
}

// The fault for a mismatch names both sides.
TEST(SpirvFrontTest, RefusesParametersThatDoNotFit) {
  struct Case {
    const char* name;
    std::vector<ParamSpec> params;
    const char* want;
  };
  const ParamSpec x = Buffer("x", false), y = Buffer("y", true), n = Scalar("n", ir::Type::kI32),
                  f = Scalar("f", ir::Type::kF32);
  const Case kShaders[] = {
      {"too few buffers",
       {y, n, f},
       "binds 2 buffers (buffer \"in\" (set 0, binding 0), buffer \"out\" (set 0, binding 1)), and the node has 1 "
       "ports (\"y\")"},
      {"too many buffers", {x, y, y, n, f}, "the node has 3 ports (\"x\", \"y\", \"y\")"},
      {"scalars", {x, y, n}, "has 2 push constants (\"n\", \"scale\"), and the node has 1 scalars (\"n\")"},
      {"type",
       {x, y, f, f},
       "Parameter \"f\" is a scalar of type f32, but the push constant \"n\" at offset 0 is a 32-bit integer"},
      {"width",
       {x, y, n, Scalar("d", ir::Type::kF64)},
       "Parameter \"d\" is a scalar of type f64, but the push constant \"scale\" at offset 4 is a 32-bit float"},
      {"written",
       {y, x, n, f},
       "Parameter \"x\" is a buffer that is only read, but the entry writes buffer \"out\" (set 0, binding 1)"},
  };
  for (const Case& item : kShaders) {
    Input input;
    input.params = item.params;
    EXPECT_FALSE(input.Read(kShader).has_value()) << item.name;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.name;
  }
  const Case kKernels[] = {
      {"count", {x, y}, "takes 3 arguments, and the node has 2 parameters"},
      {"kind",
       {x, f, f},
       "Parameter 1 is a scalar of type f32 \"f\" of the node, but a pointer to global memory \"out\" in the kernel"},
      {"type",
       {x, y, n},
       "Parameter 2 is a scalar of type i32 \"n\" of the node, but a 32-bit float \"factor\" in the kernel"},
      {"buffer", {x, y, y}, "Parameter 2 is a buffer that is written \"y\" of the node, but a 32-bit float"},
  };
  for (const Case& item : kKernels) {
    Input input = Input::Kernel();
    input.params = item.params;
    EXPECT_FALSE(input.Read(kKernel).has_value()) << item.name;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.name;
  }
}

// Missing entries, modules for the other API, groups and memory beyond the device's limits, and unknown constants are
// refused.
TEST(SpirvFrontTest, RefusesWhatCannotRun) {
  Input input;
  input.entry = "start";
  EXPECT_FALSE(input.Read(kShader).has_value());
  EXPECT_THAT(ToString(input.diagnostics), HasSubstr("no entry point \"start\" for compute; it has \"main\""));

  Input kernel = Input::Kernel();
  EXPECT_FALSE(kernel.Read(kShader, 3).has_value());
  EXPECT_THAT(ToString(kernel.diagnostics),
              HasSubstr("is a Vulkan shader (capability Shader), and the device is an OpenCL one"));
  Input shader;
  EXPECT_FALSE(shader.Read(kKernel, 0).has_value());
  EXPECT_THAT(ToString(shader.diagnostics),
              HasSubstr("is an OpenCL kernel (capability Kernel), and the device is a Vulkan one"));

  const Refusal kRefusals[] = {
      {"group",
       "LocalSize 64 1 1",
       "LocalSize 64 32 1",
       {"groups have 64 x 32 x 1 work items; the device takes at most 1024"}},
      {"extent", "LocalSize 64 1 1", "LocalSize 1 1 65", {"the device takes 1 to 64 in dimension 2"}},
      {"no group", "OpExecutionMode %main LocalSize 64 1 1\n", "", {"does not say how many work items"}},
      {"set", "OpDecorate %in DescriptorSet 0", "OpDecorate %in DescriptorSet 9", {"set 9, binding 0; sets below 4"}},
      {"no binding", "OpDecorate %in Binding 0\n", "", {"without a descriptor set or a binding"}},
      {"offset",
       "OpMemberDecorate %Push 1 Offset 4",
       "OpMemberDecorate %Push 1 Offset 200",
       {"push constants take 204 bytes; the device has 128"}},
  };
  for (const Refusal& item : kRefusals) {
    ExpectRefused(item, kShader, Input());
  }
  Input constants;
  constants.constants = {{.id = 8, .bits = 1}};
  EXPECT_FALSE(constants.Read(kShader).has_value());
  EXPECT_THAT(ToString(constants.diagnostics), HasSubstr("no specialisation constant 8; it has 7"));
  Input wide;
  wide.constants = {{.id = 7, .is_float = true, .bits = std::bit_cast<uint64_t>(1e300)}};
  EXPECT_FALSE(wide.Read(kShader).has_value());
  EXPECT_THAT(ToString(wide.diagnostics),
              HasSubstr("is a 32-bit float, which the document's value (1e+300) does not fit"));
}

// Our own limits apply before any tool or driver runs.
TEST(SpirvFrontTest, RefusesWhatIsTooLarge) {
  std::string deep = "%t0 = OpTypeStruct %float\n";
  for (int i = 1; i < 40; ++i) {
    deep += "%t" + std::to_string(i) + " = OpTypeStruct %t" + std::to_string(i - 1) + "\n";
  }
  std::string members = "%wide = OpTypeStruct";
  for (int i = 0; i < 1100; ++i) {
    members += " %float";
  }
  const std::string doubling = [] {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      const std::string callee = "%f" + std::to_string(i + 1);
      text += "%f" + std::to_string(i) + " = OpFunction %void None %function\n%l" + std::to_string(i) +
              " = OpLabel\n%c" + std::to_string(i) + " = OpFunctionCall %void " + callee + "\n%d" + std::to_string(i) +
              " = OpFunctionCall %void " + callee + "\nOpReturn\nOpFunctionEnd\n";
    }
    return text + "%f40 = OpFunction %void None %function\n%l40 = OpLabel\nOpReturn\nOpFunctionEnd\n";
  }();
  const std::string end = "OpReturn\nOpFunctionEnd\n";
  struct Case {
    const char* name;
    std::string what, with, want;
  };
  const std::string huge = "%many = OpConstant %uint 100000\n%big = OpTypeArray %float %many\n";
  const Case kCases[] = {
      {"type depth", "%Block = ", deep + "%Block = ", "nests types 33 deep; the limit is 32"},
      {"members", "%Block = ", members + "\n%Block = ", "has 1100 members; the limit is 1024"},
      {"private",
       "%gid = ", huge + "%ptr_big = OpTypePointer Private %big\n%scratch = OpVariable %ptr_big Private\n%gid = ",
       "private memory of all variables up to here (400000 bytes) exceeds the limit (65536)"},
      {"function", "%begin = OpLabel\n", "%begin = OpLabel\n%scratch = OpVariable %ptr_big Function\n",
       "private memory"},
      {"group memory",
       "%gid = ", huge + "%ptr_big = OpTypePointer Workgroup %big\n%tile = OpVariable %ptr_big Workgroup\n%gid = ",
       "is more than the device has (32768 bytes)"},
      {"value", "%gid = ", huge + "%nothing = OpUndef %big\n%gid = ", "computes a value whose size (400000 bytes)"},
      {"constant", "%gid = ",
       "%many = OpConstant %uint 1000000\n%big = OpTypeArray %float %many\n%nothing = OpConstantNull %big\n%gid = ",
       "the size of all constants up to here"},
      {"inlining", end, end + doubling, "once calls stand for their callees"},
      {"recursion", end,
       end + "%f = OpFunction %void None %function\n%l = OpLabel\n%c = OpFunctionCall %void %f\n" + end,
       "calls itself"},
  };
  for (const Case& item : kCases) {
    std::string text = Replace(kShader, item.what, item.with);
    if (std::string(item.name) == "function") {
      text = Replace(text, "%gid = ", huge + "%ptr_big = OpTypePointer Function %big\n%gid = ");
    }
    Input input;
    EXPECT_FALSE(input.Read(text).has_value()) << item.name;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want)) << item.name;
  }
}

// Deeply nested constructs are refused, because drivers recurse on them.
TEST(SpirvFrontTest, RefusesDeepNesting) {
  const auto nested = [](int depth) {
    std::string open, close;
    for (int i = 0; i < depth; ++i) {
      const std::string n = std::to_string(i);
      open += "OpSelectionMerge %m" + n + " None\nOpBranchConditional %is_in %t" + n + " %m" + n + "\n%t" + n +
              " = OpLabel\n";
      close = "OpBranch %m" + n + "\n%m" + n + " = OpLabel\n" + close;
    }
    return Replace(kShader, "%from = OpAccessChain", open + close + "%from = OpAccessChain");
  };
  Input input;
  EXPECT_TRUE(input.Read(nested(100)).has_value()) << ToString(input.diagnostics);
  EXPECT_FALSE(input.Read(nested(300)).has_value());
  EXPECT_THAT(ToString(input.diagnostics), HasSubstr("nests constructs 201 deep; the limit is 200"));
}

// Truncated or damaged modules are refused, and never read beyond their end.
TEST(SpirvFrontTest, RefusesDamage) {
  const std::vector<uint8_t> good = Assemble(kShader);
  for (size_t bytes = 0; bytes < good.size(); bytes += bytes < 400 ? 1 : 4) {
    Input input;
    EXPECT_FALSE(input.Read(std::span(good).first(bytes)).has_value()) << bytes;
    EXPECT_TRUE(HasErrors(input.diagnostics));
  }
  struct Case {
    size_t word;
    uint32_t value;
    const char* want;
  };
  for (const Case& item :
       {Case{0, 0x12345678, "magic number"}, Case{1, 0x00020000, "version is 2.0"},
        Case{1, 0x00010700, "version is 1.7"}, Case{3, 0, "id bound is 0"},
        Case{3, 200'000, "id bound is 200000; 1 to 100000"}, Case{3, 5, "not below the module's bound"},
        Case{4, 1, "schema is 1"}, Case{5, 17, "has a length of 0 words"},
        Case{5, 0xffff0011, "has a length of 65535 words"}}) {
    std::vector<uint8_t> bytes = good;
    for (size_t b = 0; b < 4; ++b) {
      bytes[item.word * 4 + b] = static_cast<uint8_t>(item.value >> (8 * b));
    }
    Input input;
    EXPECT_FALSE(input.Read(bytes).has_value()) << item.want;
    EXPECT_THAT(ToString(input.diagnostics), HasSubstr(item.want));
  }
  Input input;
  EXPECT_FALSE(input.Read(std::vector<uint8_t>(5 * 1024 * 1024)).has_value());
  EXPECT_THAT(ToString(input.diagnostics), HasSubstr("5242880 bytes; the limit is 4194304"));
}

// SPIRV-Tools' validator decides last, for the device's environment.
TEST(SpirvFrontTest, RefusesWhatIsNotValid) {
  Input input;
  EXPECT_FALSE(input.Read(Replace(kShader, "%y = OpFMul %float %x %scale", "%y = OpFMul %float %x %n")).has_value());
  EXPECT_THAT(ToString(input.diagnostics), HasSubstr("not valid SPIR-V for Vulkan 1.2 (spirv-val)"));
  Input kernel = Input::Kernel();
  EXPECT_FALSE(kernel.Read(Replace(kKernel, "%y = OpFMul %float %x %factor", "%y = OpFMul %float %x %i")).has_value());
  EXPECT_THAT(ToString(kernel.diagnostics), HasSubstr("not valid SPIR-V for OpenCL 1.2 (spirv-val)"));
  Input late = Input::Kernel();
  EXPECT_FALSE(late.Read(kKernel, 4).has_value());
  EXPECT_THAT(ToString(late.diagnostics), HasSubstr("version of the kernel module is 1.4"));
}

// Disassembling garbage is an error.
TEST(SpirvFrontTest, DisassemblerRefusesNonsense) {
  EXPECT_FALSE(Disassemble(std::vector<uint8_t>(8, 0x17)).ok());
  EXPECT_FALSE(Disassemble(std::vector<uint8_t>(3, 0x17)).ok());
}

}  // namespace
}  // namespace hpvm::spirv
