// SPDX-License-Identifier: Apache-2.0
// Reflection: determines what an entry point takes and matches it with a graph's parameters.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_INTERFACE_H_
#define HPVMD_COMPILER_FRONT_SPIRV_INTERFACE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/api/gpu_code.h"
#include "compiler/api/service.h"
#include "compiler/front/spirv/module.h"
#include "compiler/front/spirv/structure.h"
#include "compiler/front/spirv/types.h"

namespace hpvm::spirv {

// Decorations, names and execution modes, by the id that they apply to.
class Notes {
 public:
  // Applies decoration groups to their members.
  static Notes Read(const Module& module);

  struct Decoration {
    uint32_t kind = 0, literal = 0;  // spv::Decoration and its first operand.
  };
  std::optional<uint32_t> Find(uint32_t id, uint32_t decoration) const;
  std::optional<uint32_t> FindOfMember(uint32_t id, uint32_t member, uint32_t decoration) const;
  // Returns an empty name when there is none.
  const std::string& NameOf(uint32_t id) const;
  const std::string& NameOfMember(uint32_t id, uint32_t member) const;
  // Returns every id that has `decoration`, with the decoration's operand.
  std::vector<std::pair<uint32_t, uint32_t>> All(uint32_t decoration) const;

 private:
  std::multimap<uint32_t, Decoration> decorations_;
  std::multimap<std::pair<uint32_t, uint32_t>, Decoration> member_decorations_;
  std::map<uint32_t, std::string> names_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> member_names_;
};

// The results of reading one module.
struct Reflected {
  Module module;
  Types types;
  Structure structure;
  Notes notes;
};

struct EntryPoint {
  uint32_t function = 0;  // Index in Structure::functions.
  uint32_t id = 0;
  std::string name;
};

// Finds the compute entry point `name`; the fault for a missing one lists those that exist.
std::optional<EntryPoint> FindEntry(const Reflected& reflected, const std::string& name, ModuleFaults& faults);

// Writes the entry's work-group size to `variant`: a fixed size, or the constants that the launcher sets.
void ReadGroup(const Reflected& reflected, const EntryPoint& entry, const GpuTarget& target, GpuVariant& variant,
               ModuleFaults& faults);

// Writes the entry's arguments for `params` to `variant`. Each mismatch is a fault that names both sides.
void BindShader(const Reflected& reflected, const EntryPoint& entry, std::span<const ParamSpec> params,
                const GpuTarget& target, GpuVariant& variant, ModuleFaults& faults);
void BindKernel(const Reflected& reflected, const EntryPoint& entry, std::span<const ParamSpec> params,
                const GpuTarget& target, GpuVariant& variant, ModuleFaults& faults);

// Writes the document's constants into the module as their defaults, which fixes their values.
void FixConstants(std::span<const SpecialisationConstant> constants, Reflected& reflected, ModuleFaults& faults);

// Turns uniform blocks and buffers of old modules into storage buffers: both have the same layout rules and one
// binding each, and devices bind only storage buffers.
void MakeStorageBuffers(Module& module);

// Describes `param` for messages: "i32", "a buffer that is read".
std::string NameOf(const ParamSpec& param);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_INTERFACE_H_
