// SPDX-License-Identifier: Apache-2.0
// Checks assumptions of helpers.ll, whose functions every image contains if it uses them.
#include "llvm/AsmParser/Parser.h"
#include "llvm/Support/SourceMgr.h"

#include "base/status.h"
#include "compiler/back/llvm/emit/emitter.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {
namespace {

static_assert(offsetof(CpuContext, arguments) == 0 && offsetof(CpuContext, argument_count) == 8 &&
              offsetof(CpuContext, memory) == 16 && offsetof(CpuContext, memory_bytes) == 24 &&
              offsetof(CpuContext, dirty_bits) == 40 && offsetof(CpuContext, dirty_list) == 48 &&
              offsetof(CpuContext, dirty_count) == 56 && offsetof(CpuContext, stop) == 72 &&
              offsetof(CpuContext, group_memory) == 128 && offsetof(CpuContext, group_memory_base) == 136 &&
              offsetof(CpuContext, group_memory_used) == 144 && offsetof(CpuContext, trap_code) == 168 &&
              offsetof(CpuContext, trap_function) == 172 && offsetof(CpuContext, trap_source) == 176 &&
              offsetof(CpuContext, trap_address) == 208 && offsetof(CpuContext, trap_bytes) == 216);
static_assert(sizeof(CpuArgument) == 32 && offsetof(CpuArgument, bytes) == 8 && offsetof(CpuArgument, base) == 16 &&
              offsetof(CpuArgument, writable) == 24);
static_assert(ir::kDirtyGranuleBytes == 512);
static_assert(static_cast<uint32_t>(ir::TrapCode::kOutOfBounds) == 2 &&
              static_cast<uint32_t>(ir::TrapCode::kReadOnlyBuffer) == 12 &&
              static_cast<uint32_t>(ir::TrapCode::kStopped) == 100);

constexpr char kHelpers[] = {
#include "compiler/back/llvm/emit/helpers.inc"
    '\0'};

}  // namespace

StatusOr<std::unique_ptr<llvm::Module>> ParseHelpers(llvm::LLVMContext& context) {
  llvm::SMDiagnostic error;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(kHelpers, error, context);
  if (module == nullptr) {
    return Internal("The back end's helpers do not parse: line " + std::to_string(error.getLineNo()) + ": " +
                    error.getMessage().str());
  }
  return module;
}

}  // namespace hpvm::cpu
