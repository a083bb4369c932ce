// SPDX-License-Identifier: Apache-2.0
// AuditBacklog holds the audit records that wait for the disk, in order. Their number and bytes are bounded, and each
// payer (a tenant, or the daemon) may use at most half of the room that it leaves free. So a flood of calls by one
// tenant, while the disk is slow, costs its own records and not those of others. Records without room are counted,
// and the count becomes a record once there is room.
#ifndef HPVMD_SERVER_AUDIT_AUDIT_BACKLOG_H_
#define HPVMD_SERVER_AUDIT_AUDIT_BACKLOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace hpvm::server {

// Guarded by its owner's mutex.
class AuditBacklog {
 public:
  struct Record {
    std::string payer;   // The daemon when empty.
    std::string fields;  // JSON text without its place in the chain.
    int64_t unix_ns = 0;
    uint64_t stands_for = 1;  // Number of records.
    size_t bytes() const;
  };
  // Returns the fields of the record that says how many of the payer's records are missing.
  using Describe = std::function<std::string(std::string_view payer, uint64_t lost, int64_t since_unix_ns)>;

  explicit AuditBacklog(Describe describe) : describe_(std::move(describe)) {}

  // Returns false for a payer's first record without room; that record and the payer's following ones are counted.
  bool Add(Record record);
  // Makes records of the counts for which there is room.
  void NoteLost(int64_t now_unix_ns);

  bool empty() const { return records_.empty(); }
  size_t size() const { return records_.size(); }
  const Record& front() const { return records_.front(); }
  Record Pop();

  // Number of lost records that no record counts yet: of all payers, and of one.
  uint64_t lost() const { return lost_; }
  uint64_t LostOf(const std::string& payer) const;
  // Returns true when half of the room is used; the rest is for records that cannot be refused.
  bool IsHalfFull() const;

 private:
  struct Share {
    size_t records = 0, bytes = 0;
    uint64_t lost = 0;
    int64_t lost_since_ns = 0;
  };
  bool HasRoom(const Share& share, size_t bytes) const;
  void Push(Share& share, Record record);
  void NoteLost(const std::string& payer, Share& share, int64_t now_unix_ns);

  const Describe describe_;
  std::deque<Record> records_;
  size_t bytes_ = 0;
  uint64_t lost_ = 0;
  std::map<std::string, Share> shares_;  // Keyed by payer; only payers with waiting or lost records.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_BACKLOG_H_
