// SPDX-License-Identifier: Apache-2.0
// AuditLog records who changed what: lines of JSON, each with the hash of the previous line, so that an edit, a
// deletion or a reordering is detected (hpvmctl audit verify). Truncation at the end is detected with the head that
// an operator noted elsewhere.
//
// Line: {"seq":12,"time":"2026-…Z","prev":"<64 hex>","who":…,"peer":…,"tenant":…,"method":…,"object":…,"verdict":…,
//        "detail":…,"hash":"<64 hex>"} where hash is SHA-256 over the line's bytes before `,"hash"`.
//
// Thread-safe: Append queues records; one thread writes them at once, and syncs every 20 ms or when a caller flushes
// or reads. A crash of the daemon loses at most the records of the last instant, a loss of power those since the last
// sync. A write failure is logged and shows in Healthy(): calls that change rights are refused while they cannot be
// recorded.
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

// The daemon itself and administrators who change rights; a tenant's flood cannot take their share.
inline constexpr std::string_view kAuditPayerDaemon = "";
// Calls that were refused before the caller's tenant was known.
inline constexpr std::string_view kAuditPayerRefused = "(refused calls)";

struct AuditRecord {
  std::string who, peer, tenant;
  std::string method;   // "/hpvm.v1.Hpvm/Submit", or "daemon start", "job end", "executor kill".
  std::string object;   // An id, never contents.
  std::string verdict;  // "ok", or the status code's name.
  std::string detail;   // A sentence; cut at 1 KiB.
  // The payer whose share of the backlog the record uses: a tenant, or one of the names above.
  std::string payer = {};
};

// Limits of the kept records. Whole files are removed, the oldest first, never the one being written.
struct AuditRetention {
  uint64_t keep_days = 0;  // After a file's last record; unlimited when 0.
  uint64_t bytes_max = 0;  // Limit of all files together; unlimited when 0.
};

class AuditLog {
 public:
  virtual ~AuditLog() = default;
  // Takes effect from now on; without a call everything is kept. A removal is recorded, with the hash at the end of
  // the removed chain, which equals `prev` of the first record kept. At most one file per hour is removed because of
  // its age, so that a clock that jumps ahead does not delete the log.
  virtual void SetRetention(AuditRetention retention) = 0;
  // Never blocks on a disk. Escapes control characters and cuts long values.
  virtual void Append(AuditRecord record) = 0;
  // Blocks until everything appended before is on disk, or returns why a try to write it failed; the records then
  // still wait to be written.
  virtual Status Flush() = 0;
  // Like Flush without blocking: calls `done` once, on a thread of the log or the caller's.
  virtual void FlushThen(std::function<void(const Status&)> done) = 0;
  // Returns why a change of rights could not be recorded: the disk accepts nothing, too many records wait for it
  // (kResourceExhausted), or such records were lost. A tenant that loses only its own records does not matter here.
  virtual Status Healthy() const = 0;
  // Passes the lines from `from_sequence` on to `each`, in order, until it returns false. A damaged line is passed
  // too, with its control characters escaped, so that a verifier still rejects it. Reads files; blocks.
  virtual Status Read(uint64_t from_sequence, const std::function<bool(std::string_view line)>& each) const = 0;
};

// Opens the files audit-<first sequence>.jsonl in `folder` and continues their chain. Bytes that a crash tore off the
// end are moved to torn-<sequence>.bin beside them and recorded; damage further up is recorded and left. While the
// disk accepts nothing, up to 65,536 appended records wait, at most a third of them of one tenant; lost records are
// counted in a record once there is room. Disk and clock must outlive the log; its destructor writes the waiting
// records.
StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(Disk& disk, std::string folder, uint64_t file_bytes_max,
                                                 const Clock& clock);
// Copies a consistent state of STATE/audit to TO/audit; a daemon may be running on it. Returns the number of files;
// does nothing when there is no audit.
StatusOr<uint64_t> BackUpAudit(Disk& disk, const std::string& state, const std::string& to);
// Returns a log that keeps nothing.
AuditLog& NoAuditLog();

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_LOG_H_
