// SPDX-License-Identifier: Apache-2.0
#include "base/io/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hpvm {
namespace {
constexpr int kSizeSeals = F_SEAL_GROW | F_SEAL_SHRINK;
}

StatusOr<UniqueFd> CreateSealedMemfd(const char* name, uint64_t bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return FromErrno(errno, "Creating shared memory");
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return FromErrno(errno, "Sizing shared memory to " + std::to_string(bytes) + " bytes");
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return FromErrno(errno, "Sealing shared memory");
  }
  return fd;
}

StatusOr<uint64_t> CheckSealedMemfd(int fd) {
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return InvalidArgument("The descriptor is not shared memory whose size is sealed.");
  }
  // lseek instead of fstat, which the C library implements with a call that takes a path, and the runner's system call
  // filter refuses those. The descriptor's position is unused: all reading and writing is by pread and pwrite.
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0) {
    return FromErrno(errno, "Reading the size of shared memory");
  }
  return static_cast<uint64_t>(size);
}

Status ReadAt(int fd, uint64_t offset, std::span<uint8_t> into) {
  while (!into.empty()) {
    ssize_t got = pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FromErrno(errno, "Reading " + std::to_string(into.size()) + " bytes");
    }
    if (got == 0) {
      return MakeStatus(absl::StatusCode::kOutOfRange,
                        "Reading ends at byte " + std::to_string(offset) + ", before its last byte.");
    }
    into = into.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

Status WriteAt(int fd, uint64_t offset, std::span<const uint8_t> from) {
  while (!from.empty()) {
    ssize_t put = pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return FromErrno(put == 0 ? ENOSPC : errno, "Writing " + std::to_string(from.size()) + " bytes");
    }
    from = from.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return absl::OkStatus();
}

Status ZeroRange(int fd, uint64_t offset, uint64_t bytes) {
  constexpr uint64_t kPage = 4096, kHoleBytesMin = 256 << 10;
  static constexpr std::array<uint8_t, 64 << 10> kZeros{};
  const uint64_t end = offset + bytes;
  while (offset < end) {
    const uint64_t hole = end / kPage * kPage;
    if (offset % kPage == 0 && hole >= offset + kHoleBytesMin) {
      const auto length = static_cast<off_t>(hole - offset);
      if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), length) != 0) {
        return FromErrno(errno, "Clearing " + std::to_string(length) + " bytes");
      }
      offset = hole;
      continue;
    }
    const uint64_t to_page = kPage - offset % kPage;
    const uint64_t count =
        std::min<uint64_t>({kZeros.size(), end - offset, offset % kPage != 0 ? to_page : UINT64_MAX});
    HPVMD_RETURN_IF_ERROR(WriteAt(fd, offset, {kZeros.data(), static_cast<size_t>(count)}));
    offset += count;
  }
  return absl::OkStatus();
}

StatusOr<Mapping> Mapping::Map(int fd, uint64_t bytes, Access access) {
  Mapping mapping;
  if (bytes == 0) {
    return mapping;
  }
  int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return FromErrno(errno, "Mapping " + std::to_string(bytes) + " bytes of shared memory");
  }
  mapping.data_ = static_cast<uint8_t*>(address);
  mapping.bytes_ = bytes;
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

}  // namespace hpvm
