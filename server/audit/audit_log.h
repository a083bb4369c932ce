// SPDX-License-Identifier: Apache-2.0
// The record of who changed what: lines of JSON, each with the hash of the one before, so that an edit, a deletion or a
// reordering shows (hpvmctl audit verify). A record that is cut off at the end shows against the head that an operator
// noted elsewhere.
//
// Line: {"seq":12,"time":"2026-…Z","prev":"<64 hex>","who":…,"peer":…,"tenant":…,"method":…,"object":…,"verdict":…,
//        "detail":…,"hash":"<64 hex>"} where hash is SHA-256 over the line's bytes before `,"hash"`.
//
// Any thread: Append queues; one thread writes at once, and syncs every 20 ms or when somebody flushes or reads. The
// end of the daemon loses at most what came in the instant before, a loss of power what came since the last sync. What
// cannot be written is said in the log and shows in Healthy(): calls that change who may do what are refused while the
// record cannot be kept.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_LOG_H_
#define HPVMD_SERVER_AUDIT_AUDIT_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/io/disk.h"
#include "base/status.h"
#include "server/audit/audit_chain.h"

namespace hpvm::server {

// The daemon itself and administrators who changed rights: no flood of a tenant takes their part.
inline constexpr std::string_view kAuditPayerDaemon = "";
// Calls that were refused before anything was known of the caller's tenant.
inline constexpr std::string_view kAuditPayerRefused = "(refused calls)";

struct AuditRecord {
  std::string who, peer, tenant;
  std::string method;   // "/hpvm.v1.Hpvm/Submit", or "daemon start", "job end", "executor kill".
  std::string object;   // An id; never contents.
  std::string verdict;  // "ok", or the status code's name.
  std::string detail;   // A sentence; cut at 1 KiB.
  // In whose part of what may wait for the disk it counts: a tenant, or one of those below.
  std::string payer = {};
};

// How much of the record is kept; what goes are whole files, the oldest first, never the one that is written.
struct AuditRetention {
  uint64_t keep_days = 0;  // After a file's last record; 0: any number.
  uint64_t bytes_max = 0;  // Of all files; 0: any number.
};

class AuditLog {
 public:
  virtual ~AuditLog() = default;
  // From now on; without a call everything is kept. What goes is said in a record of its own, with the hash that its
  // chain ended with, as the first record kept has it. Because of their age at most one file goes an hour, so that a
  // clock that jumps ahead does not take the record with it.
  virtual void SetRetention(AuditRetention retention) = 0;
  // Never blocks on a disk. Control characters are escaped, long values cut.
  virtual void Append(AuditRecord record) = 0;
  // Returns when everything that was appended before is on disk, or why a try to write it failed; then it still waits
  // to be written. Blocks.
  virtual Status Flush() = 0;
  // The same without blocking: `done` is called once, on a thread of the log or the caller's.
  virtual void FlushThen(std::function<void(const Status&)> done) = 0;
  // Why a change of rights would not be recorded: the disk takes nothing, too many records wait for it
  // (kResourceExhausted), or such records were lost. A tenant that loses its own records alone does not show here.
  virtual Status Healthy() const = 0;
  // Lines from `from_sequence` on, in order, until `each` returns false. A damaged line comes too, its control
  // characters escaped, so that it is still none for whoever checks. Reads files; blocks.
  virtual Status Read(uint64_t from_sequence, const std::function<bool(std::string_view line)>& each) const = 0;
};

// Files audit-<first sequence>.jsonl in `folder`. Continues the chain that is there. What a crash tore off the end goes
// to torn-<sequence>.bin beside them, and is said in a record of its own; so is damage further up, which stays as it
// is. What Append is given while the disk takes nothing waits, up to 65,536 records, of one tenant a third; how many
// more were lost is a record once there is room. Disk and clock outlive the log; its destructor writes what waits.
StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(Disk& disk, std::string folder, uint64_t file_bytes_max,
                                                 const Clock& clock);
// Copies the files of STATE/audit, as they are at one moment, to TO/audit; a daemon may be running on them. Returns how
// many there were; nothing is done when there is no audit.
StatusOr<uint64_t> BackUpAudit(Disk& disk, const std::string& state, const std::string& to);
// Keeps nothing.
AuditLog& NoAuditLog();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_LOG_H_
