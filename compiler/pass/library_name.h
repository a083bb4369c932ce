// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_PASS_LIBRARY_NAME_H_
#define HPVMD_COMPILER_PASS_LIBRARY_NAME_H_

#include <string_view>

namespace hpvm::pass {

// Whether a function's name, mangled or readable, is of Rust's own library or of C++'s. An author may choose such a
// name: nothing rests on the answer but which of two places a trap is reported at, and whether a panic is cut short.
bool IsLibraryName(std::string_view name);

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_LIBRARY_NAME_H_
