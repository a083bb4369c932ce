// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/audit_read.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

constexpr size_t kBatchBytes = 256 * 1024;
std::atomic<int> readers{0};

// Text that each line of this tenant contains. Quotes within values are escaped, so no value can look like it.
std::string MarkOf(const std::string& tenant) { return ",\"tenant\":\"" + tenant + "\","; }

class ReadAuditCall final : public grpc::ServerWriteReactor<v1::ReadAuditResponse>, public SelfOwned<ReadAuditCall> {
 public:
  ReadAuditCall(AuditLog& audit, AuditQuery query, const Status& status)
      : audit_(audit),
        query_(std::move(query)),
        mark_(query_.tenant.empty() ? "" : MarkOf(query_.tenant)),
        refusal_(status) {}

  void Begin() {
    if (refusal_.ok() && readers.fetch_add(1) >= kAuditReadersMax) {
      readers.fetch_sub(1);
      refusal_ = ResourceExhausted("The audit is being read " + std::to_string(kAuditReadersMax) +
                                   " times already, which is the limit.");
    }
    if (!refusal_.ok()) {
      Finish(ToGrpc(refusal_));
      return;
    }
    std::thread([self = shared_from_this()] { self->Read(); }).detach();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    gone_ |= !ok;
    changed_.notify_one();
  }
  void OnCancel() override {
    std::lock_guard lock(mutex_);
    gone_ = true;
    changed_.notify_one();
  }
  void OnDone() override { ReleaseSelf(); }

 private:
  // Runs on the call's thread; its last action is Finish, after which the object may be gone.
  void Read() {
    uint64_t count = 0;
    Status status = audit_.Read(query_.from_sequence, [&](std::string_view line) {
      if (!mark_.empty() && line.find(mark_) == std::string_view::npos) {
        return !IsGone();
      }
      batch_.add_records(line.data(), line.size());
      batch_bytes_ += line.size();
      ++count;
      const bool is_last = query_.records_max != 0 && count >= query_.records_max;
      return (batch_bytes_ < kBatchBytes || Send()) && !is_last;
    });
    if (status.ok() && batch_.records_size() > 0) {
      Send();
    }
    AwaitWrite();
    if (IsGone()) {
      status = Cancelled("The client went away.");
    }
    readers.fetch_sub(1);
    Finish(ToGrpc(status));
  }

  // Returns false when the client went away.
  bool Send() {
    AwaitWrite();
    if (IsGone()) {
      return false;
    }
    sending_ = std::exchange(batch_, {});
    batch_bytes_ = 0;
    {
      std::lock_guard lock(mutex_);
      writing_ = true;
    }
    StartWrite(&sending_);
    return true;
  }
  void AwaitWrite() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !writing_; });
  }
  bool IsGone() {
    std::lock_guard lock(mutex_);
    return gone_;
  }

  AuditLog& audit_;
  const AuditQuery query_;
  const std::string mark_;
  Status refusal_;
  v1::ReadAuditResponse batch_, sending_;  // batch_ is the thread's; `sending_` is gRPC's while `writing_`.
  size_t batch_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool writing_ = false, gone_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::ReadAuditResponse>* StartReadAudit(AuditLog& audit, AuditQuery query,
                                                                const Status& status) {
  return ReadAuditCall::Create(audit, std::move(query), status);
}

}  // namespace hpvm::server
