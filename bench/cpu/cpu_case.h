// SPDX-License-Identifier: Apache-2.0
// CpuCase describes a computation of `hpvm-bench cpu`: the kernel's name (in bench/cpu/), its arguments, and the
// expected results.
#ifndef HPVMD_BENCH_CPU_CPU_CASE_H_
#define HPVMD_BENCH_CPU_CPU_CASE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "hpvm/element_type.h"

namespace hpvm::bench {

// Zeroed, page-aligned memory, as required by devices that use host memory in place.
class PageMemory {
 public:
  PageMemory() = default;
  explicit PageMemory(uint64_t bytes);
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&& other) noexcept;
  ~PageMemory();
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

enum class Access : uint8_t { kIn, kOut, kInOut };

struct CpuArray {
  std::string name;
  Access access = Access::kIn;
  ElementType type = ElementType::kF32;  // kI32, kF32 or kF64.
  PageMemory initial;                    // Empty for kOut.
  uint64_t count = 0;
};

using CpuScalar = std::variant<int32_t, float, double>;

struct CpuCase {
  std::string suite;  // "prk", "parboil", "other", "small_arrays".
  std::string name;   // Name of the case and of the kernel.
  std::string sizes;  // For people.
  bool is_matmul = false;
  // Results agree bit for bit with the same C compiled natively without contraction: the kernel calls no function of
  // which the C library has its own version.
  bool is_bitwise = true;
  double work = 0;  // Work of one launch, in `unit`s: floating-point operations, bytes or elements.
  std::string unit;
  // The kernel's parameters: arrays, then scalars.
  std::vector<CpuArray> arrays{};
  std::vector<CpuScalar> scalars{};
  std::array<uint64_t, 3> extent{1, 1, 1};
  std::array<uint64_t, 3> group{0, 0, 0};  // Any group size when 0.

  // A value may differ by tolerance * max(|expected|, magnitude), and by more in a share `strays` of all elements
  // (where rounding decides a branch).
  double tolerance = 1e-12;
  double magnitude = 1;
  double strays = 0;
  uint64_t samples = 20'000;  // Number of elements of an output that are compared with `reference`.
  // Computes an element of output `array` (its index in `arrays`) independently of the kernel.
  std::function<double(size_t array, uint64_t index)> reference{};
  // Bound of that element's error when its sum is taken in any order, with or without contraction. May be empty.
  std::function<double(size_t array, uint64_t index)> error_bound{};
};

enum class CpuSize : uint8_t {
  kFull,   // Larger than the caches where that matters.
  kQuick,  // For a quick look during development.
  kCheck,  // Tiny: checks only the results.
  kGpu,    // Enough to keep a large GPU busy for a while.
};

struct CpuCaseMaker {
  const char* name;
  CpuCase (*make)(CpuSize size);
};
// Defined in bench/cpu/cpu_prk.cc, cpu_parboil.cc, cpu_other.cc, cpu_small_arrays.cc.
std::span<const CpuCaseMaker> PrkCases();
std::span<const CpuCaseMaker> ParboilCases();
std::span<const CpuCaseMaker> OtherCases();
std::span<const CpuCaseMaker> SmallArrayCases();
// Returns the error bound of an inner product of `terms` terms in type T, of which `magnitudes` is the sum of the
// terms' magnitudes: n u / (1 - n u) times that sum, for n operations of unit roundoff u (N. Higham, "Accuracy and
// Stability of Numerical Algorithms", section 3.1).
template <typename T>
double InnerProductBound(uint64_t terms, double magnitudes) {
  const double roundings = static_cast<double>(terms) * std::numeric_limits<T>::epsilon() / 2;
  return roundings / (1 - roundings) * magnitudes;
}
// C = A B; A is m by k, B is k by n.
CpuCase MakeSgemmOf(uint64_t m, uint64_t n, uint64_t k);

// For makers: returns `full`, `quick`, `check`, or `gpu` for cases that `hpvm-bench gpu` has too.
template <typename T>
T Pick(CpuSize size, T full, T quick, T check, T gpu) {
  return size == CpuSize::kGpu ? gpu : size == CpuSize::kFull ? full : size == CpuSize::kQuick ? quick : check;
}
template <typename T>
T Pick(CpuSize size, T full, T quick, T check) {
  return Pick(size, full, quick, check, full);
}
CpuArray InArray(std::string name, std::vector<float> values);
CpuArray InArray(std::string name, std::vector<double> values);
CpuArray InArray(std::string name, std::vector<int32_t> values);
// Like the function above, with Access::kInOut.
CpuArray Updated(CpuArray array);
CpuArray OutArray(std::string name, ElementType type, uint64_t count);
// Uniform in [low, high); the numbers depend on the seed.
template <typename T>
std::vector<T> RandomReals(uint64_t count, double low, double high, uint64_t seed);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_CPU_CPU_CASE_H_
