// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_IR_SOURCE_LOCATION_H_
#define HPVMD_COMPILER_IR_SOURCE_LOCATION_H_

#include <cstdint>
#include <string>

namespace hpvm::ir {

// The source position of an operation, from the module's own debug data. For messages.
struct SourceLocation {
  uint32_t source = 0;  // As Op::source.
  std::string file;
  uint32_t line = 0, column = 0;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_SOURCE_LOCATION_H_
