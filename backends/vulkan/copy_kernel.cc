// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/copy_kernel.h"

namespace hpvm::vulkan {
namespace {

// The output of spirv-as --target-env vulkan1.2 for:
//
//   OpCapability Shader
//   OpMemoryModel Logical GLSL450
//   OpEntryPoint GLCompute %main "main" %id %source %target
//   OpExecutionMode %main LocalSize 256 1 1
//   OpDecorate %id BuiltIn GlobalInvocationId
//   OpDecorate %words ArrayStride 16
//   OpDecorate %buffer Block
//   OpMemberDecorate %buffer 0 Offset 0
//   OpDecorate %source DescriptorSet 0
//   OpDecorate %source Binding 0
//   OpDecorate %target DescriptorSet 0
//   OpDecorate %target Binding 1
//   %void = OpTypeVoid
//   %fn = OpTypeFunction %void
//   %uint = OpTypeInt 32 0
//   %uint3 = OpTypeVector %uint 3
//   %uint4 = OpTypeVector %uint 4
//   %zero = OpConstant %uint 0
//   %words = OpTypeRuntimeArray %uint4
//   %buffer = OpTypeStruct %words
//   %to_id = OpTypePointer Input %uint3
//   %to_input = OpTypePointer Input %uint
//   %to_buffer = OpTypePointer StorageBuffer %buffer
//   %to_word = OpTypePointer StorageBuffer %uint4
//   %id = OpVariable %to_id Input
//   %source = OpVariable %to_buffer StorageBuffer
//   %target = OpVariable %to_buffer StorageBuffer
//   %main = OpFunction %void None %fn
//   %begin = OpLabel
//   %idp = OpAccessChain %to_input %id %zero
//   %i = OpLoad %uint %idp
//   %from = OpAccessChain %to_word %source %zero %i
//   %data = OpLoad %uint4 %from
//   %to = OpAccessChain %to_word %target %zero %i
//   OpStore %to %data
//   OpReturn
//   OpFunctionEnd
// clang-format off
constexpr uint32_t kWords[] = {
    0x07230203, 0x00010500, 0x00070000, 0x00000017, 0x00000000, 0x00020011, 0x00000001, 0x0003000e, 0x00000000,
    0x00000001, 0x0008000f, 0x00000005, 0x00000001, 0x6e69616d, 0x00000000, 0x00000002, 0x00000003, 0x00000004,
    0x00060010, 0x00000001, 0x00000011, 0x00000100, 0x00000001, 0x00000001, 0x00040047, 0x00000002, 0x0000000b,
    0x0000001c, 0x00040047, 0x00000005, 0x00000006, 0x00000010, 0x00030047, 0x00000006, 0x00000002, 0x00050048,
    0x00000006, 0x00000000, 0x00000023, 0x00000000, 0x00040047, 0x00000003, 0x00000022, 0x00000000, 0x00040047,
    0x00000003, 0x00000021, 0x00000000, 0x00040047, 0x00000004, 0x00000022, 0x00000000, 0x00040047, 0x00000004,
    0x00000021, 0x00000001, 0x00020013, 0x00000007, 0x00030021, 0x00000008, 0x00000007, 0x00040015, 0x00000009,
    0x00000020, 0x00000000, 0x00040017, 0x0000000a, 0x00000009, 0x00000003, 0x00040017, 0x0000000b, 0x00000009,
    0x00000004, 0x0004002b, 0x00000009, 0x0000000c, 0x00000000, 0x0003001d, 0x00000005, 0x0000000b, 0x0003001e,
    0x00000006, 0x00000005, 0x00040020, 0x0000000d, 0x00000001, 0x0000000a, 0x00040020, 0x0000000e, 0x00000001,
    0x00000009, 0x00040020, 0x0000000f, 0x0000000c, 0x00000006, 0x00040020, 0x00000010, 0x0000000c, 0x0000000b,
    0x0004003b, 0x0000000d, 0x00000002, 0x00000001, 0x0004003b, 0x0000000f, 0x00000003, 0x0000000c, 0x0004003b,
    0x0000000f, 0x00000004, 0x0000000c, 0x00050036, 0x00000007, 0x00000001, 0x00000000, 0x00000008, 0x000200f8,
    0x00000011, 0x00050041, 0x0000000e, 0x00000012, 0x00000002, 0x0000000c, 0x0004003d, 0x00000009, 0x00000013,
    0x00000012, 0x00060041, 0x00000010, 0x00000014, 0x00000003, 0x0000000c, 0x00000013, 0x0004003d, 0x0000000b,
    0x00000015, 0x00000014, 0x00060041, 0x00000010, 0x00000016, 0x00000004, 0x0000000c, 0x00000013, 0x0003003e,
    0x00000016, 0x00000015, 0x000100fd, 0x00010038,
};
// clang-format on

}  // namespace

StatusOr<std::unique_ptr<Pipelines>> CreateCopyKernel(Context& context) {
  GpuVariant variant;
  variant.entry = "main";
  variant.can_trap = false;
  variant.group = {kCopyGroup, 1, 1};
  for (uint32_t i = 0; i < 2; ++i) {
    GpuArgument argument;
    argument.kind = GpuArgument::Kind::kBuffer;
    argument.index = i;
    argument.binding = i;
    argument.is_writable = i == 1;
    variant.arguments.push_back(argument);
  }
  return Pipelines::Create(context, {reinterpret_cast<const uint8_t*>(kWords), sizeof(kWords)}, {&variant, 1}, {});
}

}  // namespace hpvm::vulkan
