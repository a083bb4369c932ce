// SPDX-License-Identifier: Apache-2.0
// A kernel with its launch: generated, run, shrunk and stored.
#ifndef HPVMD_TESTS_SPMD_KERNEL_H_
#define HPVMD_TESTS_SPMD_KERNEL_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"

namespace hpvm::spmd {

// The value of a parameter. `fill` and `seed` determine the contents of a buffer.
struct Binding {
  enum class Fill : uint8_t {
    kZero,
    kIntegers,  // i32s: small ones, edges, and any.
    kF32,       // Small integers, fractions, edges, NaNs.
    kF64,
    kPermutation,  // i32s 0, 1, 2 ... in another order.
  };
  uint64_t bytes = 0;  // For buffers.
  Fill fill = Fill::kZero;
  uint64_t seed = 0;
  // Size of the floats in buffers that are accessed only as floats, where all NaNs are equal; 0 when bits are
  // compared.
  uint32_t float_bytes = 0;
  uint64_t scalar = 0;  // For scalars.
};

struct Kernel {
  uint64_t seed = 0;
  ir::Module module;
  std::array<uint64_t, 3> extent{1, 1, 1}, group{1, 1, 1};
  std::vector<Binding> bindings;  // One per parameter.

  uint64_t instances() const { return extent[0] * extent[1] * extent[2]; }
};

// Returns the words of a buffer before the launch; the last one may be partial.
std::vector<uint64_t> Content(const Binding& binding);

uint64_t CountOps(const ir::Module& module);

// The module's text with the launch in comments, and its parser.
std::string ToText(const Kernel& kernel);
StatusOr<Kernel> FromText(const std::string& text);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_KERNEL_H_
