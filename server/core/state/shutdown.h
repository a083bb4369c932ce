// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_CORE_STATE_SHUTDOWN_H_
#define HPVMD_SERVER_CORE_STATE_SHUTDOWN_H_

#include "base/status.h"
#include "server/process/intake_file.h"

namespace hpvm::server {

// Shutdown holds the steps of the daemon's end. Guarded by the core's mutex; each step sets those before it.
struct Shutdown {
  bool draining = false;      // No new work is accepted, and no job is started.
  bool breaking_off = false;  // Runs in progress are stopped.
  bool stopped = false;       // Executors are killed.
  bool closed = false;        // The store is not called any more.
  Intake intake;

  bool MayStartJobs() const { return !draining && !closed && !intake.closed; }
  Status RefuseWork() const {
    return draining ? Unavailable("The server is stopping and takes no new work.") : absl::OkStatus();
  }
  // Refuses runs, which, unlike jobs, do not wait for an intake that is closed.
  Status RefuseRun() const {
    return !draining && intake.closed ? Unavailable(intake.Sentence() + " It accepts jobs, which wait.") : RefuseWork();
  }
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_SHUTDOWN_H_
