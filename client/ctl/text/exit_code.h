// SPDX-License-Identifier: Apache-2.0
// hpvmctl's exit codes; documented in `hpvmctl --help` and docs/CLI.md, so they never change.
#ifndef HPVMD_CLIENT_CTL_TEXT_EXIT_CODE_H_
#define HPVMD_CLIENT_CTL_TEXT_EXIT_CODE_H_

#include "base/status.h"

namespace hpvm::ctl {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       // The job failed: a kernel trapped, memory ran out, a file could not be written.
  kUsage = 2,        // The command line, graph, module or input is wrong.
  kCannotPlace = 3,  // No device here can run some node.
  kAuth = 4,         // The caller is not authenticated or not allowed.
  kCancelled = 5,
  kDeadline = 6,
  kUnreachable = 7,    // No server answers, or it went away.
  kTimedOut = 124,     // The --timeout of a wait passed; the jobs continue.
  kInterrupted = 130,  // Ctrl-C.
};

ExitCode ExitCodeOf(const Status& status);

// Prints "hpvmctl: code: message" to stderr and returns its exit code.
ExitCode Report(const Status& status);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_EXIT_CODE_H_
