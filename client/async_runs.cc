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

// One run. Shared by the list of runs and by whoever calls it back.
class [[gnu::visibility("hidden")]] Client::AsyncRuns::One : public std::enable_shared_from_this<One> {
 public:
  One(AsyncRuns & owner, const std::string& handle, std::map<std::string, Tensor> inputs, const RunOptions& options,
      OnOutcome on_outcome)
      : owner_(owner),
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

 private:
  void SendByGrpc() {
    Client::Connection& connection = *owner_.client_.connection_;
    std::string secret;
    const Duration within = std::min(options_.call.timeout, connection.options.connect_timeout);
    if (const Status is_signed = connection.Sign(context_, within, &secret); !is_signed.ok()) {
      Fail(is_signed);
      return;
    }
    if (options_.call.timeout != kNever) {
      context_.set_deadline(std::chrono::system_clock::now() + options_.call.timeout);
    }
    connection.stub->async()->Run(&context_, &request_, &response_,
                                  [self = shared_from_this()](const grpc::Status& status) {
                                    if (status.ok()) {
                                      self->OnAnswer(std::move(self->response_));
                                    } else {
                                      self->OnAnswer(FromGrpc(status));
                                    }
                                  });
    Cancel([self = weak_from_this()] {
      // gRPC may answer within TryCancel, and what the context belongs to has to stay until that returns.
      if (const std::shared_ptr<One> held = self.lock()) {
        held->context_.TryCancel();
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

  // Once by whoever has sent the run, with what cancels it, and once by the cancellation, in either order.
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

  // Nothing was sent.
  void Fail(const Status& why) {
    if (on_outcome_) {
      owner_.Post([self = shared_from_this(), why] { self->Complete(why); });
    } else {
      Complete(why);
    }
  }

  // On a thread that others need, gRPC's or a ring's: nothing that waits is done there.
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
      answer_ = owner_.client_.Run(request_, options_.call);  // It looks for other credentials.
    }
    Complete(call_->Finish(std::move(answer_)));
  }

  void Complete(StatusOr<RunOutcome> outcome) {
    on_stop_.reset();
    {
      const std::lock_guard lock(mutex_);
      is_complete_ = true;
    }
    cancel_ = nullptr;  // Nobody else looks at it any more.
    on_callers_stop_.reset();
    call_.reset();
    if (on_outcome_) {
      std::exchange(on_outcome_, nullptr)(outcome);
    }
    state_->Finish(std::move(outcome));
    owner_.Ended(shared_from_this());
  }

  AsyncRuns& owner_;
  const std::string handle_;
  const std::map<std::string, Tensor> inputs_;
  RunOptions options_;
  OnOutcome on_outcome_;
  const std::shared_ptr<Pending<RunOutcome>::State> state_;
  std::optional<RunCall> call_;
  v1::RunRequest request_;
  v1::RunResponse response_;
  StatusOr<v1::RunResponse> answer_ = absl::UnknownError("");
  grpc::ClientContext context_;
  std::mutex mutex_;
  bool is_complete_ = false, is_cancelled_ = false;  // Guarded by mutex_, as below.
  std::function<void()> cancel_;
  std::optional<std::stop_callback<Trigger>> on_callers_stop_;
  std::optional<std::stop_callback<CancelCall>> on_stop_;
};

Client::AsyncRuns::~AsyncRuns() {
  std::unique_lock lock(mutex_);
  const std::vector<std::shared_ptr<One>> runs(runs_.begin(), runs_.end());
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
  const auto one = std::make_shared<One>(*this, handle, std::move(inputs), options, std::move(on_outcome));
  {
    const std::lock_guard lock(mutex_);
    runs_.insert(one);
  }
  one->Start();
  return Pending<RunOutcome>(one->state());
}

void Client::AsyncRuns::Post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Loop(); });
  }
  changed_.notify_all();
}

void Client::AsyncRuns::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || !work_.empty(); });
    if (work_.empty()) {
      return;
    }
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

void Client::AsyncRuns::Ended(const std::shared_ptr<One>& one) {
  const std::lock_guard lock(mutex_);
  runs_.erase(one);
  changed_.notify_all();
}

Pending<RunOutcome> Client::RunAsync(const std::string& handle, std::map<std::string, Tensor> inputs,
                                     const RunOptions& options, OnOutcome on_outcome) {
  return async_->Start(handle, std::move(inputs), options, std::move(on_outcome));
}

}  // namespace hpvm
