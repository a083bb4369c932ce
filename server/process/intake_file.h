// SPDX-License-Identifier: Apache-2.0
// Whether an administrator lets work be started, kept in the state folder: a server that was closed before maintenance
// stays closed when it comes back.
#ifndef HPVMD_SERVER_PROCESS_INTAKE_FILE_H_
#define HPVMD_SERVER_PROCESS_INTAKE_FILE_H_

#include <cstdint>
#include <string>

#include "base/io/disk.h"
#include "base/status.h"

namespace hpvm::server {

struct Intake {
  bool closed = false;
  std::string reason;           // For people.
  std::string changed_by;       // As the audit names the caller.
  int64_t changed_unix_ns = 0;  // 0: never.

  // "The server starts nothing now: new disks."
  std::string Sentence() const {
    return "The server starts nothing now" + (reason.empty() ? "." : ": " + reason + ".");
  }
};

// Open when there is no such file; kDataLoss when it cannot be read.
StatusOr<Intake> ReadIntake(const std::string& path, Disk& disk = RealDisk());
// Durable when it returns.
Status WriteIntake(const std::string& path, const Intake& intake, Disk& disk = RealDisk());

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_INTAKE_FILE_H_
