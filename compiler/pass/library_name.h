// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_PASS_LIBRARY_NAME_H_
#define HPVMD_COMPILER_PASS_LIBRARY_NAME_H_

#include <string_view>

namespace hpvm::pass {

// Returns true if a function's name, mangled or readable, belongs to Rust's or C++'s library. An author may choose
// such a name: the answer affects only which of two places a trap is reported at, and whether a panic is cut short.
bool IsLibraryName(std::string_view name);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_LIBRARY_NAME_H_
