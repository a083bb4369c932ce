// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/testing/shaders.h"

#include <string>
#include <string_view>

#include "base/status.h"
#include "spirv-tools/libspirv.hpp"

namespace hpvm::vulkan {
namespace {

using Kind = GpuArgument::Kind;

// Buffers are %b0, %b1 and %b2, arrays of words; %push is four words.
struct Source {
  std::string_view interface;  // Variables that the entry names, besides %id.
  std::string_view decorations;
  std::string_view body;  // %i is the instance, %i0 that within the part.
};

constexpr std::string_view kTypes = R"(
%void = OpTypeVoid
%fn = OpTypeFunction %void
%bool = OpTypeBool
%uint = OpTypeInt 32 0
%uint3 = OpTypeVector %uint 3
%c0 = OpConstant %uint 0
%c1 = OpConstant %uint 1
%c2 = OpConstant %uint 2
%c3 = OpConstant %uint 3
%c4 = OpConstant %uint 4
%c5 = OpConstant %uint 5
%c7 = OpConstant %uint 7
%c8 = OpConstant %uint 8
%c77 = OpConstant %uint 77
%far = OpConstant %uint 100000
%words = OpTypeRuntimeArray %uint
%buffer = OpTypeStruct %words
%values = OpTypeStruct %uint %uint %uint %uint
%to_id = OpTypePointer Input %uint3
%to_input = OpTypePointer Input %uint
%to_buffer = OpTypePointer StorageBuffer %buffer
%to_word = OpTypePointer StorageBuffer %uint
%to_values = OpTypePointer PushConstant %values
%to_value = OpTypePointer PushConstant %uint
%id = OpVariable %to_id Input
%b0 = OpVariable %to_buffer StorageBuffer
%b1 = OpVariable %to_buffer StorageBuffer
%b2 = OpVariable %to_buffer StorageBuffer
%push = OpVariable %to_values PushConstant
%gx = OpSpecConstant %uint 1
%gy = OpSpecConstant %uint 1
%gz = OpSpecConstant %uint 1
%group = OpSpecConstantComposite %uint3 %gx %gy %gz
%main = OpFunction %void None %fn
%begin = OpLabel
%idp = OpAccessChain %to_input %id %c0
%i0 = OpLoad %uint %idp
)";

constexpr std::string_view kDecorations = R"(
OpDecorate %id BuiltIn GlobalInvocationId
OpDecorate %group BuiltIn WorkgroupSize
OpDecorate %gx SpecId 0
OpDecorate %gy SpecId 1
OpDecorate %gz SpecId 2
OpDecorate %words ArrayStride 4
OpDecorate %buffer Block
OpMemberDecorate %buffer 0 Offset 0
OpDecorate %values Block
OpMemberDecorate %values 0 Offset 0
OpMemberDecorate %values 1 Offset 4
OpMemberDecorate %values 2 Offset 8
OpMemberDecorate %values 3 Offset 12
)";

// %i, counted from the second push constant on.
constexpr std::string_view kInstance = R"(
%firstp = OpAccessChain %to_value %push %c1
%first = OpLoad %uint %firstp
%i = OpIAdd %uint %i0 %first
%kp = OpAccessChain %to_value %push %c0
%k = OpLoad %uint %kp
)";

std::vector<uint8_t> Assemble(const Source& source) {
  std::string text = "OpCapability Shader\nOpMemoryModel Logical GLSL450\nOpEntryPoint GLCompute %main \"main\" %id ";
  text += std::string(source.interface) + "\nOpExecutionMode %main LocalSize 1 1 1\n";
  text += std::string(kDecorations) + std::string(source.decorations) + std::string(kTypes) + std::string(source.body);
  text += "OpReturn\nOpFunctionEnd\n";
  spvtools::SpirvTools tools(SPV_ENV_VULKAN_1_2);
  std::string messages;
  tools.SetMessageConsumer([&](spv_message_level_t, const char*, const spv_position_t& position, const char* message) {
    messages += "line " + std::to_string(position.line + 1) + ": " + message + "\n";
  });
  std::vector<uint32_t> words;
  const bool is_good = tools.Assemble(text, &words) && tools.Validate(words);
  if (!is_good) {
    std::fprintf(stderr, "%s\n%s", text.c_str(), messages.c_str());
  }
  HPVMD_CHECK(is_good);
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  return {bytes, bytes + words.size() * 4};
}

GpuArgument BufferAt(uint32_t index, uint32_t set, uint32_t binding, bool is_writable) {
  GpuArgument argument;
  argument.kind = Kind::kBuffer;
  argument.index = index;
  argument.is_writable = is_writable;
  argument.set = set;
  argument.binding = binding;
  return argument;
}

GpuArgument ValueAt(Kind kind, uint32_t index, uint32_t offset) {
  GpuArgument argument;
  argument.kind = kind;
  argument.index = index;
  argument.offset = offset;
  return argument;
}

ir::KernelParam BufferParam(std::string name, bool is_writable) {
  ir::KernelParam param;
  param.name = std::move(name);
  param.is_buffer = true;
  param.is_writable = is_writable;
  return param;
}

ir::KernelParam WordParam(std::string name) {
  ir::KernelParam param;
  param.name = std::move(name);
  param.is_buffer = false;
  param.type = ir::Type::kI32;
  return param;
}

Artifact MakeArtifact(std::string name, const Source& source, std::vector<ir::KernelParam> params,
                      std::vector<GpuArgument> arguments, uint32_t push_bytes) {
  Artifact artifact;
  artifact.kind = ArtifactKind::kVulkan;
  artifact.module_name = name;
  artifact.entry = name;
  artifact.params = std::move(params);
  artifact.function_names = {name};
  artifact.code = Assemble(source);
  artifact.gpu.format = GpuFormat::kSpirvShader;
  GpuVariant variant;
  variant.entry = "main";
  variant.can_trap = false;
  variant.group_constant = {0, 1, 2};
  variant.arguments = std::move(arguments);
  variant.push_bytes = push_bytes;
  artifact.gpu.variants.push_back(std::move(variant));
  return artifact;
}

}  // namespace

Artifact ScaleArtifact() {
  const std::string body = std::string(kInstance) + R"(
%xsp = OpAccessChain %to_value %push %c2
%xs = OpLoad %uint %xsp
%xw = OpShiftRightLogical %uint %xs %c2
%xi = OpIAdd %uint %xw %i
%xp = OpAccessChain %to_word %b0 %c0 %xi
%x = OpLoad %uint %xp
%ysp = OpAccessChain %to_value %push %c3
%ys = OpLoad %uint %ysp
%yw = OpShiftRightLogical %uint %ys %c2
%yi = OpIAdd %uint %yw %i
%yp = OpAccessChain %to_word %b1 %c0 %yi
%scaled = OpIMul %uint %x %k
%sum = OpIAdd %uint %scaled %i
OpStore %yp %sum
)";
  const Source source{"%b0 %b1 %push", R"(
OpDecorate %b0 DescriptorSet 0
OpDecorate %b0 Binding 0
OpDecorate %b1 DescriptorSet 0
OpDecorate %b1 Binding 1
)",
                      body};
  return MakeArtifact(
      "scale", source, {BufferParam("x", false), BufferParam("y", true), WordParam("k")},
      {BufferAt(0, 0, 0, false), BufferAt(1, 0, 1, true), ValueAt(Kind::kScalar, 2, 0), ValueAt(Kind::kFirst, 0, 4),
       ValueAt(Kind::kBufferStart, 0, 8), ValueAt(Kind::kBufferStart, 1, 12)},
      16);
}

Artifact SetsArtifact() {
  const Source source{"%b0 %b1 %b2", R"(
OpDecorate %b0 DescriptorSet 0
OpDecorate %b0 Binding 3
OpDecorate %b1 DescriptorSet 1
OpDecorate %b1 Binding 0
OpDecorate %b2 DescriptorSet 3
OpDecorate %b2 Binding 1
)",
                      R"(
%kp = OpAccessChain %to_word %b1 %c0 %c0
%k = OpLoad %uint %kp
%firstp = OpAccessChain %to_word %b1 %c0 %c1
%first = OpLoad %uint %firstp
%i = OpIAdd %uint %i0 %first
%xp = OpAccessChain %to_word %b0 %c0 %i
%x = OpLoad %uint %xp
%sum = OpIAdd %uint %x %k
%yp = OpAccessChain %to_word %b2 %c0 %i
OpStore %yp %sum
)"};
  Artifact artifact = MakeArtifact(
      "sets", source, {BufferParam("x", false), BufferParam("y", true), WordParam("k")},
      {BufferAt(0, 0, 3, false), BufferAt(1, 3, 1, true), ValueAt(Kind::kScalar, 2, 0), ValueAt(Kind::kFirst, 0, 4)},
      8);
  artifact.gpu.variants[0].facts_set = 1;
  artifact.gpu.variants[0].facts_binding = 0;
  return artifact;
}

Artifact StepArtifact() {
  const std::string body = std::string(kInstance) + R"(
%yp = OpAccessChain %to_word %b0 %c0 %i
%y = OpLoad %uint %yp
%scaled = OpIMul %uint %y %c3
%sum = OpIAdd %uint %scaled %k
OpStore %yp %sum
)";
  const Source source{"%b0 %push", "OpDecorate %b0 DescriptorSet 0\nOpDecorate %b0 Binding 0\n", body};
  return MakeArtifact("step", source, {BufferParam("y", true), WordParam("k")},
                      {BufferAt(0, 0, 0, true), ValueAt(Kind::kScalar, 1, 0), ValueAt(Kind::kFirst, 0, 4)}, 8);
}

Artifact TrapArtifact() {
  const std::string body = std::string(kInstance) + R"(
%slotp = OpAccessChain %to_value %push %c2
%slot = OpLoad %uint %slotp
%record = OpIMul %uint %slot %c8
%traps = OpIEqual %bool %i %k
OpSelectionMerge %end None
OpBranchConditional %traps %trap %go
%trap = OpLabel
%statep = OpAccessChain %to_word %b1 %c0 %record
%was = OpAtomicCompareExchange %uint %statep %c1 %c0 %c0 %c1 %c0
%won = OpIEqual %bool %was %c0
OpSelectionMerge %told None
OpBranchConditional %won %tell %told
%tell = OpLabel
%at1 = OpIAdd %uint %record %c1
%p1 = OpAccessChain %to_word %b1 %c0 %at1
OpStore %p1 %c1
%at2 = OpIAdd %uint %record %c2
%p2 = OpAccessChain %to_word %b1 %c0 %at2
OpStore %p2 %i
%at5 = OpIAdd %uint %record %c5
%p5 = OpAccessChain %to_word %b1 %c0 %at5
OpStore %p5 %c77
OpBranch %told
%told = OpLabel
OpBranch %end
%go = OpLabel
%yp = OpAccessChain %to_word %b0 %c0 %i
%y = OpIAdd %uint %i %c1
OpStore %yp %y
OpBranch %end
%end = OpLabel
)";
  const Source source{"%b0 %b1 %push", R"(
OpDecorate %b0 DescriptorSet 0
OpDecorate %b0 Binding 0
OpDecorate %b1 DescriptorSet 0
OpDecorate %b1 Binding 1
)",
                      body};
  GpuArgument records = BufferAt(0, 0, 1, true);
  records.kind = Kind::kTrapRecord;
  Artifact artifact = MakeArtifact("trap", source, {BufferParam("y", true), WordParam("bad")},
                                   {BufferAt(0, 0, 0, true), records, ValueAt(Kind::kScalar, 1, 0),
                                    ValueAt(Kind::kFirst, 0, 4), ValueAt(Kind::kTrapIndex, 0, 8)},
                                   12);
  artifact.gpu.variants[0].can_trap = true;
  return artifact;
}

Artifact NativeArtifact() {
  const Source source{"%b0", "OpDecorate %b0 DescriptorSet 0\nOpDecorate %b0 Binding 0\n", R"(
%length = OpArrayLength %uint %b0 0
%p0 = OpAccessChain %to_word %b0 %c0 %c0
OpStore %p0 %length
%pfar = OpAccessChain %to_word %b0 %c0 %far
OpStore %pfar %c7
%read = OpLoad %uint %pfar
%p1 = OpAccessChain %to_word %b0 %c0 %c1
OpStore %p1 %read
)"};
  Artifact artifact = MakeArtifact("native", source, {BufferParam("y", true)}, {BufferAt(0, 0, 0, true)}, 0);
  artifact.gpu.is_native = true;
  GpuVariant& variant = artifact.gpu.variants[0];
  variant.group = {1, 1, 1};
  return artifact;
}

Artifact NativeLoopArtifact() {
  const Source source{"%b0", "OpDecorate %b0 DescriptorSet 0\nOpDecorate %b0 Binding 0\n", R"(
%yp = OpAccessChain %to_word %b0 %c0 %i0
%n = OpLoad %uint %yp
OpBranch %head
%head = OpLabel
%k = OpPhi %uint %c0 %begin %next %go
OpLoopMerge %after %go None
OpBranch %test
%test = OpLabel
%more = OpULessThan %bool %k %n
OpBranchConditional %more %go %after
%go = OpLabel
%next = OpIAdd %uint %k %c1
OpBranch %head
%after = OpLabel
%one_more = OpIAdd %uint %k %c1
OpStore %yp %one_more
)"};
  Artifact artifact = MakeArtifact("counts", source, {BufferParam("y", true)}, {BufferAt(0, 0, 0, true)}, 0);
  artifact.gpu.is_native = true;
  artifact.gpu.variants[0].group = {8, 1, 1};
  return artifact;
}

}  // namespace hpvm::vulkan
