// SPDX-License-Identifier: Apache-2.0
// Shared memory between two processes that do not trust each other.
//
// The daemon creates and seals against resizing (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), so that a mapping can
// never raise SIGBUS. What a peer can still write is read with pread by whoever must not be surprised by it, never
// through a mapping.
#ifndef HPVMD_BASE_IO_MEMFD_H_
#define HPVMD_BASE_IO_MEMFD_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

// A new memfd of exactly `bytes`, zeroed, sealed against any change of size.
StatusOr<UniqueFd> CreateSealedMemfd(const char* name, uint64_t bytes);

// The size, after checking that `fd` is a memfd whose size is sealed. For descriptors that a peer sent.
StatusOr<uint64_t> CheckSealedMemfd(int fd);

// Whole reads and writes at an offset; a short one is an error.
Status ReadAt(int fd, uint64_t offset, std::span<uint8_t> into);
Status WriteAt(int fd, uint64_t offset, std::span<const uint8_t> from);

// Makes [offset, offset + bytes) of a memfd zeros: whole pages of a long range are given back to the system, which is
// quicker than writing them and takes some 0.2 s a GiB.
Status ZeroRange(int fd, uint64_t offset, uint64_t bytes);

// A shared mapping of [0, bytes). Movable; unmaps when destroyed.
class Mapping {
 public:
  enum class Access : uint8_t { kRead, kReadWrite };
  Mapping() = default;
  static StatusOr<Mapping> Map(int fd, uint64_t bytes, Access access);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  uint8_t* data() const { return data_; }
  uint64_t size() const { return bytes_; }
  std::span<uint8_t> span() const { return {data_, bytes_}; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_MEMFD_H_
