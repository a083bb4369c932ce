// SPDX-License-Identifier: Apache-2.0
// Accepts connections and counts them, since gRPC (1.51) accepts whatever comes: beyond [limits].connections_max, or
// more from one address than connections_per_peer_max, a connection is closed at once, and its client finds the server
// unavailable. The same holds for one user id of Unix sockets, and the last places are for root and the daemon's own
// user, so that administrators get in whatever others do.
//
// A connection is counted until whoever took it gives its place back: for what gRPC has, that is when gRPC closes it.
// One thread; it reads nothing from anybody.
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
  // Of one address over TCP.
  uint64_t per_peer_max = 32;
  // New ones of one address, or one user id of Unix sockets, within kNewWindow: who reconnects as fast as gRPC throws
  // it out keeps gRPC busy with nothing else.
  uint64_t new_max = 250;
  // Of one user id of Unix sockets, but for root and the daemon's own.
  uint64_t per_user_max = 128;
  static constexpr Duration kNewWindow = std::chrono::seconds(5);
  // Places that only root and the daemon's user get.
  uint64_t reserved() const { return std::min<uint64_t>(connections_max / 16, 64); }
};

// How many connections there are, of whom. Any thread.
class ConnectionCounts : public std::enable_shared_from_this<ConnectionCounts> {
 public:
  // One more of `who`; null when there are `all_max` in all, or `own_max` of theirs. Places may outlive the acceptor.
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
  // Takes a connection, on the acceptor's thread.
  using Take = std::function<void(AcceptedConnection connection)>;

  // Borrows the clock.
  explicit ConnectionAcceptor(const ConnectionLimits& limits, const Clock& clock = RealClock())
      : limits_(limits), clock_(clock) {}
  // Stops, and forgets connections, which go on.
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // --- Before Start ---
  Status ListenUnix(const std::string& path, mode_t mode, Take take);
  // Every address of the host; port 0 chooses one. Answers the port.
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
  // Null: there is no place for it.
  ConnectionPlace Admit(int fd, const ConnectionFacts& facts);

  const ConnectionLimits limits_;
  const Clock& clock_;
  std::vector<Listener> listeners_;
  UniqueFd epoll_, stop_;
  std::thread thread_;
  // The thread's.
  Time window_{0};
  std::unordered_map<std::string, uint64_t> newcomers_;  // Of the present window.
  const std::shared_ptr<ConnectionCounts> counts_ = std::make_shared<ConnectionCounts>();
  std::atomic<uint64_t> refused_{0};
  std::atomic<bool> listens_{true};
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CONNECTION_ACCEPTOR_H_
