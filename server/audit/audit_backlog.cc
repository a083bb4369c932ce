// SPDX-License-Identifier: Apache-2.0
#include "server/audit/audit_backlog.h"

#include <utility>

namespace hpvm::server {
namespace {

constexpr size_t kRecordsMax = 65'536, kBytesMax = size_t{32} << 20;
// Upper bound of a line's bytes beside its fields.
constexpr size_t kFrameBytes = 256;
// Upper bound of a record that counts missing records.
constexpr size_t kNoteBytes = 1'024;
// Beyond this number, payers, whose names callers can make up, share one share.
constexpr size_t kSharesMax = 4'096;
constexpr char kOtherPayers[] = "(others)";

}  // namespace

size_t AuditBacklog::Record::bytes() const { return fields.size() + kFrameBytes; }

bool AuditBacklog::HasRoom(const Share& share, size_t bytes) const {
  if (records_.size() + 1 > kRecordsMax || bytes_ + bytes > kBytesMax) {
    return false;
  }
  const size_t free_records = kRecordsMax - records_.size() - 1, free_bytes = kBytesMax - bytes_ - bytes;
  return share.records + 1 <= free_records / 2 && share.bytes + bytes <= free_bytes / 2;
}

void AuditBacklog::Push(Share& share, Record record) {
  const size_t bytes = record.bytes();
  ++share.records;
  share.bytes += bytes;
  bytes_ += bytes;
  records_.push_back(std::move(record));
}

bool AuditBacklog::Add(Record record) {
  if (shares_.size() >= kSharesMax && !record.payer.empty() && !shares_.contains(record.payer)) {
    record.payer = kOtherPayers;
  }
  const auto entry = shares_.try_emplace(record.payer).first;
  Share& share = entry->second;
  NoteLost(entry->first, share, record.unix_ns);
  if (share.lost == 0 && HasRoom(share, record.bytes())) {
    Push(share, std::move(record));
    return true;
  }
  ++lost_;
  if (share.lost++ > 0) {
    return true;
  }
  share.lost_since_ns = record.unix_ns;
  return false;
}

void AuditBacklog::NoteLost(const std::string& payer, Share& share, int64_t now_unix_ns) {
  if (share.lost == 0 || !HasRoom(share, kNoteBytes)) {
    return;
  }
  const uint64_t lost = std::exchange(share.lost, 0);
  lost_ -= lost;
  Push(share, {.payer = payer,
               .fields = describe_(payer, lost, share.lost_since_ns),
               .unix_ns = now_unix_ns,
               .stands_for = lost});
}

void AuditBacklog::NoteLost(int64_t now_unix_ns) {
  if (lost_ == 0) {
    return;
  }
  for (auto& [payer, share] : shares_) {
    NoteLost(payer, share, now_unix_ns);
  }
}

AuditBacklog::Record AuditBacklog::Pop() {
  Record record = std::move(records_.front());
  records_.pop_front();
  const size_t bytes = record.bytes();
  bytes_ -= bytes;
  const auto entry = shares_.find(record.payer);
  --entry->second.records;
  entry->second.bytes -= bytes;
  if (entry->second.records == 0 && entry->second.lost == 0) {
    shares_.erase(entry);
  }
  return record;
}

uint64_t AuditBacklog::LostOf(const std::string& payer) const {
  const auto found = shares_.find(payer);
  return found == shares_.end() ? 0 : found->second.lost;
}

bool AuditBacklog::IsHalfFull() const { return records_.size() > kRecordsMax / 2 || bytes_ > kBytesMax / 2; }

}  // namespace hpvm::server
