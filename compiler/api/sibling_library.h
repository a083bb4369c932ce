// SPDX-License-Identifier: Apache-2.0
// Shared objects of ours that only some processes load: what they link is large.
#ifndef HPVMD_COMPILER_API_SIBLING_LIBRARY_H_
#define HPVMD_COMPILER_API_SIBLING_LIBRARY_H_

#include <string>

#include "base/status.h"

namespace hpvm {

enum class LibraryScope : uint8_t {
  kShared,  // Its libraries are those of the program where both have them.
  kOwn,     // Its own libraries first: of the program's it would find others' functions of the same names.
};

// Loads `file` from beside the program, or from where a bundle has its libraries, and returns its function `name`,
// which stays loaded. Call before the process has threads, forks, or is locked away from files.
StatusOr<void*> LoadSiblingLibrary(const std::string& file, const char* name, LibraryScope scope);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_SIBLING_LIBRARY_H_
