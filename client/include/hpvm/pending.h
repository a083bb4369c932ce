// SPDX-License-Identifier: Apache-2.0
// The future result of a call.
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

// Pending is the future result of a call in progress. Thread-safe. Movable. Destroying it cancels the call; Detach
// lets the call continue.
template <typename T>
class Pending {
 public:
  // The state shared by the side that makes the call and the handle; the last owner deletes it.
  struct State {
    // Called once.
    void Finish(StatusOr<T> value) {
      const std::lock_guard lock(mutex);
      result = std::move(value);
      is_done = true;
      done.notify_all();
    }

    std::mutex mutex;
    std::condition_variable done;
    bool is_done = false;               // This and the following members are guarded by `mutex`.
    std::optional<StatusOr<T>> result;  // Moved out by Wait.
    Cancellation cancellation;
  };

  Pending() = default;  // Stands for no call.
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

  // Returns true when the call has ended, by itself or by cancellation; Wait does not block then.
  bool IsDone() const { return WaitFor(Duration(0)); }
  // Waits at most `within` and returns whether the call has ended.
  bool WaitFor(Duration within) const {
    if (state_ == nullptr) {
      return true;
    }
    std::unique_lock lock(state_->mutex);
    // Bounds the wait to a year, in practice for ever, so that the clock cannot overflow.
    const Duration bounded = std::min<Duration>(within, std::chrono::hours(24 * 365));
    return state_->done.wait_for(lock, bounded, [this] { return state_->is_done; });
  }
  // Waits for the end and moves the result out. Later calls return kFailedPrecondition.
  StatusOr<T> Wait() {
    if (state_ == nullptr) {
      return absl::FailedPreconditionError("There is no call to wait for.");
    }
    std::unique_lock lock(state_->mutex);
    state_->done.wait(lock, [this] { return state_->is_done; });
    if (!state_->result.has_value()) {
      return absl::FailedPreconditionError("The call's result was already taken.");
    }
    StatusOr<T> value = *std::move(state_->result);
    state_->result.reset();
    return value;
  }
  // Ends the call with kCancelled, unless it has ended. Returns at once.
  void Cancel() {
    if (state_ != nullptr) {
      state_->cancellation.Cancel();
    }
  }
  // Lets the call continue without this object and drops its result.
  void Detach() { state_ = nullptr; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_PENDING_H_
