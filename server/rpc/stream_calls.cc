// SPDX-License-Identifier: Apache-2.0
// Stream and WatchJob: long-lived calls that several threads wake.
//
// Each call has a mutex under which it decides what to do next; the action (a read, a write, the end) follows after
// unlocking. At most one read, one write and one run are in progress at a time, so no other thread can start the same
// action in between.
#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/failpoint.h"
#include "server/core/state/request_options.h"
#include "server/core/state/run_log.h"
#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kWindowDefault = 4, kWindowMax = 64;
constexpr char kStreamPath[] = "/hpvm.v1.Hpvm/Stream", kWatchPath[] = "/hpvm.v1.Hpvm/WatchJob";

class StreamCall final : public grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>,
                         public SelfOwned<StreamCall> {
 public:
  StreamCall(Core& core, Admission& admission, StatusOr<TenantRef> tenant)
      : core_(core), admission_(admission), tenant_(std::move(tenant)) {}

  void Begin() {
    if (!tenant_.ok()) {
      failure_ = tenant_.status();
      Pump();
      return;
    }
    reading_ = true;
    StartRead(incoming_.get());
  }

  void OnReadDone(bool ok) override {
    const Callback watched(kStreamPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      reading_ = false;
      if (ok) {
        Take();
      } else {
        input_ended_ = true;  // Half-closed, or gone: OnCancel tells which.
      }
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    const Callback watched(kStreamPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      outgoing_.pop_front();
      if (!ok) {
        Fail(Cancelled("The client went away."));
      }
    }
    Pump();
  }

  void OnCancel() override {
    const Callback watched(kStreamPath, tenant_);
    uint64_t run = 0;
    {
      std::lock_guard lock(mutex_);
      Fail(Cancelled("The client went away."));
      run = run_id_;
    }
    core_.runs().CancelRun(run);
    Pump();
  }

  void OnDone() override { ReleaseSelf(); }

 private:
  void Fail(Outcome failure) {
    if (failure_.ok()) {
      failure_ = std::move(failure);
    }
    items_.clear();
  }

  // Dispatches the message that arrived.
  void Take() {
    if (Outcome metered = core_.quotas().meter().More(**tenant_, incoming_->ByteSizeLong()); !metered.ok()) {
      Fail(std::move(metered));
      return;
    }
    switch (incoming_->message_case()) {
      case v1::StreamRequest::kOpen:
        if (preparation_ != nullptr) {
          Fail(InvalidArgument("The stream is open already."));
        } else {
          Open();
        }
        break;
      case v1::StreamRequest::kItem:
        if (preparation_ == nullptr) {
          Fail(InvalidArgument("The stream's first message is not Open."));
        } else {
          TakeItem();
        }
        break;
      case v1::StreamRequest::kEnd:
        input_ended_ = true;
        break;
      case v1::StreamRequest::MESSAGE_NOT_SET:
        Fail(InvalidArgument("A message of the stream is neither Open, Item nor End."));
        break;
    }
  }

  // An item is in memory until it has run, like a call's request. An item that was read ahead is there anyway: no
  // further one is read while there is no room.
  void TakeItem() {
    Item item{std::move(incoming_), {}};
    incoming_ = std::make_unique<v1::StreamRequest>();
    const uint64_t bytes = item.request->ByteSizeLong();
    item_bytes_max_ = std::max(item_bytes_max_, bytes);
    if (!IsIdle()) {
      item.ticket = admission_.HoldAnyway((*tenant_)->name, bytes);
    } else if (Outcome held = admission_.Hold((*tenant_)->name, bytes, &item.ticket); !held.ok()) {
      Fail(std::move(held));
      return;
    }
    items_.push_back(std::move(item));
  }

  bool IsIdle() const { return items_.empty() && running_.request == nullptr && outgoing_.empty(); }

  void Open() {
    open_ = incoming_->open();
    window_ = open_.window() == 0 ? kWindowDefault : open_.window();
    if (window_ > kWindowMax) {
      Fail(InvalidArgument("The stream's window (" + std::to_string(window_) + ") is larger than the limit (64)."));
      return;
    }
    if (const Status valid = CheckRequestOptions(open_.options(), /*key_honoured=*/false); !valid.ok()) {
      Fail(valid);
      return;
    }
    StatusOr<PreparationRef> found = core_.graphs().FindHandle(**tenant_, open_.handle());
    if (!found.ok()) {
      Fail(found.status());
      return;
    }
    preparation_ = *std::move(found);
    v1::StreamResponse& response = outgoing_.emplace_back().response;
    *response.mutable_opened()->mutable_summary() = preparation_->summary;
    response.mutable_opened()->set_window(window_);
  }

  void OnOutcome(RunOutcome outcome) {
    {
      std::lock_guard lock(mutex_);
      running_ = {};
      run_id_ = 0;
      if (!outcome.outcome.ok()) {
        Fail(std::move(outcome.outcome));
      } else if (failure_.ok()) {
        Answer& answer = outgoing_.emplace_back();
        v1::StreamResponse::Result& result = *answer.response.mutable_result();
        result.set_index(done_items_++);
        FillOutputs(outcome, result.mutable_outputs());
        *result.mutable_timing() = outcome.timing();
        if (!IsEmpty(outcome.reply.done.log())) {
          *result.mutable_log() = std::move(*outcome.reply.done.mutable_log());
        }
        const uint64_t bytes = result.ByteSizeLong();
        result_bytes_max_ = std::max(result_bytes_max_, bytes);
        answer.ticket = admission_.HoldAnyway((*tenant_)->name, bytes);
      }
    }
    Pump();
  }

  // Starts whatever can continue. Thread-safe.
  void Pump() {
    std::unique_lock lock(mutex_);
    if (finished_) {
      return;
    }
    // Nothing may be in progress when the call ends, except a read, which ends with it.
    if (!failure_.ok()) {
      if (running_.request == nullptr && !writing_) {
        finished_ = true;
        const grpc::Status status = ToGrpc(failure_);
        lock.unlock();
        Finish(status);
      }
      return;
    }
    if (input_ended_ && preparation_ == nullptr) {
      failure_ = InvalidArgument("The stream ended before it was opened.");
      finished_ = true;
      lock.unlock();
      Finish(ToGrpc(failure_));
      return;
    }
    if (input_ended_ && items_.empty() && running_.request == nullptr && !end_queued_) {
      end_queued_ = true;
      outgoing_.emplace_back().response.mutable_end()->set_items(done_items_);
    }
    // One item at a time always continues, whatever others hold; items that would wait behind it need room.
    const auto has_room = [this](uint64_t bytes) { return admission_.HasRoom((*tenant_)->name, bytes); };
    const bool start_read =
        !reading_ && !input_ended_ && items_.size() < window_ && (IsIdle() || has_room(item_bytes_max_));
    const bool start_run = running_.request == nullptr && !items_.empty() && outgoing_.size() <= window_ &&
                           (outgoing_.empty() || has_room(result_bytes_max_));
    const bool start_write = !writing_ && !outgoing_.empty();
    const bool finish = end_queued_ && outgoing_.empty();
    if (finish) {
      finished_ = true;
    }
    reading_ |= start_read;
    writing_ |= start_write;
    if (start_run) {
      running_ = std::move(items_.front());
      items_.pop_front();
    }
    v1::StreamRequest* into = incoming_.get();
    // In a deque the elements do not move.
    const v1::StreamResponse* from = start_write ? &outgoing_.front().response : nullptr;
    lock.unlock();
    if (start_read) {
      StartRead(into);
    }
    if (start_write) {
      StartWrite(from);
    }
    if (start_run) {
      Run();
    }
    if (finish) {
      Finish(grpc::Status::OK);
    }
  }

  void Run() {
    const v1::StreamRequest* request = running_.request.get();  // Until OnOutcome, which is called once.
    const uint64_t id =
        core_.runs().RunItem(*tenant_, preparation_, {&request->item(), &open_},
                             [self = shared_from_this()](RunOutcome outcome) { self->OnOutcome(std::move(outcome)); });
    bool cancel = false;
    {
      std::lock_guard lock(mutex_);
      if (running_.request.get() == request) {
        run_id_ = id;
        cancel = !failure_.ok();
      }
    }
    if (cancel) {
      core_.runs().CancelRun(id);
    }
  }

  struct Item {
    std::unique_ptr<v1::StreamRequest> request;
    Admission::Ticket ticket;
  };
  struct Answer {
    v1::StreamResponse response;
    Admission::Ticket ticket;
  };

  Core& core_;
  Admission& admission_;
  const StatusOr<TenantRef> tenant_;
  std::mutex mutex_;
  std::unique_ptr<v1::StreamRequest> incoming_ = std::make_unique<v1::StreamRequest>();
  v1::StreamRequest::Open open_;  // Set once, before the first run.
  PreparationRef preparation_;
  uint32_t window_ = 1;
  std::deque<Item> items_;  // Accepted, not running.
  Item running_;
  uint64_t item_bytes_max_ = 0, result_bytes_max_ = 0;  // Largest so far.
  uint64_t run_id_ = 0, done_items_ = 0;
  std::deque<Answer> outgoing_;  // The first is being written while `writing_`.
  Outcome failure_;
  bool reading_ = false, writing_ = false, input_ended_ = false, end_queued_ = false, finished_ = false;
};

class WatchCall final : public grpc::ServerWriteReactor<v1::JobEvent>, public SelfOwned<WatchCall> {
 public:
  WatchCall(Core& core, StatusOr<TenantRef> tenant, const v1::WatchJobRequest& request)
      : core_(core),
        tenant_(std::move(tenant)),
        id_(request.job_id()),
        after_(request.after_sequence()),
        marks_past_(request.marks_past()),
        options_valid_(CheckRequestOptions(request.options(), /*key_honoured=*/false)) {}

  void Begin() {
    const Status status = tenant_.ok() ? options_valid_ : tenant_.status();
    std::unique_lock lock(mutex_);
    if (!status.ok()) {
      End(lock, status);
    } else if (core_.job_reader().IsAtHand(**tenant_, id_)) {
      Open(lock);
    } else {
      InTurn(&WatchCall::Open);
    }
  }

  void OnWriteDone(bool ok) override {
    const Callback watched(kWatchPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      events_.pop_front();
      gone_ |= !ok;
    }
    Pump();
  }

  void OnCancel() override {
    const Callback watched(kWatchPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      gone_ = true;
    }
    Pump();
  }

  void OnDone() override {
    const Callback watched(kWatchPath, tenant_);
    if (key_.has_value()) {
      core_.job_reader().Unwatch(**tenant_, id_, *key_);
    }
    ReleaseSelf();
  }

 private:
  static constexpr size_t kBatch = 64;

  using Lock = std::unique_lock<std::mutex>;

  // Performs a step that reads the store in the tenant's turn, on a thread for that. The caller holds the mutex, and
  // so does the step.
  void InTurn(void (WatchCall::*step)(Lock&)) {
    reading_ = true;
    core_.PostRead((*tenant_)->name, [self = shared_from_this(), step] {
      Lock lock(self->mutex_);
      self->reading_ = false;
      (self.get()->*step)(lock);
      return FairQueue::Step::kDone;
    });
  }

  void Open(Lock& lock) {
    // Weak, because the job must not keep a finished call alive.
    StatusOr<uint64_t> key = core_.job_reader().WatchJob(
        **tenant_, id_,
        [weak = weak_from_this()] {
          if (const auto self = weak.lock()) {
            self->Pump();
          }
        },
        &past_);
    if (!key.ok()) {
      End(lock, key.status());
      return;
    }
    key_ = *key;
    GoOn(lock);
  }

  void Pump() {
    Lock lock(mutex_);
    if (finished_ || writing_ || reading_) {
      return;  // The end of that step checks again.
    }
    if (!gone_ && events_.empty() && !last_ && !core_.job_reader().IsAtHand(**tenant_, id_)) {
      InTurn(&WatchCall::GoOn);
    } else {
      GoOn(lock);
    }
  }

  void GoOn(Lock& lock) {
    if (gone_) {
      End(lock, Cancelled("The client went away."));
      return;
    }
    if (events_.empty() && !last_) {
      StatusOr<JobReader::EventBatch> batch = core_.job_reader().ReadEvents(**tenant_, id_, after_, kBatch);
      if (const Status sent = HPVMD_FAILPOINT("service.watch.send"); !sent.ok()) {
        batch = sent;
      }
      if (!batch.ok()) {
        End(lock, batch.status());  // The job expired while it was watched.
        return;
      }
      std::move(batch->events.begin(), batch->events.end(), std::back_inserter(events_));
      after_ = events_.empty() ? after_ : events_.back().sequence();
      last_ = batch->last;
      if (marks_past_ && (after_ >= past_ || last_)) {
        marks_past_ = false;
        v1::JobEvent& mark = events_.emplace_back();
        mark.set_sequence(after_);
        mark.set_past_ends(true);
      }
    }
    if (!events_.empty()) {
      writing_ = true;
      const v1::JobEvent* event = &events_.front();
      lock.unlock();
      StartWrite(event);
    } else if (last_) {
      End(lock, Outcome());
    }
  }

  void End(Lock& lock, const Outcome& ended) {
    finished_ = true;
    lock.unlock();
    Finish(ToGrpc(ended));
  }

  Core& core_;
  const StatusOr<TenantRef> tenant_;
  const std::string id_;
  std::mutex mutex_;
  std::deque<v1::JobEvent> events_;  // The first is being written while `writing_`.
  uint64_t after_ = 0;
  uint64_t past_ = 0;  // Number of the last event before the watch; UINT64_MAX when all are past.
  bool marks_past_;    // The end of the past has still to be marked.
  std::optional<uint64_t> key_;
  const Status options_valid_;
  bool writing_ = false, reading_ = false, last_ = false, gone_ = false, finished_ = false;
};

}  // namespace

grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>* StartStream(Core& core, Admission& admission,
                                                                            StatusOr<TenantRef> tenant) {
  return StreamCall::Create(core, admission, std::move(tenant));
}

grpc::ServerWriteReactor<v1::JobEvent>* StartWatch(Core& core, StatusOr<TenantRef> tenant,
                                                   const v1::WatchJobRequest* request) {
  return WatchCall::Create(core, std::move(tenant), *request);
}

}  // namespace hpvm::server
