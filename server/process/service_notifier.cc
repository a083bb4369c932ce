// SPDX-License-Identifier: Apache-2.0
#include "server/process/service_notifier.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

namespace hpvm::server {
namespace {

// Makes one line of a text, so that its remainder cannot look like another message.
std::string OneLine(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

// Returns half of systemd's watchdog timeout, and only if it is for this process.
Duration WatchdogPeriod() {
  const char* period = getenv("WATCHDOG_USEC");
  const char* pid = getenv("WATCHDOG_PID");
  const long long us = period == nullptr ? 0 : atoll(period);
  if (us <= 0 || (pid != nullptr && atoll(pid) != getpid())) {
    return kNever;
  }
  return std::chrono::microseconds(us) / 2;
}

}  // namespace

ServiceNotifier::ServiceNotifier() {
  const char* path = getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(sockaddr_un::sun_path)) {
    return;
  }
  address_ = path;
  address_[0] = address_[0] == '@' ? '\0' : address_[0];
  socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  watchdog_ = WatchdogPeriod();
}

void ServiceNotifier::Send(const std::string& message) {
  if (!socket_.valid()) {
    return;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  address_.copy(address.sun_path, sizeof(address.sun_path));
  const socklen_t length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // A manager that does not listen is not an error here; it will notice by itself.
  const ssize_t sent = sendto(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&address), length);
  (void)sent;
}

void ServiceNotifier::Ready(std::string_view status) { Send("READY=1\nSTATUS=" + OneLine(status)); }

void ServiceNotifier::Reloading() {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(RealClock().Now()).count();
  Send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(us));
}

void ServiceNotifier::Stopping(std::string_view status) { Send("STOPPING=1\nSTATUS=" + OneLine(status)); }

void ServiceNotifier::Alive() { Send("WATCHDOG=1"); }

}  // namespace hpvm::server
