// SPDX-License-Identifier: Apache-2.0
#include "bench/cpu/cpu_case.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::bench {
namespace {

template <typename T>
CpuArray MakeIn(std::string name, ElementType type, const std::vector<T>& values) {
  CpuArray array{.name = std::move(name),
                 .access = Access::kIn,
                 .type = type,
                 .initial = PageMemory(values.size() * sizeof(T)),
                 .count = values.size()};
  std::memcpy(array.initial.data(), values.data(), values.size() * sizeof(T));
  return array;
}

}  // namespace

PageMemory::PageMemory(uint64_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HPVMD_CHECK(memory != MAP_FAILED);
  data_ = static_cast<uint8_t*>(memory);
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PageMemory::~PageMemory() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

CpuArray InArray(std::string name, std::vector<float> values) {
  return MakeIn(std::move(name), ElementType::kF32, values);
}
CpuArray InArray(std::string name, std::vector<double> values) {
  return MakeIn(std::move(name), ElementType::kF64, values);
}
CpuArray InArray(std::string name, std::vector<int32_t> values) {
  return MakeIn(std::move(name), ElementType::kI32, values);
}

CpuArray Updated(CpuArray array) {
  array.access = Access::kInOut;
  return array;
}

CpuArray OutArray(std::string name, ElementType type, uint64_t count) {
  return {.name = std::move(name), .access = Access::kOut, .type = type, .initial = {}, .count = count};
}

template <typename T>
std::vector<T> RandomReals(uint64_t count, double low, double high, uint64_t seed) {
  SeededRng rng(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    value = static_cast<T>(low + (high - low) * static_cast<double>(rng.Next() >> 11) * 0x1p-53);
  }
  return values;
}
template std::vector<float> RandomReals<float>(uint64_t, double, double, uint64_t);
template std::vector<double> RandomReals<double>(uint64_t, double, double, uint64_t);

}  // namespace hpvm::bench
