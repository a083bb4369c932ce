// SPDX-License-Identifier: Apache-2.0
// The CPU back end compiles kernel IR through LLVM to one position-independent image as compiler/ir/cpu_abi.h
// describes.
//
// Linked into hpvm-compiler and tests only, because it brings in libLLVM. Using it requires no LLVM header.
#ifndef HPVMD_COMPILER_BACK_LLVM_LLVM_BACK_H_
#define HPVMD_COMPILER_BACK_LLVM_LLVM_BACK_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/audit.h"
#include "compiler/api/report.h"
#include "compiler/ir/ir.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::cpu {

// The processor features that code may use: one of the psABI's levels "x86-64-v2" (SSE2 to SSE4.2), "x86-64-v3"
// (AVX2), "x86-64-v4" (AVX-512), or "aarch64" (NEON), for which only text can be made.
struct CpuTarget {
  std::string level;
};

// Returns the highest level of this machine. Returns kFailedPrecondition below x86-64-v2, because the code needs its
// rounding instructions.
StatusOr<CpuTarget> HostCpuTarget();

// Prepares LLVM's tables; a second call does nothing. Takes some milliseconds, so the zygote calls it before it forks.
void InitializeLlvm();

// `handler` runs when an allocation fails, here or in LLVM; it must not return.
void SetOutOfMemoryHandler(void (*handler)());

struct CpuOptions {
  // Allows contraction, reassociation, reciprocals and the fast math library: a node's "math": "fast".
  bool fast_math = false;
  // True: also makes variants that run instances in lockstep; false: one instance at a time only.
  bool vectorise = true;
  // The shapes to make, in this order, instead of those that the cost model chooses; for tests and for shapes that
  // measurements on a device favour. Shapes that cannot be emitted are left out.
  std::vector<pass::GangShape> shapes{};
  bool audits_proofs = kAuditsProofs;  // Unchecked variants check, and trap with kWrongProof.
  KernelReport* report = nullptr;      // May be null.
};

// Emits `module`, which must be verified and have been through the pipeline. Returns kUnimplemented for features that
// the back end lacks, kInternal when an image cannot hold LLVM's output (a relocation, an external symbol, a stack
// frame above the limit).
StatusOr<Artifact> EmitCpuImage(const ir::Module& module, const CpuTarget& target, const CpuOptions& options = {});

// Text for people: LLVM IR after optimisation, or assembly.
enum class CpuText : uint8_t { kLlvm, kAssembly };
StatusOr<std::string> EmitCpuText(const ir::Module& module, const CpuTarget& target, CpuText text,
                                  const CpuOptions& options = {});

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_LLVM_BACK_H_
