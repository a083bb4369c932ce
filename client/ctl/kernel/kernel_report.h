// SPDX-License-Identifier: Apache-2.0
// What the compiler says of a kernel, by source line, as text or JSON.
#ifndef HPVMD_CLIENT_CTL_KERNEL_KERNEL_REPORT_H_
#define HPVMD_CLIENT_CTL_KERNEL_KERNEL_REPORT_H_

#include <optional>
#include <string>

#include "client/ctl/command.h"

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/api/learnt.h"

namespace hpvm::ctl {

struct KernelExplanation {
  std::string module;                  // The file, as named.
  bool is_inferred = false;            // Nobody said what the parameters are.
  Artifact artifact;                   // Of an explained compile.
  std::optional<LearntRecord> learnt;  // What local runs have measured.
  Diagnostics warnings;
};

// On standard output. Source lines are shown where the file that the module's debug information names can be read, as
// it is named or beside the module.
void PrintExplanation(const KernelExplanation& explanation, const Format& format);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_KERNEL_REPORT_H_
