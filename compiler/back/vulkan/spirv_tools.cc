// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/vulkan/spirv_tools.h"

#include <cstring>
#include <memory>
#include <vector>

#include "compiler/back/vulkan/vulkan_back.h"

#include <spirv-tools/libspirv.h>

namespace hpvm {
namespace vulkan {
namespace {

struct ContextDeleter {
  void operator()(spv_context context) const { spvContextDestroy(context); }
};
struct DiagnosticDeleter {
  void operator()(spv_diagnostic diagnostic) const { spvDiagnosticDestroy(diagnostic); }
};
struct TextDeleter {
  void operator()(spv_text text) const { spvTextDestroy(text); }
};
using Context = std::unique_ptr<spv_context_t, ContextDeleter>;
using DiagnosticHandle = std::unique_ptr<spv_diagnostic_t, DiagnosticDeleter>;
using Text = std::unique_ptr<spv_text_t, TextDeleter>;

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

StatusOr<std::string> DisassembleWords(std::span<const uint32_t> words) {
  const Context context(spvContextCreate(SPV_ENV_UNIVERSAL_1_6));
  spv_text raw_text = nullptr;
  spv_diagnostic raw = nullptr;
  const uint32_t options =
      SPV_BINARY_TO_TEXT_OPTION_NO_HEADER | SPV_BINARY_TO_TEXT_OPTION_INDENT | SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES;
  const spv_result_t result = spvBinaryToText(context.get(), words.data(), words.size(), options, &raw_text, &raw);
  const DiagnosticHandle diagnostic(raw);
  const Text text(raw_text);
  if (result != SPV_SUCCESS || text == nullptr) {
    return InvalidArgument("The SPIR-V module cannot be read: " + MessageOf(raw) + ".");
  }
  return std::string(text->str, text->length);
}

}  // namespace vulkan

StatusOr<std::string> DisassembleSpirv(std::span<const uint8_t> code) {
  if (code.size() % 4 != 0) {
    return InvalidArgument("The SPIR-V module (" + std::to_string(code.size()) +
                           " bytes) is no whole number of words.");
  }
  std::vector<uint32_t> words(code.size() / 4);
  std::memcpy(words.data(), code.data(), code.size());
  return vulkan::DisassembleWords(words);
}

}  // namespace hpvm
