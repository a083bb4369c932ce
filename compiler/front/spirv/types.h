// SPDX-License-Identifier: Apache-2.0
// Types and constants of a module that CheckAllowed has let through, with their sizes and depths within limits.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_TYPES_H_
#define HPVMD_COMPILER_FRONT_SPIRV_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/front/spirv/module.h"

namespace hpvm::spirv {

struct Type {
  enum class Kind : uint8_t {
    kNone,
    kVoid,
    kBool,
    kInt,
    kFloat,
    kVector,
    kMatrix,
    kArray,
    kRuntimeArray,
    kStruct,
    kPointer,
    kFunction,
    kOther,
  };
  Kind kind = Kind::kNone;
  uint32_t width = 0;    // Bits of integers and floats.
  uint32_t element = 0;  // Of vectors, matrices (columns), arrays; what pointers point to; results of functions.
  uint64_t count = 0;    // Elements.
  uint32_t storage = 0;  // Pointers: spv::StorageClass.
  uint32_t depth = 1;    // Types within types; pointers count one.
  uint64_t bytes = 0;    // Without padding; saturates.
  std::vector<uint32_t> members;  // Structs; parameters of functions.
};

class Types {
 public:
  // By id; kNone for ids that are no type.
  const Type& of(uint32_t id) const { return id < types_.size() ? types_[id] : none_; }
  // The type of a result.
  const Type& of(const Instruction& instruction) const { return of(instruction.type); }
  // "a vector of 4 32-bit floats".
  std::string Name(uint32_t id) const;

  // Stops at the first fault.
  static Types Read(const Module& module, Faults& faults);

 private:
  void ReadType(const Module& module, const Instruction& instruction, Faults& faults);

  std::vector<Type> types_;
  Type none_;
};

// The value of an integer constant, as its default has it where it may be specialised.
std::optional<uint64_t> IntegerOf(const Module& module, const Types& types, uint32_t id);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TYPES_H_
