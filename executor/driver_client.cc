// SPDX-License-Identifier: Apache-2.0
// The runner's end of a supervisor's socket.
#include <sys/socket.h>

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

  StatusOr<DriverBinary> Build(const DriverBuild& build) override {
    DriverRequest request;
    request.identity = IdentityOf(build.device);
    request.build = build;
    {
      std::lock_guard lock(mutex_);
      HPVMD_RETURN_IF_ERROR(broken_);
      request.id = next_id_++;
      waiting_[request.id] = {};
    }
    Send(request);
    return WaitFor(request.id);
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

  void Send(const DriverRequest& request) {
    std::lock_guard lock(send_mutex_);
    const Status sent = SendFrame(socket_.get(), EncodeDriverRequest(request), request.build.code, {},
                                  RealClock().Now() + kSendMax);
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

  StatusOr<DriverBinary> WaitFor(uint64_t id) {
    std::unique_lock lock(mutex_);
    Answer& answer = waiting_[id];
    arrived_.wait(lock, [&] { return answer.has_arrived || !broken_.ok(); });
    Answer taken = std::move(answer);
    waiting_.erase(id);
    if (!taken.has_arrived) {
      return broken_;
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
