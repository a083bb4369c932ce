// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/service.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/io/memfd.h"
#include "base/limits.h"
#include "compiler/api/zygote.h"

namespace hpvm {
namespace {

constexpr Duration kSendMax = std::chrono::seconds(10);
// How often a caller looks at its stop word.
constexpr Duration kStopPause = std::chrono::milliseconds(10);
// Records that wait to be sent: kernels settle one by one.
constexpr size_t kKeptMax = 256;

CompileOutcome Refused(const CompileRequest& request, std::string message) {
  CompileOutcome outcome;
  outcome.diagnostics.push_back({Severity::kError, "module \"" + request.module_name + "\"", {}, std::move(message)});
  return outcome;
}

// One connection; callers wait for their own id, one reader thread hands the answers out.
class ZygoteClient final : public CompilerService {
 public:
  ZygoteClient(UniqueFd socket, const ArtifactKey& key, const std::string& cache_folder)
      : socket_(std::move(socket)), key_(key) {
    broken_ = SendFrame(socket_.get(), EncodeHello({key_, cache_folder}), {}, {}, RealClock().Now() + kSendMax);
    reader_ = std::thread([this] { ReadAnswers(); });
  }

  ~ZygoteClient() override {
    shutdown(socket_.get(), SHUT_RDWR);
    reader_.join();
  }

  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override;
  void Keep(const Sha256& name, std::span<const uint8_t> record) override {
    if (record.size() <= kLearntBytesMax) {
      Keep(name, /*is_costs=*/false, record);
    }
  }
  void KeepCosts(const Sha256& name, std::span<const uint8_t> record) override {
    if (record.size() <= kCostRecordBytesMax) {
      Keep(name, /*is_costs=*/true, record);
    }
  }

 private:
  struct Answer {
    bool has_arrived = false;
    ZygoteResponse response;
    std::vector<uint8_t> artifact;
  };

  void ReadAnswers();
  void Keep(const Sha256& name, bool is_costs, std::span<const uint8_t> record);
  void SendKept();
  Status Send(uint64_t id, const CompileRequest& request, int module_fd, Time deadline);
  StatusOr<Answer> WaitFor(uint64_t id, Time deadline, const std::atomic<uint32_t>* stop);
  void SendCancel(uint64_t id);

  UniqueFd socket_;
  const ArtifactKey key_;
  std::thread reader_;
  std::mutex send_mutex_;
  std::mutex kept_mutex_;
  // By name, and whether it is costs. To be sent as soon as that needs no waiting; guarded by kept_mutex_.
  std::map<std::pair<Sha256, bool>, std::vector<uint8_t>> kept_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unordered_map<uint64_t, Answer> waiting_;  // By request id; an answer without an entry is dropped.
  uint64_t next_id_ = 1;
  Status broken_;  // Why the connection is of no more use; guarded by mutex_ once the reader runs.
};

void ZygoteClient::ReadAnswers() {
  for (;;) {
    StatusOr<Frame> frame = ReceiveFrame(socket_.get(), kZygoteFrameLimits);
    Status status = frame.status();
    StatusOr<ZygoteResponse> response = frame.ok() ? DecodeResponse(HeadBytes(*frame)) : status;
    std::lock_guard lock(mutex_);
    if (!response.ok()) {
      broken_ = Unavailable("The compiler process is gone: " + Message(response.status()));
      arrived_.notify_all();
      return;
    }
    auto found = waiting_.find(response->id);
    if (found == waiting_.end()) {
      continue;  // Its caller's deadline has passed.
    }
    found->second.has_arrived = true;
    found->second.response = *std::move(response);
    found->second.artifact = std::move(frame->body);
    arrived_.notify_all();
  }
}

Status ZygoteClient::Send(uint64_t id, const CompileRequest& request, int module_fd, Time deadline) {
  ZygoteRequest message;
  message.id = id;
  message.compile = request;
  message.compile.module = {};
  std::lock_guard lock(send_mutex_);
  Time now = RealClock().Now();
  if (deadline <= now) {
    return DeadlineExceeded("The deadline passed before the compile began.");
  }
  if (request.stop != nullptr && request.stop->load() != 0) {
    return Cancelled("The compile was cancelled before it began.");
  }
  message.remaining_ns = deadline == kNever ? 0 : static_cast<uint64_t>((deadline - now).count());
  SendKept();
  const int fds[] = {module_fd};
  Status sent = SendFrame(socket_.get(), EncodeRequest(message), {}, fds, std::min(deadline, now + kSendMax));
  if (!sent.ok()) {
    // A frame may be half written, so the stream is of no more use; this also ends the reader.
    shutdown(socket_.get(), SHUT_RDWR);
    return Unavailable("The compiler process takes no requests: " + Message(sent));
  }
  return sent;
}

void ZygoteClient::Keep(const Sha256& name, bool is_costs, std::span<const uint8_t> record) {
  {
    std::lock_guard lock(kept_mutex_);
    if (kept_.size() >= kKeptMax) {
      return;
    }
    kept_[{name, is_costs}].assign(record.begin(), record.end());
  }
  std::unique_lock sending(send_mutex_, std::try_to_lock);
  if (sending.owns_lock()) {
    SendKept();
  }
}

// Sends what is kept while the socket takes it without waiting; a record is far smaller than a socket's buffer. The
// caller holds send_mutex_.
void ZygoteClient::SendKept() {
  pollfd fd{socket_.get(), POLLOUT, 0};
  std::unique_lock lock(kept_mutex_);
  while (!kept_.empty() && poll(&fd, 1, 0) == 1 && fd.revents == POLLOUT) {
    const auto record = kept_.extract(kept_.begin());
    lock.unlock();
    const std::vector<uint8_t> message = EncodeKeep({record.key().first, record.mapped(), record.key().second});
    const Status sent = SendFrame(socket_.get(), message, {}, {}, RealClock().Now() + kSendMax);
    if (!sent.ok()) {
      shutdown(socket_.get(), SHUT_RDWR);  // As in Send.
      return;
    }
    lock.lock();
  }
}

StatusOr<ZygoteClient::Answer> ZygoteClient::WaitFor(uint64_t id, Time deadline, const std::atomic<uint32_t>* stop) {
  std::unique_lock lock(mutex_);
  const auto is_stopped = [&] { return stop != nullptr && stop->load() != 0; };
  Time now = RealClock().Now();
  while (!waiting_[id].has_arrived && broken_.ok() && now < deadline && !is_stopped()) {
    // The years until kNever are more than a condition variable can count.
    arrived_.wait_for(lock, std::min(deadline - now, stop != nullptr ? kStopPause : Duration(std::chrono::hours(1))));
    now = RealClock().Now();
  }
  Answer taken = std::move(waiting_[id]);
  waiting_.erase(id);
  if (taken.has_arrived) {
    return taken;
  }
  if (!broken_.ok()) {
    return broken_;
  }
  // Whoever watches the deadline may have set the stop word for it. The zygote knows the deadline by itself.
  if (RealClock().Now() >= deadline) {
    return DeadlineExceeded("The deadline passed while the module was being compiled.");
  }
  lock.unlock();
  SendCancel(id);
  return Cancelled("The compile was cancelled.");
}

void ZygoteClient::SendCancel(uint64_t id) {
  std::lock_guard lock(send_mutex_);
  const Status sent = SendFrame(socket_.get(), EncodeCancel({id}), {}, {}, RealClock().Now() + kSendMax);
  if (!sent.ok()) {
    shutdown(socket_.get(), SHUT_RDWR);  // As in Send.
  }
}

StatusOr<CompileOutcome> ZygoteClient::Compile(const CompileRequest& request, Time deadline) {
  Time begin = RealClock().Now();
  if (request.module.empty() || request.module.size() > limits::kModuleBytesMax) {
    return Refused(request, "The module's size (" + std::to_string(request.module.size()) + " bytes) is not in [1, " +
                                std::to_string(limits::kModuleBytesMax) + "].");
  }
  HPVMD_ASSIGN_OR_RETURN(UniqueFd module, CreateSealedMemfd("hpvm-module", request.module.size()));
  HPVMD_RETURN_IF_ERROR(WriteAt(module.get(), 0, request.module));
  uint64_t id = 0;
  {
    std::lock_guard lock(mutex_);
    if (!broken_.ok()) {
      return broken_;
    }
    id = next_id_++;
    waiting_[id] = {};
  }
  Status sent = Send(id, request, module.get(), deadline);
  if (!sent.ok()) {
    std::lock_guard lock(mutex_);
    waiting_.erase(id);
    return sent;
  }
  HPVMD_ASSIGN_OR_RETURN(Answer answer, WaitFor(id, deadline, request.stop));
  if (answer.response.end == CompileEnd::kDeadline) {
    return DeadlineExceeded(answer.response.diagnostics.front().message);
  }
  CompileOutcome outcome;
  if (answer.response.end == CompileEnd::kLimit) {
    outcome.limit = ResourceExhausted(answer.response.diagnostics.front().message);
  }
  outcome.diagnostics = std::move(answer.response.diagnostics);
  outcome.from_cache = answer.response.from_cache;
  outcome.cpu = Duration(static_cast<int64_t>(std::min<uint64_t>(answer.response.cpu_ns, INT64_MAX)));
  if (answer.response.has_artifact) {
    HPVMD_ASSIGN_OR_RETURN(outcome.artifact, ParseArtifact(answer.artifact, key_));
    outcome.artifact->name = answer.response.name;
    outcome.artifact->learnt = std::move(answer.response.learnt);
    outcome.artifact->costs = std::move(answer.response.costs);
  } else if (!HasErrors(outcome.diagnostics)) {
    return Internal("The compiler answered with neither an artifact nor an error.");
  }
  outcome.elapsed = RealClock().Now() - begin;
  return outcome;
}

}  // namespace

std::unique_ptr<CompilerService> ConnectCompiler(UniqueFd socket, const ArtifactKey& key,
                                                 const std::string& cache_folder) {
  return std::make_unique<ZygoteClient>(std::move(socket), key, cache_folder);
}

}  // namespace hpvm
