// SPDX-License-Identifier: Apache-2.0
// Audits of proofs: unchecked code that checks all the same, and ends the process when a check fails that the launch's
// proof said could not.
//
// For tests: those that compile by themselves ask for it (CpuOptions, GpuOptions), and a build with the CMake option
// HPVMD_AUDIT_PROOFS does it in every compile. Nothing that runs can turn it on or off: no request, no environment.
#ifndef HPVMD_COMPILER_API_AUDIT_H_
#define HPVMD_COMPILER_API_AUDIT_H_

namespace hpvm {

#ifdef HPVMD_AUDIT_PROOFS
inline constexpr bool kAuditsProofs = true;
#else
inline constexpr bool kAuditsProofs = false;
#endif

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_AUDIT_H_
