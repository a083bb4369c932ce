// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/vulkan/spirv_tools.h"

#include <memory>
#include <string>

#include <spirv-tools/libspirv.h>

namespace hpvm::vulkan {
namespace {

struct ContextDeleter {
  void operator()(spv_context context) const { spvContextDestroy(context); }
};
struct DiagnosticDeleter {
  void operator()(spv_diagnostic diagnostic) const { spvDiagnosticDestroy(diagnostic); }
};
using Context = std::unique_ptr<spv_context_t, ContextDeleter>;
using DiagnosticHandle = std::unique_ptr<spv_diagnostic_t, DiagnosticDeleter>;

std::string MessageOf(spv_diagnostic diagnostic) {
  return diagnostic == nullptr || diagnostic->error == nullptr ? "no message" : diagnostic->error;
}

}  // namespace

Status ValidateSpirv(std::span<const uint32_t> words, uint32_t api_version) {
  const Context context(spvContextCreate(api_version >= 13 ? SPV_ENV_VULKAN_1_3 : SPV_ENV_VULKAN_1_2));
  spv_const_binary_t binary{words.data(), words.size()};
  spv_diagnostic raw = nullptr;
  const spv_result_t result = spvValidate(context.get(), &binary, &raw);
  const DiagnosticHandle diagnostic(raw);
  if (result == SPV_SUCCESS) {
    return absl::OkStatus();
  }
  return Internal("The SPIR-V module that was written is not valid: " + MessageOf(raw) + ".");
}

}  // namespace hpvm::vulkan
