// SPDX-License-Identifier: Apache-2.0
// Identifies the build of the running program and its libraries, that is the code of this project and of LLVM that
// produced a cached item. It is read from memory, so that it needs no file and describes the mapped objects even if the
// files on disk have changed.
#ifndef HPVMD_BASE_IO_BUILD_ID_H_
#define HPVMD_BASE_IO_BUILD_ID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"

namespace hpvm {

struct MappedObject {
  std::string path;  // Path given by the dynamic linker; empty for the program itself.
  bool has_build_id = false;
  // Bytes of the GNU build id note (`ld --build-id`), or, when there is none, a SHA-256 of the object's read-only
  // segments, which takes a second for a library of 200 MB.
  std::vector<uint8_t> id;
};

// Returns the program and every mapped library, in the order of loading, without the kernel's vDSO.
std::vector<MappedObject> MappedObjects();

// Returns a hash of all their ids, independent of their addresses.
Sha256 BuildIdentityOf(const std::vector<MappedObject>& objects);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_BUILD_ID_H_
