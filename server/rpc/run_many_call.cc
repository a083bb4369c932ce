// SPDX-License-Identifier: Apache-2.0
// RunMany: one call, one admission, and a run for each item.
//
// Items begin in order, a few under one hold of the core's mutex, and at most kRunsInFlight are in progress. Each
// takes its turn in the fair share like any run, so a batch gets no more of a device than the same number of calls.
// The first begin on the thread that read the call, the others in the tenant's turns. Results share a message while
// another one is being written. The runs borrow the request, so the call ends after all that have begun.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/batch_limits.h"
#include "server/core/state/run_log.h"
#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

constexpr char kPath[] = "/hpvm.v1.Hpvm/RunMany";
// A result larger than this has a message of its own.
constexpr uint64_t kSharedBytesMax = 256 * limits::kKiB;
// Nothing begins while this much waits to be written, unless nothing is in progress.
constexpr uint64_t kUnsentBytesMax = limits::kMiB;
// A smaller result is not counted as memory of requests and responses: at most kUnsentBytesMax of them wait, besides
// those in flight.
constexpr uint64_t kSmallResult = 16 * limits::kKiB;

class RunManyCall final : public grpc::ServerWriteReactor<v1::RunManyResponse>, public SelfOwned<RunManyCall> {
 public:
  RunManyCall(Core& core, Admission& admission, const v1::RunManyRequest& request)
      : core_(core), admission_(admission), request_(request), count_(request.items_size()) {}
  void Begin() {}

  void Start(const StatusOr<TenantRef>& tenant) {
    if (!tenant.ok()) {
      Finish(ToGrpc(tenant.status()));
      return;
    }
    tenant_ = *tenant;
    if (Outcome refused = Enter(); !refused.ok()) {
      core_.observer().On(events::Rejected{tenant_->name, "run", refused.status});
      Finish(ToGrpc(refused));
      return;
    }
    {
      std::lock_guard lock(mutex_);
      beginning_ = true;
    }
    BeginSome();
  }

  void OnWriteDone(bool ok) override {
    const Callback watched(kPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      unsent_bytes_ -= outgoing_.front().bytes;
      outgoing_.pop_front();
      if (!ok) {
        Fail(Cancelled("The client went away."));
      }
    }
    Pump();
  }

  // Also called when the call's deadline has passed.
  void OnCancel() override {
    const Callback watched(kPath, tenant_);
    std::map<int, uint64_t> running;
    {
      std::lock_guard lock(mutex_);
      Fail(Cancelled("The client went away."));
      running = running_;
    }
    for (const auto& [index, id] : running) {
      core_.runs().CancelRun(id);  // 0 while it is being begun; that code checks the failure next.
    }
    Pump();
  }

  void OnDone() override {
    ticket_.Release();
    ReleaseSelf();
  }

 private:
  // One message of the response.
  struct Answer {
    v1::RunManyResponse response;
    uint64_t bytes = 0;
    std::vector<Admission::Ticket> tickets;  // For its large results.
  };

  Outcome Enter() {
    if (count_ < 1 || count_ > kRunsPerCallMax) {
      return InvalidArgument("The call has " + std::to_string(count_) + " items; it needs 1 to " +
                             std::to_string(kRunsPerCallMax) + ".");
    }
    if (Outcome admitted = admission_.Admit(tenant_->name, request_.ByteSizeLong(), &ticket_); !admitted.ok()) {
      return admitted;
    }
    HPVMD_ASSIGN_OR_RETURN(batch_, core_.runs().BeginBatch(*tenant_, request_));
    return {};
  }

  void Fail(Outcome failure) {
    if (failure_.ok()) {
      failure_ = std::move(failure);
    }
  }

  // Takes the next items, as many as one hold of the core's mutex allows and there is room for. The caller holds the
  // mutex.
  std::vector<int> TakeItems() {
    const int free = kRunsInFlight - static_cast<int>(running_.size());
    const auto bindings_of = [this](int i) {
      const v1::RunManyRequest::Item& item = request_.items(i);
      return item.inputs_size() + item.outputs_size() + item.symbols_size();
    };
    int count = failure_.ok() ? CountAtOnce(next_, std::min(count_, next_ + free), bindings_of) : 0;
    if (count > 0 && !HasRoom(count)) {
      count = IsIdle() ? 1 : 0;  // One item always continues, whatever others hold.
    }
    std::vector<int> items;
    for (int i = 0; i < count; ++i) {
      // The call itself has been counted, as its first item.
      Outcome metered = next_ == 0 ? Outcome() : core_.quotas().meter().Begin(*tenant_, 0);
      if (metered.ok()) {
        running_.emplace(next_, 0);
        items.push_back(next_++);
      } else {
        core_.observer().On(events::Rejected{tenant_->name, "run", metered.status});
        AddResult(next_++, RunOutcome(std::move(metered)));
      }
    }
    return items;
  }

  // Called with `beginning_` set, which nobody else changes meanwhile.
  void BeginSome() {
    std::vector<int> items;
    {
      std::lock_guard lock(mutex_);
      items = TakeItems();
    }
    std::vector<uint64_t> ids;
    if (!items.empty()) {
      ids = core_.runs().RunItems(tenant_, batch_, items, [self = shared_from_this()](int index, RunOutcome outcome) {
        self->OnOutcome(index, std::move(outcome));
      });
    }
    bool cancel = false;
    {
      std::lock_guard lock(mutex_);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (const auto running = running_.find(items[i]); running != running_.end()) {
          running->second = ids[i];
        }
      }
      beginning_ = false;
      cancel = !failure_.ok();
    }
    for (size_t i = 0; cancel && i < ids.size(); ++i) {
      core_.runs().CancelRun(ids[i]);
    }
    Pump();
  }

  void OnOutcome(int index, RunOutcome outcome) {
    if (const Status sent = HPVMD_FAILPOINT("service.run_many.answer"); !sent.ok()) {
      outcome.outcome = sent;
    }
    {
      std::lock_guard lock(mutex_);
      running_.erase(index);
      if (failure_.ok()) {
        AddResult(index, std::move(outcome));
      }
    }
    Pump();
  }

  // The caller holds the mutex.
  void AddResult(int index, RunOutcome outcome) {
    v1::RunManyResponse::Result result;
    result.set_index(static_cast<uint32_t>(index));
    FillRun(outcome, request_.log(), result.mutable_run());
    if (!outcome.outcome.ok()) {
      *result.mutable_run()->mutable_error() = ToMessage(outcome.outcome);
    }
    const uint64_t bytes = result.ByteSizeLong();
    result_bytes_max_ = std::max(result_bytes_max_, bytes);
    const bool is_open = outgoing_.size() > (writing_ ? 1u : 0u);  // The last message is not being written.
    if (!is_open || outgoing_.back().bytes + bytes > kSharedBytesMax) {
      outgoing_.emplace_back();
    }
    Answer& answer = outgoing_.back();
    *answer.response.add_results() = std::move(result);
    answer.bytes += bytes;
    unsent_bytes_ += bytes;
    if (bytes >= kSmallResult) {
      answer.tickets.push_back(admission_.HoldAnyway(tenant_->name, bytes));
    }
  }

  bool IsIdle() const { return running_.empty() && outgoing_.empty(); }

  // Room for the results of the items in progress and `more` others, if they are like earlier ones.
  bool HasRoom(int more) const {
    const uint64_t results = running_.size() + static_cast<uint64_t>(more);
    return result_bytes_max_ < kSmallResult || admission_.HasRoom(tenant_->name, result_bytes_max_ * results);
  }

  // Returns true when a few more should begin: not one by one as each run ends, because every turn has a cost.
  bool IsTimeToBegin() const {
    const int left = count_ - next_;
    const int free = kRunsInFlight - static_cast<int>(running_.size());
    const int wanted = std::min(left, kItemsAtOnce);
    return !beginning_ && left > 0 && free >= wanted &&
           (IsIdle() || (unsent_bytes_ <= kUnsentBytesMax && HasRoom(wanted)));
  }

  // Starts whatever can continue. Thread-safe.
  void Pump() {
    std::unique_lock lock(mutex_);
    if (finished_) {
      return;
    }
    const bool has_failed = !failure_.ok();
    const bool start_write = !has_failed && !writing_ && !outgoing_.empty();
    const bool start_items = !has_failed && IsTimeToBegin();
    const bool is_over =
        running_.empty() && !beginning_ && !writing_ && (has_failed || (next_ == count_ && outgoing_.empty()));
    writing_ |= start_write;
    beginning_ |= start_items;
    finished_ = is_over;
    // In a deque the elements do not move.
    const v1::RunManyResponse* from = start_write ? &outgoing_.front().response : nullptr;
    lock.unlock();
    if (start_write) {
      StartWrite(from);
    }
    if (start_items) {
      core_.PostRead(tenant_->name, [self = shared_from_this()] {
        self->BeginSome();
        return FairQueue::Step::kDone;
      });
    }
    if (is_over) {
      ticket_.EndCall();
      Finish(ToGrpc(failure_));
    }
  }

  Core& core_;
  Admission& admission_;
  const v1::RunManyRequest& request_;  // Owned by gRPC, until OnDone.
  const int count_;
  TenantRef tenant_;
  Admission::Ticket ticket_;
  RunBatch batch_;  // Set once, before the first run.

  std::mutex mutex_;
  int next_ = 0;                     // The first item that has not begun.
  std::map<int, uint64_t> running_;  // Run ids by item; 0 while unknown.
  std::deque<Answer> outgoing_;      // The first is being written while `writing_`.
  uint64_t unsent_bytes_ = 0;        // Bytes in `outgoing_`.
  uint64_t result_bytes_max_ = 0;    // Largest result so far.
  Outcome failure_;
  bool beginning_ = false, writing_ = false, finished_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::RunManyResponse>* StartRunMany(Core& core, Admission& admission,
                                                            const StatusOr<TenantRef>& tenant,
                                                            const v1::RunManyRequest* request) {
  RunManyCall* call = RunManyCall::Create(core, admission, *request);
  call->Start(tenant);
  return call;
}

}  // namespace hpvm::server
