// SPDX-License-Identifier: Apache-2.0
#include "client/local_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hpvm {
namespace {

constexpr size_t kTicketBytes = 32;

std::string NewTicket() {
  std::string ticket(kTicketBytes, '\0');
  for (size_t at = 0; at < kTicketBytes; at += sizeof(uint64_t)) {
    const uint64_t random = SystemRng().Next();
    std::memcpy(ticket.data() + at, &random, sizeof(random));
  }
  return ticket;
}

StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Unavailable("The socket path \"" + path + "\" is too long.");
  }
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  UniqueFd made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid() || connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Unavailable("No server takes shared memory at \"" + path + "\" (" + std::strerror(errno) + ").");
  }
  return made;
}

}  // namespace

StatusOr<std::string> SendDescriptors(const std::string& socket_path, std::span<const int> fds, Duration within) {
  HPVMD_ASSIGN_OR_RETURN(const UniqueFd to, ConnectTo(socket_path));
  const std::string ticket = NewTicket();
  iovec part{const_cast<char*>(ticket.data()), ticket.size()};
  constexpr size_t kFdsMax = 2;
  HPVMD_CHECK(fds.size() <= kFdsMax);
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  const Time until = RealClock().Now() + within;
  while (sendmsg(to.get(), &message, MSG_NOSIGNAL) < 0) {
    const int error = errno;
    const Duration left = until - RealClock().Now();
    if ((error != EAGAIN && error != EINTR) || left <= Duration::zero()) {
      return Unavailable("The server does not take shared memory at \"" + socket_path + "\" (" + std::strerror(error) +
                         ").");
    }
    pollfd waits{to.get(), POLLOUT, 0};
    poll(&waits, 1, static_cast<int>(std::min<int64_t>(left.count() / 1'000'000 + 1, 1'000)));
  }
  return ticket;
}

std::optional<LocalMemory> LocalPool::Take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = idle_.end();
  for (auto at = idle_.begin(); at != idle_.end(); ++at) {
    const uint64_t size = at->memory.size();
    if (size >= bytes && size / 4 <= bytes && (best == idle_.end() || size < best->memory.size())) {
      best = at;
    }
  }
  if (best == idle_.end()) {
    return std::nullopt;
  }
  LocalMemory taken = std::move(*best);
  idle_.erase(best);
  idle_bytes_ -= taken.memory.size();
  return taken;
}

std::vector<std::string> LocalPool::Give(LocalMemory buffer) {
  const std::lock_guard lock(mutex_);
  idle_bytes_ += buffer.memory.size();
  idle_.push_back(std::move(buffer));
  std::vector<std::string> gone;
  while (idle_bytes_ > kIdleBytesMax || idle_.size() > kIdleMax) {
    idle_bytes_ -= idle_.front().memory.size();
    gone.push_back(idle_.front().buffer.id());
    idle_.erase(idle_.begin());
  }
  return gone;
}

std::vector<std::string> LocalPool::Clear() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> ids;
  for (const LocalMemory& buffer : idle_) {
    ids.push_back(buffer.buffer.id());
  }
  idle_.clear();
  idle_bytes_ = 0;
  return ids;
}

std::map<std::string, uint64_t> LocalPool::OutputsOf(const std::string& run) {
  const std::lock_guard lock(mutex_);
  const auto found = outputs_.find(run);
  return found == outputs_.end() ? std::map<std::string, uint64_t>() : found->second;
}

void LocalPool::SetOutputsOf(const std::string& run, std::map<std::string, uint64_t> bytes) {
  const std::lock_guard lock(mutex_);
  if (outputs_.size() >= kRunsMax && !outputs_.contains(run)) {
    outputs_.clear();  // One run per key learns them again.
  }
  outputs_[run] = std::move(bytes);
}

std::string LocalPool::refusal() {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void LocalPool::Refuse(std::string why) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(why);
}

}  // namespace hpvm
