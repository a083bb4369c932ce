// SPDX-License-Identifier: Apache-2.0
// Shared memory between two processes that do not trust each other.
//
// The daemon creates it and seals it against resizing (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), so that a mapping
// can never raise SIGBUS. A reader that relies on stable data reads memory that a peer can still write with pread,
// never through a mapping.
#ifndef HPVMD_BASE_IO_MEMFD_H_
#define HPVMD_BASE_IO_MEMFD_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

// Creates a memfd of exactly `bytes`, zeroed, and sealed against any change of size.
StatusOr<UniqueFd> CreateSealedMemfd(const char* name, uint64_t bytes);

// Returns the size, after checking that `fd` is a memfd whose size is sealed. For descriptors sent by a peer.
StatusOr<uint64_t> CheckSealedMemfd(int fd);

// Read and write all bytes at an offset; a short transfer is an error.
Status ReadAt(int fd, uint64_t offset, std::span<uint8_t> into);
Status WriteAt(int fd, uint64_t offset, std::span<const uint8_t> from);

// Zeroes [offset, offset + bytes) of a memfd. Whole pages of a long range are returned to the system, which is faster
// than writing them and takes about 0.2 s per GiB.
Status ZeroRange(int fd, uint64_t offset, uint64_t bytes);

// Mapping is a shared mapping of [0, bytes). Movable; unmaps on destruction.
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
