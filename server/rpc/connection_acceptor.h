// SPDX-License-Identifier: Apache-2.0
// ConnectionAcceptor accepts and limits connections, because gRPC (1.51) accepts any number: beyond
// [limits].connections_max, or more from one address than connections_per_peer_max, a connection is closed at once,
// and its client finds the server unavailable. The same holds for one user id on Unix sockets. The last places are
// reserved for root and the daemon's own user, so that administrators can always connect.
//
// A connection counts until its owner returns its place: for gRPC, that is when gRPC closes it. Uses one thread,
// which reads from no connection.
#ifndef HPVMD_SERVER_RPC_CONNECTION_ACCEPTOR_H_
#define HPVMD_SERVER_RPC_CONNECTION_ACCEPTOR_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "server/front/connection_facts.h"

namespace hpvm::server {

struct ConnectionLimits {
  uint64_t connections_max = 1'024;
  // Per address over TCP.
  uint64_t per_peer_max = 32;
  // New connections of one address, or one user id on Unix sockets, within kNewWindow: a client that reconnects as
  // fast as gRPC disconnects it would keep gRPC busy with nothing else.
  uint64_t new_max = 250;
  // Per user id on Unix sockets, except for root and the daemon's own user.
  uint64_t per_user_max = 128;
  static constexpr Duration kNewWindow = std::chrono::seconds(5);
  // Number of places that only root and the daemon's user get.
  uint64_t reserved() const { return std::min<uint64_t>(connections_max / 16, 64); }
};

// ConnectionCounts counts connections by peer. Thread-safe.
class ConnectionCounts : public std::enable_shared_from_this<ConnectionCounts> {
 public:
  // Adds a connection of `who`; returns null when there are `all_max` in total, or `own_max` of that peer. Places may
  // outlive the acceptor.
  ConnectionPlace Take(const std::string& who, uint64_t all_max, uint64_t own_max);
  uint64_t all() const;

 private:
  void GiveBack(const std::string& who);
  mutable std::mutex mutex_;
  uint64_t all_ = 0;
  std::unordered_map<std::string, uint64_t> by_who_;
};

class ConnectionAcceptor {
 public:
  // Receives a connection, on the acceptor's thread.
  using Take = std::function<void(AcceptedConnection connection)>;

  // Borrows the clock.
  explicit ConnectionAcceptor(const ConnectionLimits& limits, const Clock& clock = RealClock())
      : limits_(limits), clock_(clock) {}
  // Stops accepting; existing connections continue.
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // --- Before Start ---
  Status ListenUnix(const std::string& path, mode_t mode, Take take);
  // Listens on every address of the host; port 0 chooses one. Returns the port.
  StatusOr<int> ListenTcp(const std::string& host, const std::string& port, Take take);
  Status Start();

  uint64_t connections() const { return counts_->all(); }
  uint64_t refused() const { return refused_.load(); }

 private:
  struct Listener {
    UniqueFd fd;
    bool is_unix = false;
    Take take;
  };
  void Loop();
  void Accept(const Listener& listener);
  bool IsNewcomerAdmitted(const std::string& who);
  // Returns null when there is no place for the connection.
  ConnectionPlace Admit(int fd, const ConnectionFacts& facts);

  const ConnectionLimits limits_;
  const Clock& clock_;
  std::vector<Listener> listeners_;
  UniqueFd epoll_, stop_;
  std::thread thread_;
  // Used by the thread only.
  Time window_{0};
  std::unordered_map<std::string, uint64_t> newcomers_;  // In the present window.
  const std::shared_ptr<ConnectionCounts> counts_ = std::make_shared<ConnectionCounts>();
  std::atomic<uint64_t> refused_{0};
  std::atomic<bool> listens_{true};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CONNECTION_ACCEPTOR_H_
