// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/host_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/limits.h"

namespace hpvm::backends {
namespace {

constexpr uint64_t kAlignment = 64;                      // A cache line, and the widest vector.
// Above this size, new pages are cheaper than clearing recycled ones.
constexpr uint64_t kMapFromBytes = 256 * limits::kKiB;

enum class Source : uint8_t { kImported, kHeap, kMapped };

class HostBuffer final : public Buffer {
 public:
  HostBuffer(uint8_t* data, uint64_t bytes, Source source) : data_(data), bytes_(bytes), source_(source) {}
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() override {
    if (source_ == Source::kHeap) {
      std::free(data_);
    } else if (source_ == Source::kMapped) {
      munmap(data_, bytes_);
    }
  }

  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return data_; }

 private:
  uint8_t* const data_;
  const uint64_t bytes_;
  const Source source_;
};

Status TooLarge(uint64_t bytes, uint64_t bytes_max) {
  return ResourceExhausted("Buffer size (" + std::to_string(bytes) + ") is larger than the device's limit (" +
                           std::to_string(bytes_max) + ").");
}

}  // namespace

StatusOr<std::unique_ptr<Buffer>> AllocateHostBuffer(const BufferSpec& spec, uint64_t bytes_max) {
  if (spec.bytes > bytes_max) {
    return TooLarge(spec.bytes, bytes_max);
  }
  if (spec.import != nullptr) {
    return std::make_unique<HostBuffer>(spec.import, spec.bytes, Source::kImported);
  }
  if (spec.bytes >= kMapFromBytes) {
    void* data = mmap(nullptr, spec.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return ResourceExhausted("Memory for a buffer of " + std::to_string(spec.bytes) + " bytes is not available.");
    }
    return std::make_unique<HostBuffer>(static_cast<uint8_t*>(data), spec.bytes, Source::kMapped);
  }
  const uint64_t rounded = std::max(kAlignment, (spec.bytes + kAlignment - 1) / kAlignment * kAlignment);
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    return ResourceExhausted("Memory for a buffer of " + std::to_string(spec.bytes) + " bytes is not available.");
  }
  std::memset(data, 0, rounded);
  return std::make_unique<HostBuffer>(static_cast<uint8_t*>(data), spec.bytes, Source::kHeap);
}

}  // namespace hpvm::backends
