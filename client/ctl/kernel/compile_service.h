// SPDX-License-Identifier: Apache-2.0
// The compiler without an executor around it: starts `hpvm-compiler`, which locks itself down and ends with this
// process. hpvmctl itself links no compiler.
#ifndef HPVMD_CLIENT_CTL_KERNEL_COMPILE_SERVICE_H_
#define HPVMD_CLIENT_CTL_KERNEL_COMPILE_SERVICE_H_

#include <optional>

#include "base/status.h"
#include "compiler/api/learnt.h"
#include "compiler/api/service.h"

namespace hpvm::ctl {

// One compile in a process of its own. $HPVM_COMPILER names the program, else it is beside this one.
//
// `learnt`, if not null, receives what local runs have learnt of the kernel that `request` would be without `explain`;
// it stays empty when they never ran it, or keep nothing.
StatusOr<CompileOutcome> CompileHere(const CompileRequest& request, std::optional<LearntRecord>* learnt);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_COMPILE_SERVICE_H_
