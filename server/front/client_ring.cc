// SPDX-License-Identifier: Apache-2.0
#include "server/front/client_ring.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/thread_watch.h"
#include "server/memory/client_memory.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr FrameLimits kLimits = {
    .head_bytes_max = kRingFrameBytesMax, .body_bytes_max = kRingFrameBytesMax, .fds_max = 0};
constexpr Duration kTick = std::chrono::seconds(1);

// Accepts an eventfd only: other descriptors that can be watched might do more than ring.
Status CheckBell(int fd) {
  char name[64];
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t got = readlink(path.c_str(), name, sizeof(name));
  if (got < 0 || std::string_view(name, static_cast<size_t>(got)) != "anon_inode:[eventfd]") {
    return InvalidArgument("The second descriptor is not an eventfd.");
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<ClientRing>> ClientRing::Make(const Options& options, std::shared_ptr<RingTurn> turn,
                                                       std::vector<UniqueFd>& fds) {
  HPVMD_ASSIGN_OR_RETURN(const ClientMemory memory, CheckClientMemory(fds[0].get()));
  if (memory.bytes != kRingPairBytes || memory.read_only) {
    return InvalidArgument("The shared memory has " + std::to_string(memory.bytes) + " bytes" +
                           (memory.read_only ? " and can only be read" : "") + "; rings need exactly " +
                           std::to_string(kRingPairBytes) + " that can be written.");
  }
  HPVMD_RETURN_IF_ERROR(CheckBell(fds[1].get()));
  HPVMD_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fds[0].get(), kRingPairBytes, Mapping::Access::kReadWrite));
  std::shared_ptr<ClientRing> ring(new ClientRing(options, std::move(turn), std::move(mapping)));
  ring->fds_ = std::move(fds);
  return ring;
}

ClientRing::ClientRing(const Options& options, std::shared_ptr<RingTurn> turn, Mapping memory)
    : options_(options),
      turn_(std::move(turn)),
      mapping_(std::move(memory)),
      consumer_(this->memory().to_server, kLimits),
      producer_(this->memory().to_client) {}

ClientRing::~ClientRing() {
  if (!fds_.empty()) {
    options_.parts.inbox->Drop(std::move(fds_));
  }
}

void ClientRing::Begin(std::shared_ptr<Calls> calls) {
  options_.parts.hub->Post([self = shared_from_this(), calls = std::move(calls)]() mutable {
    self->calls_ = std::move(calls);
    EventHub& hub = *self->options_.parts.hub;
    self->source_ = hub.Add(self.get());
    if (const Status watched = hub.Watch(self->source_, 0, self->fds_[1].get(), EPOLLIN | EPOLLET); !watched.ok()) {
      self->Finish(watched, "");
      return;
    }
    hub.StartTimer(RealClock().Now() + kTick, self->source_, 0);
    self->StayAwake();  // The client may have put frames already.
  });
}

void ClientRing::StayAwake() {
  if (source_ == 0) {
    return;
  }
  turn_->awake += std::exchange(is_awake_, true) ? 0 : 1;
  options_.parts.hub->KeepAwake(source_);
}

void ClientRing::OnEvent(uint8_t, uint32_t) {
  WatchedItem::SetCurrentTenant(turn_->tenant);
  consumer_.EndSleep();
  if (++bells_ > kIdleBellsMax + frames_) {
    Finish(ResourceExhausted("The ring's bell was rung more than " + std::to_string(kIdleBellsMax) +
                             " times within a second without a frame."),
           "ring_bells");
    return;
  }
  FlushAndWake();
  StayAwake();
}

void ClientRing::OnTimer(uint64_t) {
  WatchedItem::SetCurrentTenant(turn_->tenant);
  bells_ = frames_ = 0;
  const Time now = RealClock().Now();
  bool is_stalled = false;
  {
    std::lock_guard lock(mutex_);
    is_stalled = stalled_since_ != kNever && now - stalled_since_ >= options_.stall_max;
  }
  if (is_stalled) {
    Finish(ResourceExhausted("The client read no answer from its ring for " +
                             std::to_string(options_.stall_max / std::chrono::milliseconds(1)) + " ms."),
           "ring_stalled");
  } else if (const Status goes_on = calls_->OnSecond(); !goes_on.ok()) {
    Finish(goes_on, "");
  } else {
    options_.parts.hub->StartTimer(now + kTick, source_, 0);
  }
}

bool ClientRing::MayTake() {
  std::lock_guard lock(mutex_);
  // Read under the mutex: code that makes room sends a frame afterwards, and then finds this flag set.
  waits_ = unsent_bytes_ > kUnsentBytesMax || !calls_->HasRoom();
  return !waits_;
}

bool ClientRing::OnTurn() {
  WatchedItem::SetCurrentTenant(turn_->tenant);
  bool did = FlushAndWake();
  const size_t count = std::max<size_t>(1, kTurnFrames / std::max<size_t>(1, turn_->awake));
  for (size_t i = 0; i < count && source_ != 0 && MayTake(); ++i) {
    const StatusOr<RingConsumer::Got> got = consumer_.Next(&frame_);
    if (got.ok() && *got == RingConsumer::Got::kNothing) {
      break;
    }
    did = true;
    ++frames_;
    Status taken = got.status();
    if (taken.ok()) {
      taken = *got == RingConsumer::Got::kFrame
                  ? calls_->OnFrame(frame_)
                  : InvalidArgument("The ring announces a frame on a socket, which a client's ring does not have.");
    }
    if (!taken.ok()) {
      Finish(taken, "ring_frame");
    }
  }
  return did;
}

bool ClientRing::BeginSleep() {
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    waits = waits_;
  }
  // Frames that arrive meanwhile are read after the next send.
  if (!waits && !consumer_.BeginSleep()) {
    return false;
  }
  turn_->awake -= std::exchange(is_awake_, false) ? 1 : 0;
  return true;
}

StatusOr<bool> ClientRing::Flush() {
  bool did = false;
  while (!unsent_.empty()) {
    const Unsent& next = unsent_.front();
    const std::span<const uint8_t> body(reinterpret_cast<const uint8_t*>(next.body.data()), next.body.size());
    HPVMD_ASSIGN_OR_RETURN(const bool put, producer_.Put(next.head, body));
    if (!put) {
      stalled_since_ = did || stalled_since_ == kNever ? RealClock().Now() : stalled_since_;
      return did;
    }
    did = true;
    unsent_bytes_ -= next.head.size() + next.body.size();
    unsent_.pop_front();
  }
  stalled_since_ = kNever;
  return did;
}

bool ClientRing::FlushAndWake() {
  bool wakes_client = false;
  StatusOr<bool> did = false;
  {
    std::lock_guard lock(mutex_);
    if (has_ended_ || unsent_.empty()) {
      return false;
    }
    did = Flush();
    wakes_client = did.ok() && *did && producer_.MustWake();
  }
  if (wakes_client) {
    producer_.Wake();
  }
  if (!did.ok()) {
    End(did.status());
  }
  return did.ok() && *did;
}

void ClientRing::Send(std::string_view head, std::string_view body) {
  bool wakes_client = false, wakes_hub = false;
  Status sent;
  {
    std::lock_guard lock(mutex_);
    if (has_ended_) {
      return;
    }
    StatusOr<bool> put = false;
    if (unsent_.empty()) {
      put = producer_.Put(head, {reinterpret_cast<const uint8_t*>(body.data()), body.size()});
    }
    sent = put.status();
    if (put.ok() && !*put) {
      unsent_.push_back({std::string(head), std::string(body)});
      unsent_bytes_ += head.size() + body.size();
      sent = Flush().status();
    }
    wakes_client = sent.ok() && producer_.MustWake();
    wakes_hub = std::exchange(waits_, false);
  }
  if (wakes_client) {
    producer_.Wake();
  }
  if (wakes_hub) {
    options_.parts.hub->Post([self = shared_from_this()] { self->StayAwake(); });
  }
  if (!sent.ok()) {
    End(sent);
  }
}

void ClientRing::End(Status why) {
  options_.parts.hub->Post([self = shared_from_this(), why = std::move(why)] { self->Finish(why, ""); });
}

void ClientRing::Finish(const Status& why, std::string_view reason) {
  if (source_ == 0) {
    return;
  }
  // The call owns the ring, and may drop it once it knows of the end, while the hub is in one of the ring's turns.
  std::shared_ptr<ClientRing> self = shared_from_this();
  EventHub& hub = *options_.parts.hub;
  hub.Unwatch(fds_[1].get());
  hub.Remove(std::exchange(source_, 0));
  turn_->awake -= std::exchange(is_awake_, false) ? 1 : 0;
  {
    std::lock_guard lock(mutex_);
    has_ended_ = true;
    unsent_.clear();
    unsent_bytes_ = 0;
  }
  options_.parts.inbox->Drop(std::move(fds_));
  fds_.clear();
  if (!reason.empty()) {
    LogWarning("A client's ring was ended", {{"tenant", turn_->tenant}, {"why", Message(why)}});
    options_.observer->On(events::ConnectionEnded{reason});
  }
  std::exchange(calls_, nullptr)->OnEnd(why);
  hub.Post([self = std::move(self)] {});
}

}  // namespace hpvm::server
