// SPDX-License-Identifier: Apache-2.0
#include "tests/wast/reserved_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace hpvm::wast {

StatusOr<ReservedMemory> ReservedMemory::Reserve(uint64_t bytes) {
  ReservedMemory memory;
  if (bytes == 0) {
    return memory;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return FromErrno(errno, "Reserving " + std::to_string(bytes) + " bytes of address space");
  }
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  return memory;
}

ReservedMemory::~ReservedMemory() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

}  // namespace hpvm::wast
