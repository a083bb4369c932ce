// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_IR_SOURCE_PLACE_H_
#define HPVMD_COMPILER_IR_SOURCE_PLACE_H_

#include <cstdint>
#include <string>

namespace hpvm::ir {

// Where in the source an operation was written, as the module's own data says. For messages.
struct SourcePlace {
  uint32_t source = 0;  // As Op::source.
  std::string file;
  uint32_t line = 0, column = 0;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_SOURCE_PLACE_H_
