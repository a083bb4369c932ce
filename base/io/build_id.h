// SPDX-License-Identifier: Apache-2.0
// Which build of a program this process runs, libraries included: what code of ours, or of LLVM's, made a thing that is
// kept. Read from memory, so that it needs no file and tells of what is mapped, not of what lies on disk by now.
#ifndef HPVMD_BASE_IO_BUILD_ID_H_
#define HPVMD_BASE_IO_BUILD_ID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"

namespace hpvm {

struct MappedObject {
  std::string path;  // As the dynamic linker has it; empty: the program itself.
  bool has_build_id = false;
  // The GNU build id note's bytes (`ld --build-id`). Without one a SHA-256 of the object's read-only segments, which
  // takes a second for a library of 200 MB.
  std::vector<uint8_t> id;
};

// The program and every library that is mapped now, in the order of loading, without the kernel's own (vDSO).
std::vector<MappedObject> MappedObjects();

// Of all their ids; where they lie does not matter.
Sha256 BuildIdentityOf(const std::vector<MappedObject>& objects);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_BUILD_ID_H_
