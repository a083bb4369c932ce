// SPDX-License-Identifier: Apache-2.0
#include "engine/host_memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

namespace hpvm {
namespace {

class HostView final : public Buffer {
 public:
  HostView(uint8_t* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return data_; }

 private:
  uint8_t* data_;  // Borrowed.
  uint64_t bytes_;
};

}  // namespace

std::unique_ptr<Buffer> MakeHostView(uint8_t* data, uint64_t bytes) { return std::make_unique<HostView>(data, bytes); }

StatusOr<HostMemory> HostMemory::Map(uint64_t bytes) {
  HostMemory memory;
  if (bytes == 0) {
    return memory;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("The host has no memory for the graph's temporary buffers (" + std::to_string(bytes) +
                             " bytes).");
  }
  memory.data_ = static_cast<uint8_t*>(data);
  memory.bytes_ = bytes;
  return memory;
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

}  // namespace hpvm
