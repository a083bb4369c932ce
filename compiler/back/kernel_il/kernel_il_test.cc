// SPDX-License-Identifier: Apache-2.0
// Tests SPIR-V kernels as PTX and as SPIR bitcode.
#include "compiler/back/kernel_il/kernel_il.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include "compiler/back/kernel_il/libclc.h"
#include "compiler/front/spirv/testing/assemble.h"

namespace hpvm::kernel_il {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns a kernel that computes out[i] = FUNCTION(in[i]) + table[i & 3] through group memory and a barrier; `table`
// is the caller's constant memory.
std::string Kernel(const std::string& function) {
  return R"(
OpCapability Addresses
OpCapability Linkage
OpCapability Kernel
OpCapability Int64
%ocl = OpExtInstImport "OpenCL.std"
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %main "apply" %gid %lid
OpDecorate %gid LinkageAttributes "gid" Import
OpDecorate %gid BuiltIn GlobalInvocationId
OpDecorate %gid Constant
OpDecorate %lid LinkageAttributes "lid" Import
OpDecorate %lid BuiltIn LocalInvocationId
OpDecorate %lid Constant
%void = OpTypeVoid
%ulong = OpTypeInt 64 0
%uint = OpTypeInt 32 0
%float = OpTypeFloat 32
%three = OpConstant %ulong 3
%zero = OpConstant %ulong 0
%sixty_four = OpConstant %ulong 64
%group = OpConstant %uint 2
%fence = OpConstant %uint 272
%own0 = OpConstant %float 0.25
%four = OpConstant %ulong 4
%own_array = OpTypeArray %float %four
%own_values = OpConstantComposite %own_array %own0 %own0 %own0 %own0
%ptr_own = OpTypePointer UniformConstant %own_array
%ulong3 = OpTypeVector %ulong 3
%tile_type = OpTypeArray %float %sixty_four
%ptr_tile = OpTypePointer Workgroup %tile_type
%ptr_local = OpTypePointer Workgroup %float
%ptr_float = OpTypePointer CrossWorkgroup %float
%ptr_constant = OpTypePointer UniformConstant %float
%ptr_input = OpTypePointer Input %ulong3
%type = OpTypeFunction %void %ptr_float %ptr_float %ptr_constant %float
%gid = OpVariable %ptr_input Input
%lid = OpVariable %ptr_input Input
%tile = OpVariable %ptr_tile Workgroup
%own = OpVariable %ptr_own UniformConstant %own_values
%main = OpFunction %void None %type
%in = OpFunctionParameter %ptr_float
%out = OpFunctionParameter %ptr_float
%table = OpFunctionParameter %ptr_constant
%f = OpFunctionParameter %float
%begin = OpLabel
%ids = OpLoad %ulong3 %gid Aligned 32
%i = OpCompositeExtract %ulong %ids 0
%locals = OpLoad %ulong3 %lid Aligned 32
%l = OpCompositeExtract %ulong %locals 0
%from = OpInBoundsPtrAccessChain %ptr_float %in %i
%x = OpLoad %float %from Aligned 4
%slot = OpInBoundsPtrAccessChain %ptr_local %tile %zero %l
OpStore %slot %x Aligned 4
OpControlBarrier %group %group %fence
%y = OpLoad %float %slot Aligned 4
%z = OpExtInst %float %ocl )" +
         function + R"( %y
%k = OpBitwiseAnd %ulong %i %three
%at = OpInBoundsPtrAccessChain %ptr_constant %table %k
%t = OpLoad %float %at Aligned 4
%own_at = OpInBoundsPtrAccessChain %ptr_constant %own %zero %k
%o = OpLoad %float %own_at Aligned 4
%fz = OpFMul %float %z %f
%sum = OpFAdd %float %fz %t
%all = OpFAdd %float %sum %o
%to = OpInBoundsPtrAccessChain %ptr_float %out %i
OpStore %to %all Aligned 4
OpReturn
OpFunctionEnd
)";
}

class KernelIlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status ready = PrepareKernelIl();
    ASSERT_TRUE(ready.ok()) << ready;
  }
  PtxOptions options_{.entry = "apply", .arch = "sm_90", .group = {64, 1, 1}};
};

// PTX has one kernel with its parameters, global and shared accesses and a barrier; multiplication and addition are
// not fused.
TEST_F(KernelIlTest, WritesPtx) {
  const StatusOr<std::string> ptx = SpirvToPtx(spirv::Assemble(Kernel("fabs"), 0), options_);
  ASSERT_TRUE(ptx.ok()) << ptx.status();
  EXPECT_THAT(*ptx, AllOf(HasSubstr(".target sm_90"), HasSubstr(".entry apply("), HasSubstr("ld.global"),
                          HasSubstr("st.shared"), HasSubstr("bar.sync"), HasSubstr(".reqntid 64, 1, 1"),
                          HasSubstr("mul.rn.f32"), HasSubstr("add.rn.f32"), Not(HasSubstr("fma.rn"))));
  EXPECT_THAT(*ptx, AllOf(HasSubstr(".ptr .global"), Not(HasSubstr(".extern")), Not(HasSubstr("ld.const"))));
}

// Built-in functions come from libclc; libclc_rest.ll defines those that libclc leaves open.
TEST_F(KernelIlTest, LinksBuiltIns) {
  for (const char* function :
       {"sin", "cos", "exp", "log", "sqrt", "rsqrt", "tanh", "lgamma", "sinpi", "erf", "acos", "native_exp",
        "native_log", "native_log2", "native_log10", "half_sqrt", "round", "degrees"}) {
    const StatusOr<std::string> ptx = SpirvToPtx(spirv::Assemble(Kernel(function), 0), options_);
    EXPECT_TRUE(ptx.ok()) << function << ": " << ptx.status();
    EXPECT_THAT(ptx.value_or(""), AllOf(HasSubstr(".entry apply("), Not(HasSubstr(".extern")))) << function;
  }
}

TEST_F(KernelIlTest, LlvmTakesWhatLibclcLacks) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  const auto rest = llvm::parseAssemblyString(LibclcRest(), error, context);
  ASSERT_NE(rest, nullptr) << error.getMessage().str() << " in line " << error.getLineNo();
  std::string faults;
  llvm::raw_string_ostream out(faults);
  EXPECT_FALSE(llvm::verifyModule(*rest, &out)) << faults;
}

// An undefined function is reported by name, before a driver fails to load the program.
TEST_F(KernelIlTest, RefusesUnknownFunctions) {
  std::string text = Kernel("fabs");
  const std::string call = "%z = OpExtInst %float %ocl fabs %y";
  text.replace(text.find(call), call.size(), "%z = OpFunctionCall %float %mystery %y");
  text.replace(text.find("OpDecorate %gid Link"), 0, "OpDecorate %mystery LinkageAttributes \"mystery\" Import\n");
  text.replace(text.find("%gid = OpVariable"), 0, "%mystery_type = OpTypeFunction %float %float\n");
  text.replace(text.find("%main = OpFunction"), 0,
               "%mystery = OpFunction %float None %mystery_type\n%mx = OpFunctionParameter %float\nOpFunctionEnd\n");
  const StatusOr<std::string> ptx = SpirvToPtx(spirv::Assemble(text, 0), options_);
  EXPECT_THAT(Message(ptx.status()), HasSubstr("this device does not have: mystery"));
}

// Bitcode has the magic number without a wrapper, and input that is not SPIR-V is refused.
TEST_F(KernelIlTest, WritesBitcode) {
  const StatusOr<std::vector<uint8_t>> bitcode = SpirvToBitcode(spirv::Assemble(Kernel("sin"), 0));
  ASSERT_TRUE(bitcode.ok()) << bitcode.status();
  ASSERT_GT(bitcode->size(), 4u);
  EXPECT_EQ(std::string(bitcode->begin(), bitcode->begin() + 2), "BC");
}

}  // namespace
}  // namespace hpvm::kernel_il
