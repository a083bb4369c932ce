// SPDX-License-Identifier: Apache-2.0
#include "client/local_ring.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <utility>

#include "client/local_memory.h"
#include "client/status/status.h"

namespace hpvm {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(50), kPauseMax = std::chrono::seconds(30);
// A ring that lived this long ended for a reason of its own; the next ring need not wait long.
constexpr Duration kLasted = std::chrono::seconds(10);
// Time that a waiting thread polls before it sleeps.
constexpr Duration kSpin{0};

}  // namespace

// Stream is one ring and the call that keeps it open. gRPC's threads call it back.
class LocalRing::Stream final : public grpc::ClientReadReactor<v1::OpenRingResponse>,
                                public std::enable_shared_from_this<Stream> {
 public:
  Stream(LocalRing& owner, std::unique_ptr<RingCaller> made) : caller(std::move(made)), owner_(owner) {}
  ~Stream() override { caller->Stop(); }

  void Start(v1::Hpvm::Stub& stub, std::string ticket) {
    self_ = shared_from_this();
    request_.set_ticket(std::move(ticket));
    stub.async()->OpenRing(&context, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return;  // OnDone reports the reason.
    }
    if (response_.ends()) {
      Retire();
      owner_.OnRetired(*this);
    } else {
      caller->Begin(response_.calls_max());
      owner_.OnOpen(*this);
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& ended) override {
    const Status why = ended.ok() ? Unavailable("The server closed the ring.") : FromGrpc(ended);
    caller->End(Unavailable("The ring to the server ended while the call was in progress: " + Message(why)));
    owner_.OnEnd(*this, why);
    owner_.OnGone(std::move(self_));  // The owner and this object may be gone afterwards.
  }

  // Stops new runs from using it.
  void Retire() {
    caller->Begin(0);
    is_retired_.store(true);
    LeaveIfIdle();
  }
  // Both Retire and the end of the last run call this; the later of the two leaves.
  void LeaveIfIdle() {
    if (is_retired_.load() && caller->IsIdle()) {
      context.TryCancel();
    }
  }

  grpc::ClientContext context;
  const std::unique_ptr<RingCaller> caller;

 private:
  LocalRing& owner_;
  std::shared_ptr<Stream> self_;  // Keeps the object alive until OnDone.
  v1::OpenRingRequest request_;
  v1::OpenRingResponse response_;
  std::atomic<bool> is_retired_{false};
};

LocalRing::~LocalRing() {
  std::unique_lock lock(mutex_);
  stops_ = true;
  if (stream_ != nullptr) {
    stream_->context.TryCancel();
  }
  changed_.wait(lock, [this] { return streams_ == 0; });
  const std::vector<std::shared_ptr<Stream>> gone = std::exchange(gone_, {});
  lock.unlock();  // The streams' threads may need it.
}

std::shared_ptr<LocalRing::Stream> LocalRing::Find() {
  std::vector<std::shared_ptr<Stream>> gone;  // Destroyed without the mutex, which the streams' threads may need.
  {
    const std::lock_guard lock(mutex_);
    const auto kept = std::partition(gone_.begin(), gone_.end(), [](const auto& one) { return one.use_count() > 1; });
    gone.assign(std::make_move_iterator(kept), std::make_move_iterator(gone_.end()));
    gone_.erase(kept, gone_.end());
    switch (state_) {
      case State::kOpen:
        return stream_;
      case State::kOpening:
      case State::kRefused:
        return nullptr;
      case State::kUnused:
        state_ = State::kWaits;
        why_ = "The client has made one run; the next one opens a ring.";
        return nullptr;
      case State::kWaits:
        if (stops_ || RealClock().Now() < not_before_) {
          return nullptr;
        }
        state_ = State::kOpening;
        why_ = "A ring is being opened.";
        ++streams_;
    }
  }
  Open();
  return nullptr;
}

void LocalRing::Open() {
  const auto open = [this]() -> Status {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<RingCaller> caller, RingCaller::Make(kSpin));
    const std::array<int, 2> fds = {caller->memory_fd(), caller->bell_fd()};
    HPVMD_ASSIGN_OR_RETURN(std::string ticket, SendDescriptors(memory_path_, fds, Duration(0)));
    const auto stream = std::make_shared<Stream>(*this, std::move(caller));
    HPVMD_RETURN_IF_ERROR(sign_(stream->context));
    {
      const std::lock_guard lock(mutex_);
      stream_ = stream;
    }
    stream->Start(stub_, std::move(ticket));
    return absl::OkStatus();
  };
  if (const Status opened = open(); !opened.ok()) {
    const std::lock_guard lock(mutex_);
    --streams_;
    Fail(opened);
  }
}

// The caller holds the mutex.
void LocalRing::Fail(const Status& why) {
  stream_ = nullptr;
  const bool is_for_good = absl::IsUnimplemented(why) || absl::IsInvalidArgument(why);
  state_ = state_ == State::kRefused || is_for_good ? State::kRefused : State::kWaits;
  why_ = Message(why);
  const Time now = RealClock().Now();
  const bool lasted = opened_ != Time{0} && now - opened_ >= kLasted;
  pause_ = lasted ? kPauseMin : std::clamp(2 * pause_, kPauseMin, kPauseMax);
  not_before_ = now + pause_;
  opened_ = Time{0};
}

void LocalRing::OnOpen(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (stream_.get() == &stream && state_ == State::kOpening) {
    state_ = State::kOpen;
    opened_ = RealClock().Now();
  }
}

void LocalRing::OnRetired(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (stream_.get() == &stream) {
    stream_ = nullptr;
    state_ = State::kWaits;
    why_ = "The server asked for another ring; the next run opens it.";
    not_before_ = Time{0};
  }
}

void LocalRing::OnEnd(Stream& stream, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (stream_.get() == &stream) {
    Fail(why);
  }
}

void LocalRing::OnGone(std::shared_ptr<Stream> stream) {
  const std::lock_guard lock(mutex_);
  gone_.push_back(std::move(stream));
  --streams_;
  changed_.notify_all();
}

void LocalRing::Refuse(std::string why) {
  const std::lock_guard lock(mutex_);
  state_ = State::kRefused;
  why_ = std::move(why);
}

std::string LocalRing::Path() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen ? "ring" : "gRPC: " + why_;
}

namespace {

// Returns an empty body when the request is too large for a ring.
std::string BodyOf(const v1::RunRequest& request) {
  std::string body;
  if (request.ByteSizeLong() > RingCaller::kBodyBytesMax || !request.SerializeToString(&body)) {
    body.clear();
  }
  return body;
}

}  // namespace

StatusOr<std::optional<v1::RunResponse>> LocalRing::Run(const v1::RunRequest& request, const CallOptions& call) {
  const std::shared_ptr<Stream> stream = Find();
  if (stream == nullptr) {
    return std::nullopt;
  }
  const std::string body = BodyOf(request);
  if (body.empty()) {
    return std::nullopt;
  }
  const std::stop_token stop = call.cancel.has_value() ? call.cancel->token() : std::stop_token();
  const Time deadline = call.timeout == kNever ? kNever : RealClock().Now() + call.timeout;
  StatusOr<std::optional<RingCaller::Answer>> answer = stream->caller->Call(body, deadline, stop);
  stream->LeaveIfIdle();
  HPVMD_RETURN_IF_ERROR(answer.status());
  if (!answer->has_value()) {
    return std::nullopt;
  }
  return Read(*stream, **answer);
}

std::optional<std::function<void()>> LocalRing::Start(const v1::RunRequest& request, const CallOptions& call,
                                                      Done done) {
  const std::shared_ptr<Stream> stream = call.timeout == kNever ? Find() : nullptr;
  const std::string body = stream != nullptr ? BodyOf(request) : std::string();
  if (body.empty()) {
    return std::nullopt;
  }
  // The stream outlives its calls: it ends them before it is destroyed.
  const std::optional<uint64_t> id = stream->caller->Start(
      body, [this, raw = stream.get(), done = std::move(done)](const StatusOr<RingCaller::Answer>& answer) {
        StatusOr<std::optional<v1::RunResponse>> read =
            answer.ok() ? Read(*raw, *answer) : StatusOr<std::optional<v1::RunResponse>>(answer.status());
        raw->LeaveIfIdle();
        done(std::move(read));
      });
  if (!id.has_value()) {
    return std::nullopt;
  }
  return [stream, id = *id] { stream->caller->Cancel(id); };
}

StatusOr<std::optional<v1::RunResponse>> LocalRing::Read(Stream& stream, const RingCaller::Answer& answer) {
  v1::RunResponse response;
  if (!response.ParseFromArray(answer.body.data(), static_cast<int>(answer.body.size()))) {
    return DataLoss("The answer that came through the ring is not a RunResponse.");
  }
  if (answer.is_refused) {
    // Over gRPC, and on the next ring, the caller presents its credentials anew, and learns why it is refused if it
    // still is.
    const Status why = FromProto(response.error());
    if (absl::IsUnauthenticated(why) || absl::IsPermissionDenied(why)) {
      stream.Retire();
      OnRetired(stream);
    }
    return std::nullopt;
  }
  return response;
}

}  // namespace hpvm
