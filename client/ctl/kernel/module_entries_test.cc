// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/kernel/module_entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace hpvm::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string ReadFile(const std::string& name) {
  std::ifstream file(HPVMD_SOURCE_DIR "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ModuleEntriesTest, WasmModulesExportFunctions) {
  const std::string module = ReadFile("examples/edge-detection/edges.wasm");
  EXPECT_THAT(*EntriesOfWasm(module),
              ElementsAre("smooth", "laplacian", "zero_crossings", "gradient", "max_gradient", "reject"));
  // The parser does not read beyond the end of a damaged file.
  for (size_t size = 0; size < module.size(); ++size) {
    const auto names = EntriesOfWasm(std::string_view(module).substr(0, size));
    EXPECT_TRUE(!names.ok() || names->size() <= 6);
  }
  for (size_t at = 8; at < module.size(); ++at) {
    std::string changed = module;
    changed[at] = static_cast<char>(0xff);
    EXPECT_NO_FATAL_FAILURE((void)EntriesOfWasm(changed));
  }
}

// Returns "name: param type, ..." with a mark for buffers ("*"), and "const" for those that are only read.
std::string Describe(const DeclaredKernel& kernel) {
  std::string text = kernel.name + ":";
  for (const DeclaredKernel::Param& param : kernel.params) {
    text += (text.back() == ':' ? " " : ", ") + std::string(param.is_const ? "const " : "") + param.type +
            (param.is_buffer ? "* " : " ") + param.name;
  }
  return text;
}

TEST(ModuleEntriesTest, SpirvModulesDeclareKernels) {
  const auto only = [](const std::string& file) {
    const auto kernels = KernelsOfSpirv(ReadFile(file));
    return kernels.ok() && kernels->size() == 1 ? Describe(kernels->front()) : "";
  };
  // A shader: buffers by binding, then push constants by offset.
  EXPECT_EQ(only("examples/spirv/voronoi.spv"),
            "main: const i32* sites, i32* nearest, i32* distances, i32 width, i32 site_count");
  EXPECT_EQ(only("tests/fuzz/spirv/shader.spv"), "main: const f32* a, f32* o, u32 n_0, u32 n_1, u32 n_2, f64 d");
  // An OpenCL kernel, whose module has no names.
  EXPECT_EQ(only("tests/fuzz/spirv/kernel.spv"), "scale: const f32* p0, f32* p1, u32 p2, f32 p3, const f32* p4");
  EXPECT_FALSE(KernelsOfSpirv(ReadFile("examples/edge-detection/edges.wasm")).ok());
}

// A uniform block is a buffer that is only read, and of several blocks of push constants the longest counts.
TEST(ModuleEntriesTest, UniformBlocksAreBuffers) {
  const auto op = [](uint32_t opcode, std::vector<uint32_t> operands) {
    operands.insert(operands.begin(), static_cast<uint32_t>(operands.size() + 1) << 16 | opcode);
    return operands;
  };
  std::vector<uint32_t> words = {0x07230203, 0x00010300, 0, 30, 0};
  for (const std::vector<uint32_t>& one : {op(15, {5, 1, 0x6e69616d, 0}),  // OpEntryPoint GLCompute %1 "main".
                                           op(71, {10, 2}),
                                           op(71, {11, 33, 0}),  // %10 is a Block; binding 0 of %11.
                                           op(71, {12, 3}),
                                           op(71, {13, 33, 1}),  // %12 is a BufferBlock; binding 1 of %13.
                                           op(22, {2, 32}),
                                           op(21, {3, 32, 1}),  // Float, int.
                                           op(30, {10, 2}),
                                           op(32, {14, 2, 10}),
                                           op(59, {14, 11, 2}),  // Uniform.
                                           op(30, {12, 3}),
                                           op(32, {15, 2, 12}),
                                           op(59, {15, 13, 2}),
                                           op(30, {16, 3}),
                                           op(32, {17, 9, 16}),
                                           op(59, {17, 18, 9}),  // Push constants: one int; a float and an int.
                                           op(30, {19, 2, 3}),
                                           op(32, {20, 9, 19}),
                                           op(59, {20, 21, 9}),
                                           op(72, {19, 1, 35, 4})}) {
    words.insert(words.end(), one.begin(), one.end());
  }
  const auto kernels = KernelsOfSpirv({reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t)});
  ASSERT_TRUE(kernels.ok() && kernels->size() == 1);
  EXPECT_EQ(Describe(kernels->front()), "main: const f32* p0, i32* p1, f32 p2, i32 p3");
}

// The reader stays inside the bytes of damaged files.
TEST(ModuleEntriesTest, DamagedSpirvIsRefusedOrRead) {
  for (const char* file : {"examples/spirv/voronoi.spv", "tests/fuzz/spirv/kernel_many.spv"}) {
    const std::string module = ReadFile(file);
    ASSERT_GT(module.size(), 100u);
    for (size_t size = 0; size < module.size(); ++size) {
      const auto kernels = KernelsOfSpirv(std::string_view(module).substr(0, size));
      EXPECT_TRUE(size % 4 == 0 || !kernels.ok());
    }
    for (size_t at = 20; at < module.size(); ++at) {
      std::string changed = module;
      changed[at] = static_cast<char>(0xff);
      EXPECT_NO_FATAL_FAILURE((void)KernelsOfSpirv(changed));
    }
  }
  std::string endless = ReadFile("examples/spirv/voronoi.spv");
  endless[22] = endless[23] = 0;  // The first instruction's length becomes 0 words.
  EXPECT_FALSE(KernelsOfSpirv(endless).ok());
}

TEST(ModuleEntriesTest, OpenClSourcesDeclareKernels) {
  const std::vector<DeclaredKernel> kernels = KernelsOfOpenCl(R"(
    // kernel void old(int a) {}
    /* __kernel void older() */
    __kernel __attribute__((reqd_work_group_size(64, 1, 1)))
    void saxpy(__global const float* restrict x, global float *y, const unsigned int n, float a) {}
    void helper(int kernels) {}
    kernel void fill(global uchar4* out, constant int* table, local float* scratch) {}
    kernel void nothing(void) {}
    kernel void none() {}
    kernel void open(int a)");
  ASSERT_EQ(kernels.size(), 5u);
  EXPECT_EQ(kernels[0].name, "saxpy");
  ASSERT_EQ(kernels[0].params.size(), 4u);
  EXPECT_EQ(kernels[0].params[0].name, "x");
  EXPECT_EQ(kernels[0].params[0].type, "f32");
  EXPECT_TRUE(kernels[0].params[0].is_buffer && kernels[0].params[0].is_const);
  EXPECT_TRUE(kernels[0].params[1].is_buffer && !kernels[0].params[1].is_const);
  EXPECT_EQ(kernels[0].params[2].type, "u32");
  EXPECT_FALSE(kernels[0].params[3].is_buffer);
  EXPECT_EQ(kernels[1].params[0].type, "");  // Documents have no vector types.
  EXPECT_TRUE(kernels[1].params[1].is_const);
  EXPECT_THAT(kernels[2].params, IsEmpty());
  EXPECT_THAT(kernels[3].params, IsEmpty());
  EXPECT_EQ(kernels[4].name, "open");
}

}  // namespace
}  // namespace hpvm::ctl
