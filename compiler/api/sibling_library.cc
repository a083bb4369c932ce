// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/sibling_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

namespace hpvm {
namespace {

namespace fs = std::filesystem;

int FlagsOf(LibraryScope scope) {
#if defined(__SANITIZE_ADDRESS__) || defined(HPVMD_TSAN)
  return RTLD_NOW | RTLD_LOCAL;  // The sanitizer's runtime refuses to load libraries with RTLD_DEEPBIND.
#else
  return RTLD_NOW | RTLD_LOCAL | (scope == LibraryScope::kOwn ? RTLD_DEEPBIND : 0);
#endif
}

std::string ErrorOfLoader() {
  const char* error = dlerror();
  return error == nullptr ? "no reason was given" : error;
}

}  // namespace

StatusOr<void*> LoadSiblingLibrary(const std::string& file, const char* name, LibraryScope scope) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  // Test programs are in a folder beside that of the other programs.
  for (const fs::path& place : {folder / file, folder / "../lib" / file, folder / "../bin" / file}) {
    if (access(place.c_str(), R_OK) != 0) {
      continue;
    }
    void* library = dlopen(place.c_str(), FlagsOf(scope));
    if (library == nullptr) {
      return FailedPrecondition("The library \"" + file + "\" cannot be loaded: " + ErrorOfLoader() + ".");
    }
    void* function = dlsym(library, name);
    return function != nullptr ? StatusOr<void*>(function)
                               : FailedPrecondition("The library \"" + place.string() +
                                                    "\" is of another version: " + ErrorOfLoader() + ".");
  }
  return FailedPrecondition("The library \"" + file + "\" is not installed beside \"" + folder.string() + "\".");
}

}  // namespace hpvm
