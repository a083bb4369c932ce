// SPDX-License-Identifier: Apache-2.0
// ServiceNotifier tells systemd about the daemon's state if systemd started it with Type=notify: the protocol of
// sd_notify(3), one datagram per message to the socket that the environment names.
#ifndef HPVMD_SERVER_PROCESS_SERVICE_NOTIFIER_H_
#define HPVMD_SERVER_PROCESS_SERVICE_NOTIFIER_H_

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/io/fd.h"

namespace hpvm::server {

// Does nothing without NOTIFY_SOCKET in the environment. Thread-safe.
class ServiceNotifier {
 public:
  // Reads the environment.
  ServiceNotifier();

  void Ready(std::string_view status);
  void Reloading();  // Must be followed by Ready.
  void Stopping(std::string_view status);
  // Required interval of Alive; kNever when there is none.
  Duration watchdog() const { return watchdog_; }
  void Alive();

 private:
  void Send(const std::string& message);
  std::string address_;  // Path in a sockaddr_un; abstract names begin with a zero byte.
  UniqueFd socket_;
  Duration watchdog_ = kNever;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_SERVICE_NOTIFIER_H_
