// SPDX-License-Identifier: Apache-2.0
// Any bytes give a refusal or a program whose words SPIRV-Tools can disassemble, for both kinds of device.
#include <cstdint>
#include <string>

#include "base/status.h"
#include "compiler/front/spirv/allow.h"
#include "compiler/front/spirv/interface.h"
#include "compiler/front/spirv/spirv_front.h"
#include "compiler/front/spirv/testing/assemble.h"

namespace hpvm::spirv {
namespace {

// Returns the first entry point's name, so that mutated modules get past the search for it.
std::string FirstEntry(const Module& module) {
  for (const Instruction& at : module.instructions) {
    if (OpcodeName(at.opcode) == "OpEntryPoint") {
      return module.Text(at, 2);
    }
  }
  return "main";
}

// Returns as many parameters as `fits` encodes; its bits select their types.
std::vector<ParamSpec> ParamsOf(uint8_t fits) {
  std::vector<ParamSpec> params;
  constexpr ir::Type kTypes[] = {ir::Type::kI32, ir::Type::kF32, ir::Type::kI64, ir::Type::kF64};
  for (uint32_t i = 0; i < fits % 8u; ++i) {
    params.push_back(
        {.name = "p", .is_buffer = i < 2u + (fits >> 6), .is_writable = i % 2 == 1, .scalar = kTypes[fits >> 3 & 3]});
  }
  return params;
}

void Read(std::span<const uint8_t> bytes) {
  Diagnostics diagnostics;
  ModuleFaults faults("fuzz", diagnostics);
  const std::optional<Module> module = ReadWords(bytes, faults);
  HPVMD_CHECK(module.has_value() != HasErrors(diagnostics));
  GpuTarget target = FullTarget();
  FrontOptions options;
  options.module_name = "fuzz";
  options.entry = module.has_value() ? FirstEntry(*module) : "main";
  options.target = &target;
  const SpecialisationConstant constants[] = {{.id = 0, .bits = 7}, {.id = 7, .bits = 3}};
  for (const uint8_t fits : {uint8_t{4}, uint8_t{0x0c}, bytes.empty() ? uint8_t{0} : bytes[bytes.size() - 1]}) {
    const std::vector<ParamSpec> params = ParamsOf(fits);
    options.params = params;
    options.constants = std::span(constants).first(fits % 3u);
    for (const bool is_shader : {false, true}) {
      options.is_shader = is_shader;
      Diagnostics said;
      const std::optional<Program> program = ReadSpirv(bytes, options, said);
      HPVMD_CHECK(program.has_value() != HasErrors(said));
      HPVMD_CHECK(!program.has_value() || (program->code.size() % 4 == 0 && Disassemble(program->code).ok()));
    }
  }
}

}  // namespace
}  // namespace hpvm::spirv

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hpvm::spirv::Read({data, size});
  return 0;
}
