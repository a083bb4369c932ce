// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "compiler/back/kernel_il/kernel_il.h"
#include "compiler/back/kernel_il/spirv_bridge.h"

namespace hpvm {
namespace {

namespace fs = std::filesystem;

constexpr char kBridge[] = "libhpvm-spirv.so";
// Set once by PrepareKernelIl, before a process that compiles has threads or forks.
hpvm_spirv_translate_function g_translate = nullptr;

// Its own libraries first: the two LLVMs have functions of the same names.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kScope = RTLD_NOW | RTLD_LOCAL;  // The sanitizer's library refuses to load anything deeply bound.
#else
constexpr int kScope = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

std::string ErrorOfLoader() {
  const char* error = dlerror();
  return error == nullptr ? "no reason was given" : error;
}

void Append(void* context, const char* bytes, size_t count) {
  static_cast<std::vector<uint8_t>*>(context)->assign(bytes, bytes + count);
}

}  // namespace

Status PrepareKernelIl() {
  if (g_translate != nullptr) {
    return absl::OkStatus();
  }
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  // Beside programs, or where a bundle has its libraries; tests lie beside the folder of programs.
  for (const fs::path& place : {folder / kBridge, folder / "../lib" / kBridge, folder / "../bin" / kBridge}) {
    if (access(place.c_str(), R_OK) != 0) {
      continue;
    }
    void* library = dlopen(place.c_str(), kScope);
    if (library == nullptr) {
      return FailedPrecondition("The SPIR-V translator cannot be loaded: " + ErrorOfLoader() + ".");
    }
    g_translate = reinterpret_cast<hpvm_spirv_translate_function>(dlsym(library, "hpvm_spirv_translate"));
    return g_translate != nullptr ? absl::OkStatus()
                                  : FailedPrecondition("The SPIR-V translator \"" + place.string() +
                                                       "\" is none: " + ErrorOfLoader() + ".");
  }
  return FailedPrecondition(std::string("The SPIR-V translator (") + kBridge + ") is not installed beside \"" +
                            folder.string() + "\".");
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

}  // namespace hpvm
