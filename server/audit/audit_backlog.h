// SPDX-License-Identifier: Apache-2.0
// Audit records that wait for the disk, in order. Their number and bytes are bounded, and a payer (a tenant, or the
// daemon) may have at most half of what it leaves free: so a tenant's flood of calls, while the disk is slow, costs its
// own records and not those of others. A record without room is counted, and the count becomes a record once there is
// some.
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

// Guarded by its owner.
class AuditBacklog {
 public:
  struct Record {
    std::string payer;   // Empty: the daemon.
    std::string fields;  // As text, without its place in the chain.
    int64_t unix_ns = 0;
    uint64_t stands_for = 1;  // Records.
    size_t bytes() const;
  };
  // The fields of the record that says how many of the payer's are missing.
  using Describe = std::function<std::string(std::string_view payer, uint64_t lost, int64_t since_unix_ns)>;

  explicit AuditBacklog(Describe describe) : describe_(std::move(describe)) {}

  // False: the first of the payer's for which there is no room; it and those after it are counted.
  bool Add(Record record);
  // Makes records of the counts for which there is room.
  void NoteLost(int64_t now_unix_ns);

  bool empty() const { return records_.empty(); }
  size_t size() const { return records_.size(); }
  const Record& front() const { return records_.front(); }
  Record Pop();

  // Records that were lost, and are not yet counted in a record: all payers' together, and one payer's.
  uint64_t lost() const { return lost_; }
  uint64_t LostOf(const std::string& payer) const;
  // Half of the room is used up: the rest is for what cannot be refused.
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
  std::map<std::string, Share> shares_;  // By payer; those with something.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_AUDIT_AUDIT_BACKLOG_H_
