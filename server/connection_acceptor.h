// SPDX-License-Identifier: Apache-2.0
// Accepts connections and counts them, since gRPC (1.51) accepts whatever comes: beyond [limits].connections_max, or
// more from one address than connections_per_peer_max, a connection is closed at once, and its client finds the server
// unavailable. The same holds for one user id of Unix sockets, and the last places are for root and the daemon's own
// user, so that administrators get in whatever others do.
//
// Each connection is held by a second descriptor until both of its directions have been shut down, which gRPC does
// before it closes its own: so what is counted is what gRPC has. One thread; it reads nothing from anybody.
#ifndef HPVMD_SERVER_CONNECTION_ACCEPTOR_H_
#define HPVMD_SERVER_CONNECTION_ACCEPTOR_H_

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
#include "base/fd.h"
#include "base/status.h"

namespace hpvm {

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
  // From TCP connections on which no call has had a known caller: others' place is not theirs for long.
  Duration unknown_max = std::chrono::seconds(30);
  // Places that only root and the daemon's user get.
  uint64_t reserved() const { return std::min<uint64_t>(connections_max / 16, 64); }
};

class ConnectionAcceptor {
 public:
  // Takes a connection, which does not block; on the acceptor's thread.
  using Take = std::function<void(UniqueFd connection)>;

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
  // Nobody is let in any more; connections that stand are counted on. Once.
  void StopListening();

  // A call whose caller is known came by the connection from there, as gRPC names it ("ipv4:127.0.0.1:4711"): it may
  // stay. Any thread.
  void MarkKnown(const std::string& address);

  uint64_t connections() const { return connections_.load(); }
  uint64_t refused() const { return refused_.load(); }

 private:
  struct Listener {
    UniqueFd fd;
    bool is_unix = false;
    Take take;
  };
  struct Connection {
    UniqueFd fd;  // Beside gRPC's own.
    std::string peer, address;
  };
  struct Peer {
    std::string name;     // An address, or "uid 1000".
    std::string address;  // As gRPC names the connection; empty for Unix sockets, whose connections have no names.
    bool is_unix = false, is_privileged = false;
  };
  void Loop();
  void Accept(const Listener& listener);
  bool IsNewcomerAdmitted(const std::string& who);
  bool Admit(int fd, const Peer& peer);
  void Forget(int fd);
  // Ends those that have been unknown for too long. How long until the next one may be; -1: there is none.
  int EndUnknown();

  const ConnectionLimits limits_;
  const Clock& clock_;
  std::vector<Listener> listeners_;
  UniqueFd epoll_, stop_;
  std::thread thread_;
  // The thread's.
  std::unordered_map<int, Connection> held_;
  std::unordered_map<std::string, uint64_t> by_peer_;
  Time window_{0};
  std::unordered_map<std::string, uint64_t> newcomers_;  // Of the present window.
  std::mutex unknown_mutex_;
  struct Unknown {
    int fd = -1;  // The key of `held_`.
    Time deadline{0};
  };
  std::unordered_map<std::string, Unknown> unknown_;  // By address; guarded by the mutex.
  std::atomic<uint64_t> connections_{0}, refused_{0};
  std::atomic<bool> listens_{true};
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_CONNECTION_ACCEPTOR_H_
