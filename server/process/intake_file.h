// SPDX-License-Identifier: Apache-2.0
// Intake records whether an administrator allows new work, and on which devices. It is kept in the state folder: a
// server that was closed before maintenance stays closed when it restarts.
#ifndef HPVMD_SERVER_PROCESS_INTAKE_FILE_H_
#define HPVMD_SERVER_PROCESS_INTAKE_FILE_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/io/disk.h"
#include "base/status.h"

namespace hpvm::server {

// DevicePause stops new work on a device.
struct DevicePause {
  std::string reason;     // For people.
  std::string paused_by;  // In the audit's form of callers.
  int64_t since_unix_ns = 0;
  bool operator==(const DevicePause&) const = default;
};

struct Intake {
  bool closed = false;
  std::string reason;                         // For people.
  std::string changed_by;                     // In the audit's form of callers.
  int64_t changed_unix_ns = 0;                // 0 for never.
  std::map<std::string, DevicePause> paused;  // Keyed by device id; the device may be absent.

  // Returns "The server starts nothing now: new disks."
  std::string Sentence() const {
    return "The server starts nothing now" + (reason.empty() ? "." : ": " + reason + ".");
  }
};

// Returns an open intake when there is no such file; kDataLoss when it cannot be read.
StatusOr<Intake> ReadIntake(const std::string& path, Disk& disk = RealDisk());
// Durable when it returns OK.
Status WriteIntake(const std::string& path, const Intake& intake, Disk& disk = RealDisk());

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_INTAKE_FILE_H_
