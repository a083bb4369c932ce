// SPDX-License-Identifier: Apache-2.0
// What drivers have been seen to compute wrongly, each with a kernel that shows it. A driver is judged by what its
// probes compute, not by its name: a mended one is clear, and another one with the same fault is found.
//
// A defect concerns either modules that were written for the device (OpenCL C, SPIR-V), whose authors are told, or the
// code that our own emitters make: a device that shows one of those runs none of it. The kernels of the latter come
// from the emitters themselves (compiler/back/probe), so they change with what the emitters write.
#ifndef HPVMD_BACKENDS_GPU_KNOWN_DEFECTS_H_
#define HPVMD_BACKENDS_GPU_KNOWN_DEFECTS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "compiler/api/artifact.h"

namespace hpvm::gpu {

// Every probe is a kernel of (x: in buffer of 64-bit words, word w holding w; out: buffer of 64-bit words, zero at
// first; extra: 32-bit 0, which no compiler can know).
struct DefectProbe {
  Artifact (*code)();
  uint64_t instances = 0, group = 1;
  uint64_t x_words = 0, out_words = 0;
  // Whether `out` holds what the kernel's language says.
  bool (*is_right)(std::span<const uint64_t> out);
};

struct KnownDefect {
  std::string_view name;       // "wrapped-address"; probes of one name are tried until one shows it.
  std::string_view seen_with;  // Interface and driver, for people.
  std::string_view reason;     // What goes wrong, a sentence.
  bool is_ours = false;        // Concerns the code of our emitters; else modules that were written for the device.
  DefectProbe probe;
};

// All of them, those for either interface among them: a probe runs where Artifact::kind is what the device takes.
std::span<const KnownDefect> KnownDefects();

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_KNOWN_DEFECTS_H_
