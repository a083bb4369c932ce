// SPDX-License-Identifier: Apache-2.0
// Tells systemd, when it started this daemon with Type=notify, what the daemon is about: sd_notify(3)'s protocol, one
// datagram a message to the socket that the environment names.
#ifndef HPVMD_SERVER_PROCESS_SERVICE_NOTIFIER_H_
#define HPVMD_SERVER_PROCESS_SERVICE_NOTIFIER_H_

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/io/fd.h"

namespace hpvm::server {

// Without NOTIFY_SOCKET in the environment nothing is told to anybody. Any thread.
class ServiceNotifier {
 public:
  // Reads the environment.
  ServiceNotifier();

  void Ready(std::string_view status);
  void Reloading();  // Followed by Ready.
  void Stopping(std::string_view status);
  // How often Alive must come; kNever: never.
  Duration watchdog() const { return watchdog_; }
  void Alive();

 private:
  void Send(const std::string& message);
  std::string address_;  // As a sockaddr_un's path; abstract names begin with a zero byte.
  UniqueFd socket_;
  Duration watchdog_ = kNever;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_SERVICE_NOTIFIER_H_
