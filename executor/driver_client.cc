// SPDX-License-Identifier: Apache-2.0
// The runner's end of a supervisor's socket.
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "executor/driver_process.h"
#include "executor/driver_wire.h"

namespace hpvm {
namespace {

constexpr Duration kSendMax = std::chrono::seconds(30);
// How often a caller looks at its stop word.
constexpr Duration kStopPause = std::chrono::milliseconds(10);

// One connection; callers wait for their own id, one reader thread hands the answers out.
class Client final : public DriverBuilder {
 public:
  Client(UniqueFd socket, const ArtifactKey& key,
         std::function<StatusOr<std::string>(const std::string& device)> identity)
      : socket_(std::move(socket)), identity_(std::move(identity)) {
    broken_ = SendFrame(socket_.get(), EncodeDriverHello(key), {}, {}, RealClock().Now() + kSendMax);
    reader_ = std::thread([this] { ReadAnswers(); });
  }
  ~Client() override {
    shutdown(socket_.get(), SHUT_RDWR);
    reader_.join();
  }

  StatusOr<DriverBinary> Build(const DriverBuild& build, const Patience& patience) override {
    HPVMD_RETURN_IF_ERROR(CheckPatience(patience));
    DriverRequest request;
    request.identity = IdentityOf(build.device);
    request.build = build;
    {
      std::lock_guard lock(mutex_);
      HPVMD_RETURN_IF_ERROR(broken_);
      request.id = next_id_++;
      waiting_[request.id] = {};
    }
    SendFrameOrEnd(EncodeDriverRequest(request), request.build.code);
    StatusOr<DriverBinary> binary = WaitFor(request.id, patience);
    if (absl::IsCancelled(binary.status()) || absl::IsDeadlineExceeded(binary.status())) {
      SendFrameOrEnd(EncodeDriverCancel({request.id}), {});
    }
    return binary;
  }

 private:
  struct Answer {
    bool has_arrived = false;
    Status status;
    DriverBinary binary;
  };

  // Empty where the driver does not say: then nothing is kept.
  std::string IdentityOf(const std::string& device) {
    std::lock_guard lock(identity_mutex_);
    const auto [known, is_new] = identities_.try_emplace(device);
    if (is_new) {
      known->second = identity_(device).value_or("");
    }
    return known->second;
  }

  static Status CheckPatience(const Patience& patience) {
    // Whoever watches the deadline may have set the stop word for it.
    if (RealClock().Now() >= patience.deadline) {
      return DeadlineExceeded("The deadline passed while the driver compiled the module.");
    }
    return patience.is_stopped() ? Cancelled("The driver's compile was cancelled.") : absl::OkStatus();
  }

  void SendFrameOrEnd(std::span<const uint8_t> head, std::span<const uint8_t> body) {
    std::lock_guard lock(send_mutex_);
    const Status sent = SendFrame(socket_.get(), head, body, {}, RealClock().Now() + kSendMax);
    if (!sent.ok()) {
      // A frame may be half written, so the stream is of no more use; this ends the reader, which tells everybody.
      shutdown(socket_.get(), SHUT_RDWR);
    }
  }

  void ReadAnswers() {
    while (true) {
      StatusOr<Frame> frame = ReceiveFrame(socket_.get(), kDriverFrameLimits);
      StatusOr<DriverAnswer> answer = frame.ok() ? DecodeDriverAnswer(*frame) : frame.status();
      std::lock_guard lock(mutex_);
      if (!answer.ok()) {
        broken_ = Unavailable("The process that builds for the driver is gone: " + Message(answer.status()));
        arrived_.notify_all();
        return;
      }
      const auto found = waiting_.find(answer->id);
      if (found == waiting_.end()) {
        continue;
      }
      found->second = {.has_arrived = true,
                       .status = std::move(answer->status),
                       .binary = {.bytes = std::move(frame->body), .log = std::move(answer->log)}};
      arrived_.notify_all();
    }
  }

  StatusOr<DriverBinary> WaitFor(uint64_t id, const Patience& patience) {
    std::unique_lock lock(mutex_);
    Answer& answer = waiting_[id];
    Status ended;
    while (!answer.has_arrived && broken_.ok() && ended.ok()) {
      // The years until kNever are more than a condition variable can count.
      const Duration left = patience.deadline - RealClock().Now();
      arrived_.wait_for(lock, std::min(left, patience.stop != nullptr ? kStopPause : Duration(std::chrono::hours(1))));
      ended = CheckPatience(patience);
    }
    Answer taken = std::move(answer);
    waiting_.erase(id);
    if (!taken.has_arrived) {
      return broken_.ok() ? ended : broken_;
    }
    HPVMD_RETURN_IF_ERROR(taken.status);
    return std::move(taken.binary);
  }

  UniqueFd socket_;
  const std::function<StatusOr<std::string>(const std::string& device)> identity_;
  std::mutex identity_mutex_;
  std::map<std::string, std::string> identities_;  // By device; guarded by identity_mutex_.
  std::thread reader_;
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unordered_map<uint64_t, Answer> waiting_;  // By request id; guarded by mutex_.
  uint64_t next_id_ = 1;                          // Guarded by mutex_.
  Status broken_;  // Why the connection is of no more use; guarded by mutex_ once the reader runs.
};

}  // namespace

std::unique_ptr<DriverBuilder> ConnectDriverBuilder(
    UniqueFd socket, const ArtifactKey& key, std::function<StatusOr<std::string>(const std::string& device)> identity) {
  return std::make_unique<Client>(std::move(socket), key, std::move(identity));
}

}  // namespace hpvm
