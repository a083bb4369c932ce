// SPDX-License-Identifier: Apache-2.0
// The compiler's report about a kernel, by source line, as text or JSON.
#ifndef HPVMD_CLIENT_CTL_KERNEL_KERNEL_REPORT_H_
#define HPVMD_CLIENT_CTL_KERNEL_KERNEL_REPORT_H_

#include <optional>
#include <string>

#include "client/ctl/command.h"

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/api/tuning_record.h"

namespace hpvm::ctl {

struct KernelExplanation {
  std::string module;                  // File name as given.
  bool is_inferred = false;            // The parameters were inferred, not given.
  Artifact artifact;                   // Result of an explained compile.
  std::optional<TuningRecord> tuning;  // Measurements of local runs.
  Diagnostics warnings;
};

// Prints to standard output. Shows source lines when the file that the module's debug information names can be read,
// at its path or beside the module.
void PrintExplanation(const KernelExplanation& explanation, const Format& format);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_KERNEL_REPORT_H_
