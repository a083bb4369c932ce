// SPDX-License-Identifier: Apache-2.0
// What an entry point takes, as the module itself says (reflection), and how a graph's parameters fit it.
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

// Decorations, names and modes, by what they are put on.
class Notes {
 public:
  // Groups of decorations are applied to their members.
  static Notes Read(const Module& module);

  struct Decoration {
    uint32_t kind = 0, literal = 0;  // spv::Decoration and its first operand.
  };
  std::optional<uint32_t> Find(uint32_t id, uint32_t decoration) const;
  std::optional<uint32_t> FindOfMember(uint32_t id, uint32_t member, uint32_t decoration) const;
  // Empty without a name.
  const std::string& NameOf(uint32_t id) const;
  const std::string& NameOfMember(uint32_t id, uint32_t member) const;
  // Every id with `decoration`, with its operand.
  std::vector<std::pair<uint32_t, uint32_t>> All(uint32_t decoration) const;

 private:
  std::multimap<uint32_t, Decoration> decorations_;
  std::multimap<std::pair<uint32_t, uint32_t>, Decoration> member_decorations_;
  std::map<uint32_t, std::string> names_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> member_names_;
};

// All that was found of one module.
struct Reflected {
  Module module;
  Types types;
  Structure structure;
  Notes notes;
};

struct EntryPoint {
  uint32_t function = 0;  // In Structure::functions.
  uint32_t id = 0;
  std::string name;
};

// The entry point `name` for compute; a fault lists those that there are.
std::optional<EntryPoint> FindEntry(const Reflected& reflected, const std::string& name, Faults& faults);

// Work items of a group as the entry fixes them, into `variant`: a size, or the constants that a launcher sets.
void ReadGroup(const Reflected& reflected, const EntryPoint& entry, const GpuTarget& target, GpuVariant& variant,
               Faults& faults);

// The entry's arguments for `params`, into `variant`. Each mismatch is a fault with both sides.
void BindShader(const Reflected& reflected, const EntryPoint& entry, std::span<const ParamSpec> params,
                const GpuTarget& target, GpuVariant& variant, Faults& faults);
void BindKernel(const Reflected& reflected, const EntryPoint& entry, std::span<const ParamSpec> params,
                const GpuTarget& target, GpuVariant& variant, Faults& faults);

// Writes the document's constants into the module as their defaults, so that they are fixed.
void FixConstants(std::span<const SpecialisationConstant> constants, Reflected& reflected, Faults& faults);

// Uniform blocks and buffers of old modules become storage buffers: they have the same layout rules and one binding
// each, and devices bind nothing else.
void MakeStorageBuffers(Module& module);

// For messages: "i32", "a buffer that is read".
std::string NameOf(const ParamSpec& param);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_INTERFACE_H_
