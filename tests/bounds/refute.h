// SPDX-License-Identifier: Apache-2.0
// Refuter searches for an instance and a memory content that refute a claim about a kernel's accesses.
//
// A claim is data: the range of an operation's offset, whether it is ever reached, whether it stays inside. The
// search does not know how claims are found; tests/bounds/main.cc gets them from the prover.
#ifndef HPVMD_TESTS_BOUNDS_REFUTE_H_
#define HPVMD_TESTS_BOUNDS_REFUTE_H_

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "tests/bounds/evaluate.h"

namespace hpvm::bounds {

struct Claim {
  ir::OpId op;
  bool is_never = false;   // No instance reaches the operation.
  bool is_inside = false;  // Every instance that reaches it stays inside, and stores only to writable buffers.
  // Bounds of the offset, modulo 2^32 or 2^64; a missing bound claims nothing.
  std::optional<__int128> lo, hi;
};

class Refuter {
 public:
  // Borrows the module, which must have been verified.
  Refuter(const ir::Module& module, uint64_t seed);

  // Runs at most `instances` of the launch, adversarial ones first: the first and last of each dimension and of
  // groups, powers of two and their neighbours; with memory contents from the same list, from the kernel's constants
  // and from its scalars. Returns a description of a counterexample, or nothing.
  std::optional<std::string> Refute(const Situation& situation, const std::vector<Claim>& claims, uint32_t instances);

  uint64_t accesses() const { return accesses_; }  // Number of accesses compared with a claim so far.

 private:
  uint64_t Number(uint64_t below);
  std::array<uint64_t, 3> Pick(const Situation& situation, uint32_t number);
  uint64_t Word();
  std::optional<std::string> Compare(const Reached& reached, const Claim& claim) const;

  const ir::Module& module_;
  Evaluator evaluator_;
  std::mt19937_64 random_;
  std::vector<uint64_t> constants_;
  const Situation* situation_ = nullptr;
  std::vector<const Claim*> by_op_;
  uint64_t accesses_ = 0;
};

}  // namespace hpvm::bounds

#endif  // HPVMD_TESTS_BOUNDS_REFUTE_H_
