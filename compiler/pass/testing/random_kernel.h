// SPDX-License-Identifier: Apache-2.0
// Kernels for tests of access analyses: from a body's text, and random ones.
#ifndef HPVMD_COMPILER_PASS_TESTING_RANDOM_KERNEL_H_
#define HPVMD_COMPILER_PASS_TESTING_RANDOM_KERNEL_H_

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass::testing {

// Returns a kernel with a buffer %b and scalars %n and %m; the ids are %x and %y, constants are %c0 to %c9, %ones (-1)
// and %fours (-4).
ir::Module BoundsKernel(const std::string& body, bool is_separate = false);

// Writes `count` values, %name0 to the last, each of which is opaque to FindBounds and depends on the previous one.
std::string NoisyValues(uint32_t count, const std::string& name);

struct KernelLaunch {
  std::array<uint64_t, 3> extent{1, 1, 1};
  uint64_t bytes = 0;
  uint32_t n = 0, m = 0;
};

// KernelGenerator makes random kernels: arithmetic of 32 and 64 bits, branches, loops and stores over few small or
// extreme values; powers and products up to the limits of proofs. Some have more values than a launch can analyse. In
// every eighth kernel the loops double or halve a parameter and mask with it.
class KernelGenerator {
 public:
  explicit KernelGenerator(uint32_t seed) : random_(seed), scales_(seed % 8 == 5) {}

  std::string Body();
  KernelLaunch Facts();
  // Returns a random memory word, extreme values more often than others.
  uint64_t Word();

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Chance(uint32_t n) { return Below(n) == 0; }
  std::string PickOf(const std::vector<std::string>& values);
  std::string Pick() { return PickOf(values_); }
  std::string PickWide() { return PickOf(wides_); }
  std::string Name() { return "v" + std::to_string(++names_); }
  std::string WideConstant(uint64_t value, std::string* text);

  std::string Compare(std::string* text);
  void Let(std::string* text);
  void Bits(std::string* text);
  void Load(std::string* text);
  void LetWide(std::string* text);
  void LoadWide(std::string* text);
  void Narrow(std::string* text);
  void Powers(std::string* text);
  std::string NarrowLoad(int width, std::string* text);
  std::string Power(const std::string& base, int degree, std::string* text);
  void GroupMemory(std::string* text);
  void StoreToGroup(std::string* text);
  void Store(std::string* text);
  void If(int depth, std::string* text);
  void Merge(std::string* text);
  void Loop(int depth, std::string* text);
  void ScaledLoop(int depth, std::string* text);
  void Butterfly(const std::string& stride, std::string* text);
  std::string Scaled(const std::string& value, std::string* text);
  void Statement(int depth, std::string* text);
  void Statements(int depth, int count, std::string* text);

  std::mt19937 random_;
  const bool scales_;
  std::vector<std::string> values_, wides_, group_;  // Names of 32-bit values, of 64-bit values, and of group memory.
  int names_ = 0;
};

}  // namespace hpvm::pass::testing

#endif  // HPVMD_COMPILER_PASS_TESTING_RANDOM_KERNEL_H_
