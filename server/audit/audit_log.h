// SPDX-License-Identifier: Apache-2.0
// The record of who changed what: lines of JSON, each with the hash of the one before, so that an edit, a deletion or a
// reordering shows (hpvmctl audit verify). A record that is cut off at the end shows against the head that an operator
// noted elsewhere.
//
// Line: {"seq":12,"time":"2026-…Z","prev":"<64 hex>","who":…,"peer":…,"tenant":…,"method":…,"object":…,"verdict":…,
//        "detail":…,"hash":"<64 hex>"} where hash is SHA-256 over the line's bytes before `,"hash"`.
//
// Any thread: Append queues; one thread writes and syncs in groups. What cannot be written is said in the log and shows
// in Healthy(): calls that change who may do what are refused while the record cannot be kept.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_LOG_H_
#define HPVMD_SERVER_AUDIT_AUDIT_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/disk.h"
#include "base/status.h"

namespace hpvm {

struct AuditRecord {
  std::string who, peer, tenant;
  std::string method;   // "/hpvm.v1.Hpvm/Submit", or "daemon start", "job end", "executor kill".
  std::string object;   // An id; never contents.
  std::string verdict;  // "ok", or the status code's name.
  std::string detail;   // A sentence; cut at 1 KiB.
};

class AuditLog {
 public:
  virtual ~AuditLog() = default;
  virtual void Append(AuditRecord record) = 0;
  // Returns when everything that was appended before is on disk. Blocks.
  virtual Status Flush() = 0;
  virtual Status Healthy() const = 0;
  // Lines from `from_sequence` on, in order, until `each` returns false. Reads files; blocks.
  virtual Status Read(uint64_t from_sequence, const std::function<bool(std::string_view line)>& each) const = 0;
};

// Files audit-<first sequence>.jsonl in `folder`. Continues the chain that is there; a torn last line is set aside and
// said in a record of its own.
StatusOr<std::unique_ptr<AuditLog>> OpenAuditLog(Disk& disk, std::string folder, uint64_t file_bytes_max,
                                                 const Clock& clock);
// Keeps nothing.
AuditLog& NoAuditLog();

struct AuditHead {
  uint64_t first = 0, last = 0;  // Sequence numbers; 0: there are none.
  std::string hash;              // Of the last.
};
// Checks a chain line by line: kDataLoss with the line and what is wrong about it.
class AuditVerifier {
 public:
  Status Push(std::string_view line);
  const AuditHead& head() const { return head_; }

 private:
  AuditHead head_;
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_AUDIT_AUDIT_LOG_H_
