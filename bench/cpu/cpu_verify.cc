// SPDX-License-Identifier: Apache-2.0
#include "bench/cpu/cpu_verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/clock.h"

namespace hpvm::bench {
namespace {

double Element(const CpuContender& contender, const CpuArray& array, size_t index, uint64_t at) {
  const uint8_t* data = contender.data(index);
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, data + at * sizeof(T), sizeof(T));
    return static_cast<double>(value);
  };
  return array.type == ElementType::kF32 ? read(0.0f) : array.type == ElementType::kF64 ? read(0.0) : read(int32_t{0});
}

bool Agrees(double value, double expected, double allowed) {
  if (std::isnan(expected) || std::isnan(value)) {
    return std::isnan(expected) && std::isnan(value);
  }
  return value == expected || std::abs(value - expected) <= allowed;
}

double ToleranceOf(const CpuCase& problem, double expected) {
  return problem.tolerance * std::max(std::abs(expected), problem.magnitude);
}

// Differences counts the elements that differ, and remembers the first.
class Differences {
 public:
  void Add(uint64_t at, double value, double expected) {
    if (count_++ == 0) {
      at_ = at, value_ = value, expected_ = expected;
    }
  }
  // Returns an empty text when at most `allowed` of `total` differ.
  std::string Say(const CpuArray& array, uint64_t total, double allowed, const std::string& with) const {
    if (static_cast<double>(count_) <= allowed * static_cast<double>(total)) {
      return "";
    }
    char text[300];
    std::snprintf(text, sizeof(text),
                  "%llu of %llu elements of \"%s\" differ from %s, the first at %llu: %.17g, not %.17g.",
                  static_cast<unsigned long long>(count_), static_cast<unsigned long long>(total), array.name.c_str(),
                  with.c_str(), static_cast<unsigned long long>(at_), value_, expected_);
    return text;
  }

 private:
  uint64_t count_ = 0, at_ = 0;
  double value_ = 0, expected_ = 0;
};

// Returns both ends, where tail handling fails, and random positions.
std::vector<uint64_t> Samples(uint64_t count, uint64_t samples) {
  std::vector<uint64_t> out;
  const uint64_t ends = std::min<uint64_t>(count, samples / 4);
  for (uint64_t i = 0; i < ends; ++i) {
    out.push_back(i);
    out.push_back(count - 1 - i);
  }
  SeededRng rng(count);
  for (uint64_t i = 0; i < samples / 2; ++i) {
    out.push_back(rng.Below(count));
  }
  return out;
}

}  // namespace

std::string CompareWithReference(const CpuCase& problem, const CpuContender& contender) {
  const bool uses_bound = contender.is_library() && problem.error_bound;
  for (size_t i = 0; i < problem.arrays.size(); ++i) {
    const CpuArray& array = problem.arrays[i];
    if (array.access == Access::kIn) {
      continue;
    }
    Differences differences;
    const std::vector<uint64_t> samples = Samples(array.count, problem.samples);
    for (uint64_t at : samples) {
      const double value = Element(contender, array, i, at), expected = problem.reference(i, at);
      const double allowed = uses_bound ? problem.error_bound(i, at) : ToleranceOf(problem, expected);
      if (!Agrees(value, expected, allowed)) {
        differences.Add(at, value, expected);
      }
    }
    if (std::string fault = differences.Say(array, samples.size(), problem.strays, "the reference"); !fault.empty()) {
      return fault;
    }
  }
  return "";
}

std::string CompareAll(const CpuCase& problem, const CpuContender& contender, const CpuContender& other, bool bitwise) {
  for (size_t i = 0; i < problem.arrays.size(); ++i) {
    const CpuArray& array = problem.arrays[i];
    const uint64_t bytes = array.count * ElementBytes(array.type);
    if (array.access == Access::kIn || std::memcmp(contender.data(i), other.data(i), bytes) == 0) {
      continue;
    }
    Differences differences;
    const uint32_t width = ElementBytes(array.type);
    for (uint64_t at = 0; at < array.count; ++at) {
      const double value = Element(contender, array, i, at), expected = Element(other, array, i, at);
      const bool same = std::memcmp(contender.data(i) + at * width, other.data(i) + at * width, width) == 0 ||
                        (std::isnan(value) && std::isnan(expected));
      if (!same && (bitwise || !Agrees(value, expected, ToleranceOf(problem, expected)))) {
        differences.Add(at, value, expected);
      }
    }
    const double allowed = bitwise ? 0 : problem.strays;
    if (std::string fault = differences.Say(array, array.count, allowed, "\"" + other.name() + "\""); !fault.empty()) {
      return fault;
    }
  }
  return "";
}

}  // namespace hpvm::bench
