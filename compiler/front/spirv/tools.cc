// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/tools.h"

#include <memory>

#include "compiler/front/spirv/spirv_front.h"

#include <spirv-tools/libspirv.h>

namespace hpvm::spirv {
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

struct Environment {
  spv_target_env env;
  const char* name;
};

// Returns the environment whose rules the device's driver applies. Kernels that are translated follow OpenCL 1.2,
// whatever the driver's own version; SPIR-V 1.1 and 1.2 came with OpenCL 2.2, whose other additions are on no list of
// ours.
Environment EnvironmentOf(const Module& module, const GpuTarget& target) {
  if (module.flavour == Flavour::kShader) {
    return target.api_version >= 13 ? Environment{SPV_ENV_VULKAN_1_3, "Vulkan 1.3"}
                                    : Environment{SPV_ENV_VULKAN_1_2, "Vulkan 1.2"};
  }
  if (module.version > 0x00010000) {
    return {SPV_ENV_OPENCL_2_2, "OpenCL 2.2"};
  }
  return target.kernel_il == GpuFormat::kSpirvKernel && target.api_version >= 200
             ? Environment{SPV_ENV_OPENCL_2_0, "OpenCL 2.0"}
             : Environment{SPV_ENV_OPENCL_1_2, "OpenCL 1.2"};
}

std::string WithoutNewline(std::string text) {
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  constexpr size_t kTextMax = 2'000;  // Limit on the message of a tool, which shows instructions in full.
  return text.substr(0, kTextMax);
}

}  // namespace

void ValidateWithTools(const Module& module, const GpuTarget& target, ModuleFaults& faults) {
  const Environment environment = EnvironmentOf(module, target);
  const Context context(spvContextCreate(environment.env));
  spv_const_binary_t binary{module.words.data(), module.words.size()};
  spv_diagnostic raw = nullptr;
  const spv_result_t result = spvValidate(context.get(), &binary, &raw);
  const std::unique_ptr<spv_diagnostic_t, DiagnosticDeleter> diagnostic(raw);
  if (result == SPV_SUCCESS) {
    return;
  }
  const std::string text =
      diagnostic == nullptr || diagnostic->error == nullptr ? "no reason was given" : WithoutNewline(diagnostic->error);
  const std::string message =
      std::string("The module is not valid SPIR-V for ") + environment.name + " (spirv-val): " + text;
  if (diagnostic != nullptr && diagnostic->position.index != 0 && diagnostic->position.index < module.words.size()) {
    faults.AddAt(static_cast<uint32_t>(diagnostic->position.index), message);
  } else {
    faults.Add(message);
  }
}

StatusOr<std::string> Disassemble(std::span<const uint8_t> code) {
  std::vector<uint32_t> words(code.size() / 4);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<uint32_t>(code[i * 4]) | static_cast<uint32_t>(code[i * 4 + 1]) << 8 |
               static_cast<uint32_t>(code[i * 4 + 2]) << 16 | static_cast<uint32_t>(code[i * 4 + 3]) << 24;
  }
  const Context context(spvContextCreate(SPV_ENV_UNIVERSAL_1_6));
  spv_text raw = nullptr;
  spv_diagnostic raw_diagnostic = nullptr;
  const spv_result_t result = spvBinaryToText(
      context.get(), words.data(), words.size(),
      SPV_BINARY_TO_TEXT_OPTION_INDENT | SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES, &raw, &raw_diagnostic);
  const std::unique_ptr<spv_text_t, TextDeleter> text(raw);
  const std::unique_ptr<spv_diagnostic_t, DiagnosticDeleter> diagnostic(raw_diagnostic);
  if (result != SPV_SUCCESS || text == nullptr) {
    return Internal("The SPIR-V cannot be disassembled: " +
                    (diagnostic == nullptr ? "no reason was given" : WithoutNewline(diagnostic->error)) + ".");
  }
  return std::string(text->str, text->length);
}

}  // namespace hpvm::spirv
