// SPDX-License-Identifier: Apache-2.0
#include "client/async_runs.h"

#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "client/run_call.h"

#include "base/clock.h"

namespace hpvm {

// One is a single run, owned jointly by the list of runs and by the callbacks that are pending for it.
class [[gnu::visibility("hidden")]] Client::AsyncRuns::One : public std::enable_shared_from_this<One> {
 public:
  One(AsyncRuns & owner, uint64_t id, const std::string& handle, std::map<std::string, Tensor> inputs,
      const RunOptions& options, OnOutcome on_outcome)
      : owner_(owner),
        id_(id),
        handle_(handle),
        inputs_(std::move(inputs)),
        options_(options),
        on_outcome_(std::move(on_outcome)),
        state_(std::make_shared<Pending<RunOutcome>::State>()) {
    if (options.call.cancel.has_value()) {
      on_callers_stop_.emplace(options.call.cancel->token(), Trigger{state_->cancellation});
    }
    options_.call.cancel = state_->cancellation;
  }

  const std::shared_ptr<Pending<RunOutcome>::State>& state() const { return state_; }
  uint64_t id() const { return id_; }

  void Start() {
    Client::Connection& connection = *owner_.client_.connection_;
    call_.emplace(owner_.client_, handle_, inputs_, options_);
    StatusOr<v1::RunRequest> bound = call_->Bind();
    if (!bound.ok()) {
      Fail(bound.status());
      return;
    }
    request_ = *std::move(bound);
    *request_.mutable_options() = options_.call.request;
    request_.mutable_options()->set_errors_in_body(true);
    on_stop_.emplace(state_->cancellation.token(), CancelCall{weak_from_this()});
    if (const auto cancel = connection.ring->Start(
            request_, options_.call, [self = shared_from_this()](StatusOr<std::optional<v1::RunResponse>> answer) {
              if (!answer.ok()) {
                self->OnAnswer(answer.status());
              } else if (answer->has_value()) {
                self->OnAnswer(**std::move(answer));
              } else {
                self->owner_.Post([self] { self->SendByGrpc(); });
              }
            })) {
      Cancel(*cancel);
    } else {
      SendByGrpc();
    }
  }

  // Sends the run over gRPC, once its turn on the connection has come.
  void SendNow() {
    Client::Connection& connection = *owner_.client_.connection_;
    std::string secret;
    const Duration left = deadline_ == kNever ? kNever : deadline_ - RealClock().Now();
    const Status is_signed = connection.Sign(context_, std::min(left, connection.options.connect_timeout), &secret);
    if (!is_signed.ok()) {
      owner_.Leave(id_);
      Fail(is_signed);
      return;
    }
    if (left != kNever) {
      context_.set_deadline(std::chrono::system_clock::now() + left);
    }
    connection.stub->async()->Run(&context_, &request_, &response_,
                                  [self = shared_from_this()](const grpc::Status& status) {
                                    self->owner_.Leave(self->id_);
                                    if (status.ok()) {
                                      self->OnAnswer(std::move(self->response_));
                                    } else {
                                      self->OnAnswer(FromGrpc(status));
                                    }
                                  });
  }

  void BreakOff() { context_.TryCancel(); }

  // Ends a run that was never sent over gRPC.
  void Drop(const Status& why) { OnAnswer(why); }

 private:
  void SendByGrpc() {
    if (options_.call.timeout != kNever) {
      deadline_ = RealClock().Now() + options_.call.timeout;
    }
    if (owner_.Enter(id_, deadline_)) {
      SendNow();
    }
    Cancel([self = weak_from_this()] {
      // gRPC may answer within TryCancel, so the run, which owns the context, must live until TryCancel returns.
      if (const std::shared_ptr<One> held = self.lock()) {
        held->owner_.BreakOff(*held);
      }
    });
  }

  struct Trigger {
    Cancellation cancellation;
    void operator()() { cancellation.Cancel(); }
  };
  struct CancelCall {
    std::weak_ptr<One> one;
    void operator()() {
      if (const std::shared_ptr<One> held = one.lock()) {
        held->Cancel(nullptr);
      }
    }
  };

  // Called once by the sender of the run, with the function that cancels it, and once by the cancellation, with null,
  // in either order.
  void Cancel(std::function<void()> cancel) {
    {
      const std::lock_guard lock(mutex_);
      if (is_complete_) {
        return;
      }
      if (cancel != nullptr && !is_cancelled_) {
        cancel_ = std::move(cancel);
        return;
      }
      is_cancelled_ = true;
      if (cancel == nullptr) {
        cancel = std::exchange(cancel_, nullptr);
      }
    }
    if (cancel != nullptr) {
      cancel();
    }
  }

  // Ends a run of which nothing was sent.
  void Fail(const Status& why) {
    if (on_outcome_) {
      owner_.Post([self = shared_from_this(), why] { self->Complete(why); });
    } else {
      Complete(why);
    }
  }

  // Runs on a shared thread, gRPC's or a ring's, and therefore must not block.
  void OnAnswer(StatusOr<v1::RunResponse> answer) {
    const Status failure = !answer.ok()        ? answer.status()
                           : answer->has_log() ? absl::OkStatus()
                                               : FromProto(answer->error());
    if (failure.ok()) {
      answer_ = std::move(answer);
    } else if (absl::IsCancelled(failure) && state_->cancellation.IsCancelled()) {
      answer_ = CancelledByCaller();
    } else {
      answer_ = failure;
    }
    if (!on_outcome_ && call_->IsComplete(answer_)) {
      Complete(call_->Finish(std::move(answer_)));
      return;
    }
    owner_.Post([self = shared_from_this()] { self->DoTheRest(); });
  }

  void DoTheRest() {
    if (absl::IsUnauthenticated(answer_.status())) {
      answer_ = owner_.client_.Run(request_, options_.call);  // Client::Run looks for other credentials.
    }
    Complete(call_->Finish(std::move(answer_)));
  }

  void Complete(StatusOr<RunOutcome> outcome) {
    on_stop_.reset();
    {
      const std::lock_guard lock(mutex_);
      is_complete_ = true;
    }
    cancel_ = nullptr;  // No other thread uses cancel_ once is_complete_ is set.
    on_callers_stop_.reset();
    call_.reset();
    if (on_outcome_) {
      std::exchange(on_outcome_, nullptr)(outcome);
    }
    state_->Finish(std::move(outcome));
    owner_.Ended(id_);
  }

  AsyncRuns& owner_;
  const uint64_t id_;
  const std::string handle_;
  const std::map<std::string, Tensor> inputs_;
  RunOptions options_;
  OnOutcome on_outcome_;
  const std::shared_ptr<Pending<RunOutcome>::State> state_;
  Time deadline_ = kNever;
  std::optional<RunCall> call_;
  v1::RunRequest request_;
  v1::RunResponse response_;
  StatusOr<v1::RunResponse> answer_ = absl::UnknownError("");
  grpc::ClientContext context_;
  std::mutex mutex_;
  bool is_complete_ = false, is_cancelled_ = false;  // Guarded by mutex_.
  std::function<void()> cancel_;                     // Guarded by mutex_ until the run is complete.
  std::optional<std::stop_callback<Trigger>> on_callers_stop_;
  std::optional<std::stop_callback<CancelCall>> on_stop_;
};

Client::AsyncRuns::~AsyncRuns() {
  std::unique_lock lock(mutex_);
  std::vector<std::shared_ptr<One>> runs;
  for (const auto& [id, run] : runs_) {
    runs.push_back(run);
  }
  lock.unlock();
  for (const std::shared_ptr<One>& run : runs) {
    run->state()->cancellation.Cancel();
  }
  lock.lock();
  changed_.wait(lock, [this] { return runs_.empty(); });
  stops_ = true;
  changed_.notify_all();
  lock.unlock();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Pending<RunOutcome> Client::AsyncRuns::Start(const std::string& handle, std::map<std::string, Tensor> inputs,
                                             const RunOptions& options, OnOutcome on_outcome) {
  std::unique_lock lock(mutex_);
  const uint64_t id = next_id_++;
  lock.unlock();
  const auto one = std::make_shared<One>(*this, id, handle, std::move(inputs), options, std::move(on_outcome));
  lock.lock();
  runs_[id] = one;
  lock.unlock();
  one->Start();
  return Pending<RunOutcome>(one->state());
}

bool Client::AsyncRuns::Enter(uint64_t id, Time deadline) {
  const std::lock_guard lock(mutex_);
  const bool is_sent = window_.Enter(id, deadline);
  if (!is_sent && deadline != kNever) {
    WakeThread();
  }
  return is_sent;
}

void Client::AsyncRuns::Leave(uint64_t id) {
  const std::lock_guard lock(mutex_);
  window_.Leave(id);
  if (window_.HasWaiting()) {
    WakeThread();
  }
}

void Client::AsyncRuns::BreakOff(One& one) {
  std::unique_lock lock(mutex_);
  const SendWindow::Cancelled cancelled = window_.Cancel(one.id(), RealClock().Now());
  if (cancelled == SendWindow::Cancelled::kLater) {
    WakeThread();
  }
  lock.unlock();
  if (cancelled == SendWindow::Cancelled::kNow) {
    one.BreakOff();
  } else if (cancelled == SendWindow::Cancelled::kUnsent) {
    one.Drop(CancelledByCaller());
  }
}

void Client::AsyncRuns::Post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  WakeThread();
}

void Client::AsyncRuns::WakeThread() {
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Loop(); });
  }
  changed_.notify_all();
}

void Client::AsyncRuns::Loop() {
  while (const std::function<void()> work = NextWork()) {
    work();
  }
}

std::function<void()> Client::AsyncRuns::NextWork() {
  std::unique_lock lock(mutex_);
  while (true) {
    // Work that the window has due comes first: it is short, and other runs wait for it.
    const Time now = RealClock().Now();
    if (const std::optional<SendWindow::Due> due = window_.Next(now); due.has_value()) {
      return DueWork(*due);
    }
    if (!work_.empty()) {
      std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      return work;
    }
    if (stops_) {
      return nullptr;
    }
    if (const Time wakes = window_.Wakes(now); wakes == kNever) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, wakes - now);
    }
  }
}

std::function<void()> Client::AsyncRuns::DueWork(const SendWindow::Due& due) {
  const auto found = runs_.find(due.call);
  if (found == runs_.end()) {
    window_.Leave(due.call);
    return [] {};  // The run has just ended.
  }
  switch (due.what) {
    case SendWindow::What::kSend:
      return [one = found->second] { one->SendNow(); };
    case SendWindow::What::kReset:
      return [one = found->second] { one->BreakOff(); };
    case SendWindow::What::kExpire:
      return [one = found->second] { one->Drop(DeadlineExceeded("The call's timeout passed.")); };
  }
  return [] {};
}

void Client::AsyncRuns::Ended(uint64_t id) {
  const std::lock_guard lock(mutex_);
  runs_.erase(id);
  changed_.notify_all();
}

Pending<RunOutcome> Client::RunAsync(const std::string& handle, std::map<std::string, Tensor> inputs,
                                     const RunOptions& options, OnOutcome on_outcome) {
  return async_->Start(handle, std::move(inputs), options, std::move(on_outcome));
}

}  // namespace hpvm
