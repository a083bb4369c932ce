// SPDX-License-Identifier: Apache-2.0
#include "server/front/session_table.h"

#include <errno.h>
#include <pthread.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "server/front/libc_calls.h"

namespace hpvm::server {
namespace {

// Prefix of an abstract name in gRPC's form, and of the name itself.
constexpr std::string_view kScheme = "unix-abstract:", kName = "hpvmd-connection-";

// Read in each C library call that the hooks intercept; pages without a descriptor are never allocated.
std::array<std::atomic<Session*>, SessionTable::kDescriptorsMax> g_sessions;

bool HasPlace(int fd) { return fd >= 0 && fd < SessionTable::kDescriptorsMax; }

}  // namespace

SessionTable& SessionTable::Get() {
  // Never destroyed, because gRPC's threads may close descriptors after main has ended.
  static SessionTable* const table = new SessionTable();
  return *table;
}

SessionTable::SessionTable() : owner_(getpid()) {
  // A fork while another thread changes the table would leave the child with a mutex that is locked for ever.
  pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                 [] {
                   Get().ForgetAll();
                   Get().mutex_.unlock();
                 });
}

// Sessions are not destroyed: threads that the child does not have may have been using them.
void SessionTable::ForgetAll() {
  owner_ = getpid();
  for (const auto& [fd, number] : numbers_) {
    g_sessions[static_cast<size_t>(fd)].store(nullptr, std::memory_order_release);
  }
  numbers_.clear();
  static_cast<void>(new auto(std::exchange(sessions_, {})));
}

bool SessionTable::Add(std::shared_ptr<Session> session) {
  const int fd = session->fd();
  if (!HasPlace(fd)) {
    return false;
  }
  std::shared_ptr<Session> gone;  // A session whose descriptor was closed unnoticed. Destroyed without the lock.
  std::lock_guard lock(mutex_);
  g_sessions[static_cast<size_t>(fd)].store(session.get(), std::memory_order_release);
  if (const auto number = numbers_.extract(fd)) {
    gone = std::move(sessions_.extract(number.mapped()).mapped());
  }
  numbers_[fd] = ++last_number_;
  sessions_.emplace(last_number_, std::move(session));
  return true;
}

std::shared_ptr<Session> SessionTable::Find(std::string_view peer) const {
  if (!peer.starts_with(kScheme) || !peer.substr(kScheme.size()).starts_with(kName)) {
    return nullptr;
  }
  peer.remove_prefix(kScheme.size() + kName.size());
  std::lock_guard lock(mutex_);
  const auto found = sessions_.find(ParseNumber<uint64_t>(peer).value_or(0));  // No connection has number 0.
  return found == sessions_.end() ? nullptr : found->second;
}

void SessionTable::EndLate(Time now) {
  // Reported, and perhaps destroyed, without the lock.
  std::vector<std::pair<std::shared_ptr<Session>, FrameFault>> ended;
  {
    std::lock_guard lock(mutex_);  // Nothing is closed while it is held.
    for (const auto& [number, session] : sessions_) {
      if (const FrameFault fault = session->EndIfLate(now); fault != FrameFault::kNone) {
        ended.emplace_back(session, fault);
      }
    }
  }
  for (const auto& [session, fault] : ended) {
    session->Tell(fault);
  }
}

size_t SessionTable::size() const {
  std::lock_guard lock(mutex_);
  return sessions_.size();
}

Session* SessionTable::At(int fd) {
  return HasPlace(fd) ? g_sessions[static_cast<size_t>(fd)].load(std::memory_order_acquire) : nullptr;
}

int SessionTable::Close(int fd) {
  std::shared_ptr<Session> gone;  // Destroyed without the lock.
  if (At(fd) != nullptr && getpid() == owner_) {
    std::lock_guard lock(mutex_);
    g_sessions[static_cast<size_t>(fd)].store(nullptr, std::memory_order_release);
    if (const auto number = numbers_.extract(fd)) {
      gone = std::move(sessions_.extract(number.mapped()).mapped());
    }
  }
  const int result = PlainClose(fd), error = errno;
  gone.reset();
  errno = error;
  return result;
}

int SessionTable::NamePeer(int fd, sockaddr* address, socklen_t* size) const {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = numbers_.find(fd);
    if (found == numbers_.end()) {
      return PlainGetPeerName(fd, address, size);
    }
    number = found->second;
  }
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = std::string(kName) + std::to_string(number);
  text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);  // Abstract: after a zero byte.
  const auto whole = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  memcpy(address, &name, std::min(*size, whole));
  *size = whole;
  return 0;
}

}  // namespace hpvm::server
