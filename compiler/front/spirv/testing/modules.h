// SPDX-License-Identifier: Apache-2.0
// A shader and a kernel as text for Assemble.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_TESTING_MODULES_H_
#define HPVMD_COMPILER_FRONT_SPIRV_TESTING_MODULES_H_

namespace hpvm::spirv {

// out[i] = in[i] * scale + word(7) for i < n; `out` has the binding after that of `in`.
inline constexpr char kShader[] = R"(
OpCapability Shader
%glsl = OpExtInstImport "GLSL.std.450"
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main" %gid
OpExecutionMode %main LocalSize 64 1 1
OpName %in "in"
OpName %out "out"
OpMemberName %Push 0 "n"
OpMemberName %Push 1 "scale"
OpDecorate %gid BuiltIn GlobalInvocationId
OpDecorate %array ArrayStride 4
OpDecorate %Block Block
OpMemberDecorate %Block 0 Offset 0
OpDecorate %in DescriptorSet 0
OpDecorate %in Binding 0
OpDecorate %out DescriptorSet 0
OpDecorate %out Binding 1
OpDecorate %Push Block
OpMemberDecorate %Push 0 Offset 0
OpMemberDecorate %Push 1 Offset 4
OpDecorate %word SpecId 7
%void = OpTypeVoid
%bool = OpTypeBool
%uint = OpTypeInt 32 0
%int = OpTypeInt 32 1
%float = OpTypeFloat 32
%uint3 = OpTypeVector %uint 3
%zero = OpConstant %int 0
%one = OpConstant %int 1
%word = OpSpecConstant %float 2
%function = OpTypeFunction %void
%array = OpTypeRuntimeArray %float
%Block = OpTypeStruct %array
%Push = OpTypeStruct %int %float
%ptr_block = OpTypePointer StorageBuffer %Block
%ptr_float = OpTypePointer StorageBuffer %float
%ptr_push = OpTypePointer PushConstant %Push
%ptr_push_int = OpTypePointer PushConstant %int
%ptr_push_float = OpTypePointer PushConstant %float
%ptr_input = OpTypePointer Input %uint3
%ptr_input_uint = OpTypePointer Input %uint
%gid = OpVariable %ptr_input Input
%in = OpVariable %ptr_block StorageBuffer
%out = OpVariable %ptr_block StorageBuffer
%push = OpVariable %ptr_push PushConstant
%main = OpFunction %void None %function
%begin = OpLabel
%gid_x = OpAccessChain %ptr_input_uint %gid %zero
%i = OpLoad %uint %gid_x
%n_at = OpAccessChain %ptr_push_int %push %zero
%n = OpLoad %int %n_at
%is_in = OpSLessThan %bool %i %n
OpSelectionMerge %end None
OpBranchConditional %is_in %then %end
%then = OpLabel
%from = OpAccessChain %ptr_float %in %zero %i
%x = OpLoad %float %from
%scale_at = OpAccessChain %ptr_push_float %push %one
%scale = OpLoad %float %scale_at
%y = OpFMul %float %x %scale
%z = OpFAdd %float %y %word
%to = OpAccessChain %ptr_float %out %zero %i
OpStore %to %z
OpBranch %end
%end = OpLabel
OpReturn
OpFunctionEnd
)";

// out[i] = in[i] * scale.
inline constexpr char kKernel[] = R"(
OpCapability Addresses
OpCapability Linkage
OpCapability Kernel
OpCapability Int64
%ocl = OpExtInstImport "OpenCL.std"
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %main "scale" %gid
OpName %in "in"
OpName %out "out"
OpName %factor "factor"
OpDecorate %gid LinkageAttributes "gid" Import
OpDecorate %gid BuiltIn GlobalInvocationId
OpDecorate %gid Constant
%void = OpTypeVoid
%ulong = OpTypeInt 64 0
%float = OpTypeFloat 32
%ulong3 = OpTypeVector %ulong 3
%ptr_float = OpTypePointer CrossWorkgroup %float
%ptr_input = OpTypePointer Input %ulong3
%function = OpTypeFunction %void %ptr_float %ptr_float %float
%gid = OpVariable %ptr_input Input
%main = OpFunction %void None %function
%in = OpFunctionParameter %ptr_float
%out = OpFunctionParameter %ptr_float
%factor = OpFunctionParameter %float
%begin = OpLabel
%ids = OpLoad %ulong3 %gid Aligned 32
%i = OpCompositeExtract %ulong %ids 0
%from = OpInBoundsPtrAccessChain %ptr_float %in %i
%x = OpLoad %float %from Aligned 4
%y = OpFMul %float %x %factor
%to = OpInBoundsPtrAccessChain %ptr_float %out %i
OpStore %to %y Aligned 4
OpReturn
OpFunctionEnd
)";

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TESTING_MODULES_H_
