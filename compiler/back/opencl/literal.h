// SPDX-License-Identifier: Apache-2.0
// Spelling of types and constants in OpenCL C.
#ifndef HPVMD_COMPILER_BACK_OPENCL_LITERAL_H_
#define HPVMD_COMPILER_BACK_OPENCL_LITERAL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/ir/ir.h"

namespace hpvm::opencl {

// Integers are always unsigned; operations cast.
std::string_view TypeName(ir::Type type);
// Returns the signed type of the same width.
std::string_view SignedName(ir::Type type);
// Returns "12u", "0x80000000ul", "1.5f", "as_float(0x7fc00000u)"; negative numbers in brackets.
std::string Literal(ir::Type type, uint64_t bits);
// Makes an identifier, legible to drivers and people, from any name.
std::string Identifier(std::string_view name);

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_LITERAL_H_
