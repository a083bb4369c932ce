// SPDX-License-Identifier: Apache-2.0
// Audits of proofs: code compiled without checks performs the checks all the same, and ends the process when a check
// fails that the launch's proof excluded.
//
// Only tests use audits: those that compile in-process request them (CpuOptions, GpuOptions), and a build with the
// CMake option HPVMD_AUDIT_PROOFS enables them in every compile. No request and no environment variable can enable or
// disable them at run time.
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
