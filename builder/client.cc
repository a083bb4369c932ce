// SPDX-License-Identifier: Apache-2.0
#include "builder/client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace hpvm::builder {
namespace {

constexpr Duration kSendMax = std::chrono::seconds(30);
// Interval at which a caller polls its stop word.
constexpr Duration kStopPause = std::chrono::milliseconds(10);

}  // namespace

BuildClient::BuildClient(UniqueFd socket, const BuildHello& hello, Options options)
    : socket_(std::move(socket)), options_(std::move(options)) {
  broken_ = SendFrame(socket_.get(), HeadOf(hello), {}, {}, RealClock().Now() + kSendMax);
  reader_ = std::thread([this] { ReadAnswers(); });
}

BuildClient::~BuildClient() {
  shutdown(socket_.get(), SHUT_RDWR);
  reader_.join();
}

Status BuildClient::Close(const Status& why) {
  shutdown(socket_.get(), SHUT_RDWR);  // Ends the reader, which informs all callers.
  return Unavailable(options_.peer + " is gone: " + Message(why));
}

StatusOr<BuildClient::Answer> BuildClient::Build(const Request& request) {
  HPVMD_RETURN_IF_ERROR(CheckPatience(request));
  BuildMessage message;
  message.set_request(request.payload);
  uint64_t id;
  {
    std::lock_guard lock(mutex_);
    HPVMD_RETURN_IF_ERROR(broken_);
    id = next_id_++;
    waiting_[id] = {};
  }
  message.set_id(id);
  if (Status sent = Send(HeadOf(message), request, request.deadline); !sent.ok()) {
    std::lock_guard lock(mutex_);
    waiting_.erase(id);
    return sent;
  }
  StatusOr<Answer> answer = WaitFor(id, request);
  if (absl::IsCancelled(answer.status()) || absl::IsDeadlineExceeded(answer.status())) {
    message.mutable_cancel();
    Send(HeadOf(message), {}, kNever).IgnoreError();
  }
  return answer;
}

Status BuildClient::CheckPatience(const Request& request) const {
  // The watcher of the deadline may have set the stop word for it.
  if (RealClock().Now() >= request.deadline) {
    return DeadlineExceeded("The deadline passed while the module was being compiled.");
  }
  return request.stop != nullptr && request.stop->load() != 0 ? Cancelled("The compile was cancelled.")
                                                              : absl::OkStatus();
}

Status BuildClient::Send(std::string_view head, const Request& request, Time deadline) {
  std::lock_guard lock(send_mutex_);
  HPVMD_RETURN_IF_ERROR(CheckPatience(request));  // Sending others' frames may have taken long.
  SendNotesLocked();
  const Status sent =
      SendFrame(socket_.get(), head, request.body, request.fds, std::min(deadline, RealClock().Now() + kSendMax));
  // A frame may be half written, so the stream is unusable.
  return sent.ok() ? sent : Close(sent);
}

void BuildClient::SendNotes() {
  std::unique_lock sending(send_mutex_, std::try_to_lock);
  if (sending.owns_lock()) {  // Otherwise the current or the next sender sends them.
    SendNotesLocked();
  }
}

void BuildClient::SendNotesLocked() {
  pollfd fd{socket_.get(), POLLOUT, 0};
  while (options_.next_note != nullptr && poll(&fd, 1, 0) == 1 && fd.revents == POLLOUT) {
    std::optional<std::string> note = options_.next_note();
    if (!note.has_value()) {
      return;
    }
    BuildMessage message;
    message.set_note(*std::move(note));
    const Status sent = SendFrame(socket_.get(), HeadOf(std::move(message)), {}, {}, RealClock().Now() + kSendMax);
    if (!sent.ok()) {
      Close(sent).IgnoreError();
      return;
    }
  }
}

StatusOr<BuildClient::Answer> BuildClient::WaitFor(uint64_t id, const Request& request) {
  std::unique_lock lock(mutex_);
  Waiting& waiting = waiting_[id];
  Status ended;
  while (!waiting.has_arrived && broken_.ok() && ended.ok()) {
    // The time until kNever is more than a condition variable supports.
    const Duration left = request.deadline - RealClock().Now();
    arrived_.wait_for(lock, std::min(left, request.stop != nullptr ? kStopPause : Duration(std::chrono::hours(1))));
    ended = CheckPatience(request);
  }
  Waiting taken = std::move(waiting);
  waiting_.erase(id);
  if (taken.has_arrived) {
    return std::move(taken.answer);
  }
  return broken_.ok() ? ended : broken_;
}

void BuildClient::ReadAnswers() {
  while (true) {
    StatusOr<Frame> frame = ReceiveFrame(socket_.get(), options_.limits);
    StatusOr<BuildMessage> message = frame.ok() ? ReadMessage(*frame) : frame.status();
    if (message.ok() && !message->has_answer()) {
      message = InvalidArgument("The peer sent a message that is not an answer.");
    }
    std::lock_guard lock(mutex_);
    if (!message.ok()) {
      broken_ = Close(message.status());
      arrived_.notify_all();
      return;
    }
    const auto found = waiting_.find(message->id());
    if (found == waiting_.end()) {
      continue;  // Its caller has gone.
    }
    found->second.answer.payload = std::move(*message->mutable_answer());
    found->second.answer.body = std::move(frame->body);
    found->second.has_arrived = true;
    arrived_.notify_all();
  }
}

}  // namespace hpvm::builder
