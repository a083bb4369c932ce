// SPDX-License-Identifier: Apache-2.0
// Loads the project's shared objects that only some processes need, because their dependencies are large.
#ifndef HPVMD_COMPILER_API_SIBLING_LIBRARY_H_
#define HPVMD_COMPILER_API_SIBLING_LIBRARY_H_

#include <string>

#include "base/status.h"

namespace hpvm {

enum class LibraryScope : uint8_t {
  kShared,  // Shares the program's libraries where both link the same ones.
  kOwn,     // Prefers its own libraries, because same-named functions of the program's libraries may differ.
};

// Loads `file` from beside the program, or from a bundle's library folder, and returns its function `name`, which
// stays loaded. Call before the process starts threads, forks, or restricts its file access.
StatusOr<void*> LoadSiblingLibrary(const std::string& file, const char* name, LibraryScope scope);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_SIBLING_LIBRARY_H_
