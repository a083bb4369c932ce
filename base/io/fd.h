// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_IO_FD_H_
#define HPVMD_BASE_IO_FD_H_

#include <cstdint>
#include <span>
#include <utility>

namespace hpvm {

// UniqueFd owns a file descriptor; -1 means none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Returns false, with errno, when not everything could be written.
bool WriteAll(int fd, std::span<const uint8_t> bytes);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_FD_H_
