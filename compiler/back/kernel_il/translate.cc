// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/sibling_library.h"
#include "compiler/back/kernel_il/kernel_il.h"
#include "compiler/back/kernel_il/spirv_bridge.h"

namespace hpvm::kernel_il {
namespace {

constexpr char kBridge[] = "libhpvm-spirv.so";
// Set once by PrepareKernelIl, before a process that compiles starts threads or forks.
hpvm_spirv_translate_function g_translate = nullptr;

void Append(void* context, const char* bytes, size_t count) {
  static_cast<std::vector<uint8_t>*>(context)->assign(bytes, bytes + count);
}

}  // namespace

Status PrepareKernelIl() {
  if (g_translate != nullptr) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(void* const function, LoadSiblingLibrary(kBridge, "hpvm_spirv_translate", LibraryScope::kOwn));
  g_translate = reinterpret_cast<hpvm_spirv_translate_function>(function);
  return absl::OkStatus();
}

StatusOr<std::vector<uint8_t>> SpirvToBitcode(std::span<const uint8_t> spirv) {
  if (g_translate == nullptr) {
    return FailedPrecondition(std::string("The SPIR-V translator (") + kBridge + ") has not been loaded.");
  }
  std::vector<uint8_t> bitcode;
  char error[512] = "";
  const int failed =
      g_translate(reinterpret_cast<const char*>(spirv.data()), spirv.size(), Append, &bitcode, error, sizeof(error));
  if (failed != 0) {
    return InvalidArgument(std::string("The SPIR-V translator refuses the module: ") + error + ".");
  }
  return bitcode;
}

}  // namespace hpvm::kernel_il
