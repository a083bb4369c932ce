// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_native.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace hpvm::bench {
namespace {

// Returns a divisor for whole groups, as OpenCL 1.2 requires; 0 when none is near `wanted`.
uint64_t Divisor(uint64_t n, uint64_t wanted) {
  for (uint64_t d = wanted; d >= std::max<uint64_t>(1, wanted / 2); --d) {
    if (n % d == 0) {
      return d;
    }
  }
  return 0;
}

std::vector<GroupSize> SizesFor(const CpuCase& problem, bool may_leave_open) {
  if (problem.group[0] != 0) {
    return {problem.group};
  }
  std::vector<GroupSize> sizes;
  if (may_leave_open) {
    sizes.push_back({0, 0, 0});
  }
  const std::pair<uint64_t, uint64_t> shapes[] = {{64, 1},  {128, 1}, {256, 1}, {512, 1},
                                                  {16, 16}, {32, 8},  {32, 32}, {8, 8}};
  for (const auto& [x, y] : shapes) {
    const GroupSize size = {Divisor(problem.extent[0], x), Divisor(problem.extent[1], y), 1};
    if (size[0] != 0 && size[1] != 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
      sizes.push_back(size);
    }
  }
  if (sizes.empty()) {
    sizes.push_back({1, 1, 1});
  }
  return sizes;
}

}  // namespace

NativeGpuContender::NativeGpuContender(std::string name, const CpuCase& problem, bool may_leave_open)
    : GpuContender(std::move(name), problem), sizes_(SizesFor(problem, may_leave_open)), size_(sizes_[0]) {}

std::string NativeGpuContender::chosen() const {
  return size_[0] == 0 ? "local size left to the driver"
                       : "local size " + std::to_string(size_[0]) + " x " + std::to_string(size_[1]);
}

Status NativeGpuContender::Settle(double seconds) {
  double best = 0;
  for (const GroupSize& size : sizes_) {
    const StatusOr<double> once = Enqueue(size, 2);
    if (!once.ok()) {
      continue;  // Exceeds the device's limit.
    }
    const auto launches =
        static_cast<uint32_t>(std::clamp(seconds / static_cast<double>(sizes_.size()) / *once, 1.0, 20.0));
    HPVMD_ASSIGN_OR_RETURN(const double again, Enqueue(size, launches));
    const double quickest = std::min(*once, again);
    if (best == 0 || quickest < best) {
      best = quickest;
      size_ = size;
    }
  }
  return absl::OkStatus();
}

uint64_t NativeGpuContender::BytesOf(size_t array) const {
  return problem().arrays[array].count * ElementBytes(problem().arrays[array].type);
}

Status NativeGpuContender::Upload(bool all) {
  for (size_t i = 0; i < problem().arrays.size(); ++i) {
    const CpuArray& array = problem().arrays[i];
    if (array.access == Access::kInOut || all) {
      HPVMD_RETURN_IF_ERROR(Write(i, array.access == Access::kOut ? data(i) : array.initial.data(), BytesOf(i)));
    }
  }
  return absl::OkStatus();
}

StatusOr<double> NativeGpuContender::Launch() {
  HPVMD_RETURN_IF_ERROR(Upload(/*all=*/false));
  HPVMD_ASSIGN_OR_RETURN(const double seconds, Batch(1));
  for (size_t i = 0; i < problem().arrays.size(); ++i) {
    if (problem().arrays[i].access != Access::kIn) {
      HPVMD_RETURN_IF_ERROR(Read(i, data(i), BytesOf(i)));
    }
  }
  return seconds;
}

double SecondsEach(uint32_t count, const std::function<void(uint32_t)>& launch, const std::function<void()>& finish) {
  const double seconds = Seconds([&] {
    for (uint32_t i = 0; i < count; ++i) {
      launch(i);
    }
    finish();
  });
  return seconds / count;
}

size_t NumberOf(const std::string& device) {
  size_t number = 0;
  if (const size_t colon = device.find(':'); colon != std::string::npos) {
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), number);
  }
  return number;
}

}  // namespace hpvm::bench
