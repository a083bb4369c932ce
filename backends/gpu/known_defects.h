// SPDX-License-Identifier: Apache-2.0
// Known miscomputations of drivers, each with a kernel that shows it. A driver is judged by the results of the probes,
// not by its name: a fixed driver passes, and another driver with the same fault is detected.
//
// A defect concerns either modules that were written for the device (OpenCL C, SPIR-V), whose authors are told, or code
// from this project's emitters: a device with such a defect runs no emitted code. Probes for the latter come from the
// emitters themselves (compiler/back/probe), so they change with the emitters' output.
#ifndef HPVMD_BACKENDS_GPU_KNOWN_DEFECTS_H_
#define HPVMD_BACKENDS_GPU_KNOWN_DEFECTS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "compiler/api/artifact.h"

namespace hpvm::gpu {

// Every probe is a kernel of (x: in buffer of 64-bit words, word w holds w; out: buffer of 64-bit words, initially
// zero; extra: 32-bit 0, unknown to compilers).
struct DefectProbe {
  Artifact (*code)();
  uint64_t instances = 0, group = 1;
  uint64_t x_words = 0, out_words = 0;
  // Returns true when `out` holds what the kernel's language specifies.
  bool (*is_right)(std::span<const uint64_t> out);
};

struct KnownDefect {
  // "wrapped-address"; probes with one name are tried until one shows the defect.
  std::string_view name;
  std::string_view seen_with;  // Interface and driver, for people.
  std::string_view reason;     // A sentence that describes the fault.
  // Concerns code of this project's emitters; otherwise modules written for the device.
  bool is_ours = false;
  DefectProbe probe;
};

// Returns all of them, for both interfaces: a probe runs when the device takes its Artifact::kind.
std::span<const KnownDefect> KnownDefects();

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_KNOWN_DEFECTS_H_
