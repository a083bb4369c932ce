// SPDX-License-Identifier: Apache-2.0
// What a call that was begun will give.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_PENDING_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_PENDING_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "hpvm/cancellation.h"
#include "hpvm/types.h"

namespace hpvm {

// Any thread. Movable. When it goes, the call is cancelled; Detach lets the call go on.
template <typename T>
class Pending {
 public:
  // The side that makes the call: shared by it and by the handle, whichever goes last.
  struct State {
    // Once.
    void Finish(StatusOr<T> value) {
      const std::lock_guard lock(mutex);
      result = std::move(value);
      is_done = true;
      done.notify_all();
    }

    std::mutex mutex;
    std::condition_variable done;
    bool is_done = false;               // Guarded by mutex, as below.
    std::optional<StatusOr<T>> result;  // Given away by Wait.
    Cancellation cancellation;
  };

  Pending() = default;  // Of no call.
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~Pending() { Cancel(); }
  Pending(Pending&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    if (this != &other) {
      Cancel();
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }

  // Whether it has ended, by itself or cancelled; Wait does not block then.
  bool IsDone() const { return WaitFor(Duration(0)); }
  // Waits so long at most.
  bool WaitFor(Duration within) const {
    if (state_ == nullptr) {
      return true;
    }
    std::unique_lock lock(state_->mutex);
    // A wait that is never over in practice, and whose end no clock passes.
    const Duration bounded = std::min<Duration>(within, std::chrono::hours(24 * 365));
    return state_->done.wait_for(lock, bounded, [this] { return state_->is_done; });
  }
  // Waits for the end, and gives the result away. Once: kFailedPrecondition afterwards.
  StatusOr<T> Wait() {
    if (state_ == nullptr) {
      return absl::FailedPreconditionError("There is no call to wait for.");
    }
    std::unique_lock lock(state_->mutex);
    state_->done.wait(lock, [this] { return state_->is_done; });
    if (!state_->result.has_value()) {
      return absl::FailedPreconditionError("The call's result was given away already.");
    }
    StatusOr<T> value = *std::move(state_->result);
    state_->result.reset();
    return value;
  }
  // The call ends with kCancelled, unless it has ended. Returns at once.
  void Cancel() {
    if (state_ != nullptr) {
      state_->cancellation.Cancel();
    }
  }
  // The call goes on without this, and its result is dropped.
  void Detach() { state_ = nullptr; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_PENDING_H_
