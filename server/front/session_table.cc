// SPDX-License-Identifier: Apache-2.0
#include "server/front/session_table.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace hpvm {
namespace {

// What gRPC makes of an abstract name, and the name.
constexpr std::string_view kScheme = "unix-abstract:", kName = "hpvmd-connection-";

// Looked at in each call of the C library's that the hooks take; pages that no descriptor has come to are never made.
std::array<std::atomic<Session*>, SessionTable::kDescriptorsMax> g_sessions;

bool HasPlace(int fd) { return fd >= 0 && fd < SessionTable::kDescriptorsMax; }

}  // namespace

SessionTable& SessionTable::Get() {
  // Never destroyed: gRPC's threads may close what they have after main has ended.
  static SessionTable* const table = new SessionTable();
  return *table;
}

bool SessionTable::Add(std::shared_ptr<Session> session) {
  const int fd = session->fd();
  if (!HasPlace(fd)) {
    return false;
  }
  std::lock_guard lock(mutex_);
  g_sessions[static_cast<size_t>(fd)].store(session.get(), std::memory_order_release);
  numbers_[fd] = ++last_number_;
  sessions_.emplace(last_number_, std::move(session));
  return true;
}

std::shared_ptr<Session> SessionTable::Find(std::string_view peer) const {
  if (!peer.starts_with(kScheme) || !peer.substr(kScheme.size()).starts_with(kName)) {
    return nullptr;
  }
  peer.remove_prefix(kScheme.size() + kName.size());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(peer.data(), peer.data() + peer.size(), number);
  if (error != std::errc() || end != peer.data() + peer.size()) {
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? nullptr : found->second;
}

void SessionTable::EndLate(Time now) {
  std::lock_guard lock(mutex_);  // Nothing is closed meanwhile.
  for (const auto& [number, session] : sessions_) {
    session->EndIfLate(now);
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
  std::shared_ptr<Session> gone;  // Freed when the lock is no longer held.
  if (At(fd) != nullptr) {
    std::lock_guard lock(mutex_);
    g_sessions[static_cast<size_t>(fd)].store(nullptr, std::memory_order_release);
    if (const auto number = numbers_.extract(fd)) {
      gone = std::move(sessions_.extract(number.mapped()).mapped());
    }
  }
  return static_cast<int>(syscall(SYS_close, fd));
}

int SessionTable::NamePeer(int fd, sockaddr* address, socklen_t* size) const {
  uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = numbers_.find(fd);
    if (found == numbers_.end()) {
      return static_cast<int>(syscall(SYS_getpeername, fd, address, size));
    }
    number = found->second;
  }
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = std::string(kName) + std::to_string(number);
  text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);  // After a zero byte: abstract.
  const auto whole = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  memcpy(address, &name, std::min(*size, whole));
  *size = whole;
  return 0;
}

}  // namespace hpvm
