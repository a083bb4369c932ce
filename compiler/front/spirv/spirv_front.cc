// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/spirv_front.h"

#include "compiler/front/spirv/allow.h"
#include "compiler/front/spirv/interface.h"
#include "compiler/front/spirv/tools.h"

namespace hpvm::spirv {
namespace {

std::vector<uint8_t> BytesOf(const std::vector<uint32_t>& words) {
  std::vector<uint8_t> bytes(words.size() * 4);
  for (size_t i = 0; i < words.size(); ++i) {
    for (int b = 0; b < 4; ++b) {
      bytes[i * 4 + static_cast<size_t>(b)] = static_cast<uint8_t>(words[i] >> (8 * b));
    }
  }
  return bytes;
}

// Later versions list the variables that kernels refer to in another way, and few OpenCL drivers accept them.
void CheckKernelVersion(const Module& module, ModuleFaults& faults) {
  constexpr uint32_t kVersion12 = 0x00010200;
  if (module.flavour == Flavour::kKernel && module.version > kVersion12) {
    faults.AddAt(1, "The SPIR-V version of the kernel module is 1." + std::to_string(module.version >> 8 & 0xff) +
                        "; OpenCL devices take 1.0 to 1.2 (llvm-spirv --spirv-max-version=1.0 writes version 1.0).");
  }
}

// A module of the other flavour is not faulty itself; it was sent to the wrong device.
void CheckFlavour(const Module& module, const FrontOptions& options, ModuleFaults& faults) {
  const bool is_shader = module.flavour == Flavour::kShader;
  if (!faults.any() && is_shader != options.is_shader) {
    faults.Add(is_shader ? "The module is a Vulkan shader (capability Shader), and the device is an OpenCL one; OpenCL "
                           "devices run SPIR-V kernels (capability Kernel)."
                         : "The module is an OpenCL kernel (capability Kernel), and the device is a Vulkan one; Vulkan "
                           "devices run SPIR-V shaders (capability Shader).");
  }
}

void CheckAll(Reflected& reflected, const FrontOptions& options, ModuleFaults& faults) {
  Module& module = reflected.module;
  CheckAllowed(module, *options.target, faults);
  if (faults.any()) {
    return;
  }
  if (module.flavour == Flavour::kShader) {
    MakeStorageBuffers(module);
  }
  reflected.notes = Notes::Read(module);
  reflected.types = Types::Read(module, faults);
  if (!options.constants.empty() && !faults.any()) {
    FixConstants(options.constants, reflected, faults);
    // Lengths of arrays may be among the constants.
    reflected.types = Types::Read(module, faults);
  }
  if (!faults.any()) {
    reflected.structure = CheckStructure(module, reflected.types, *options.target, faults);
  }
}

// Our own checks come first, because their messages name the node's parameters.
std::optional<Program> Match(const Reflected& reflected, const FrontOptions& options, ModuleFaults& faults) {
  const std::optional<EntryPoint> entry = FindEntry(reflected, options.entry, faults);
  if (!entry.has_value()) {
    return std::nullopt;
  }
  Program program;
  program.variant.entry = entry->name;
  program.variant.can_trap = false;
  program.variant.local_bytes = reflected.structure.local_bytes;
  program.private_bytes = reflected.structure.private_bytes;
  ReadGroup(reflected, *entry, *options.target, program.variant, faults);
  const auto bind = options.is_shader ? BindShader : BindKernel;
  bind(reflected, *entry, options.params, *options.target, program.variant, faults);
  if (faults.any()) {
    return std::nullopt;
  }
  return program;
}

}  // namespace

std::optional<Program> ReadSpirv(std::span<const uint8_t> bytes, const FrontOptions& options,
                                 Diagnostics& diagnostics) {
  ModuleFaults faults(options.module_name, diagnostics);
  std::optional<Module> module = ReadWords(bytes, faults);
  if (!module.has_value()) {
    return std::nullopt;
  }
  Reflected reflected;
  reflected.module = *std::move(module);
  FindFlavour(reflected.module, faults);
  CheckFlavour(reflected.module, options, faults);
  CheckKernelVersion(reflected.module, faults);
  if (!faults.any()) {
    CheckAll(reflected, options, faults);
  }
  if (faults.any()) {
    return std::nullopt;
  }
  std::optional<Program> program = Match(reflected, options, faults);
  if (!program.has_value()) {
    return std::nullopt;
  }
  ValidateWithTools(reflected.module, *options.target, faults);
  if (faults.any()) {
    return std::nullopt;
  }
  program->code = BytesOf(reflected.module.words);
  return program;
}

}  // namespace hpvm::spirv
