// SPDX-License-Identifier: Apache-2.0
// Types and constants of a module that CheckAllowed has accepted, with sizes and depths within the limits.
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
  uint32_t element = 0;  // Element type of vectors, arrays and matrices (a column); pointee of pointers; result type
                         // of functions.
  uint64_t count = 0;    // Elements.
  uint32_t storage = 0;  // Pointers: spv::StorageClass.
  uint32_t depth = 1;    // Depth of type nesting; a pointer counts one.
  uint64_t bytes = 0;    // Without padding; saturates.
  std::vector<uint32_t> members;  // Structs; parameters of functions.
};

class Types {
 public:
  // Returns the type with that id; its kind is kNone when the id is no type.
  const Type& of(uint32_t id) const { return id < types_.size() ? types_[id] : none_; }
  // Returns the type of the instruction's result.
  const Type& of(const Instruction& instruction) const { return of(instruction.type); }
  // Returns a description such as "a vector of 4 32-bit floats".
  std::string Name(uint32_t id) const;

  // Stops at the first fault.
  static Types Read(const Module& module, ModuleFaults& faults);

 private:
  void ReadType(const Module& module, const Instruction& instruction, ModuleFaults& faults);

  std::vector<Type> types_;
  Type none_;
};

// Returns the value of an integer constant; for a specialisation constant, its default.
std::optional<uint64_t> IntegerOf(const Module& module, const Types& types, uint32_t id);

}  // namespace hpvm::spirv

#endif  // HPVMD_COMPILER_FRONT_SPIRV_TYPES_H_
