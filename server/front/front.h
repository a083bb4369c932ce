// SPDX-License-Identifier: Apache-2.0
// Front stands between the listening sockets and gRPC: a connection reaches gRPC when its TLS handshake is complete
// and its client has sent its first bytes, and under a Session that meters it.
//
// One thread does all handshakes, step by step: one connection can delay the others by at most one flight of TLS.
// ConnectionAcceptor limits how many connections may wait.
#ifndef HPVMD_SERVER_FRONT_FRONT_H_
#define HPVMD_SERVER_FRONT_FRONT_H_

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/lendable.h"
#include "base/status.h"
#include "server/events/events.h"
#include "server/front/connection_facts.h"
#include "server/front/frame_meter.h"
#include "server/front/session.h"
#include "server/front/tls_context.h"
#include "server/front/tls_watch.h"

namespace hpvm::server {

struct FrontOptions {
  FrameLimits frames;
  // From accepting a connection to its client's first bytes, including TLS.
  Duration handshake_max = std::chrono::seconds(10);
  std::string client_certificates = "none";
  // Concurrent calls on all connections of one address, or of one user id.
  uint64_t calls_per_peer = 1'024;
};

class Front {
 public:
  // Hands a connection to gRPC, on the front's thread.
  using Give = std::function<void(UniqueFd connection)>;

  // Borrows the observer and the clock. Without `tls`, TCP is plain text.
  Front(const FrontOptions& options, std::unique_ptr<TlsWatch> tls, Give give, Observer& observer,
        const Clock& clock = RealClock());
  // Ends the waiting connections; connections that gRPC has continue, but no longer report to the observer.
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // Returns kInternal or kInvalidArgument when frames cannot be metered or TLS cannot be set up.
  Status Start();
  // Thread-safe.
  void Take(AcceptedConnection connection);

 private:
  struct Waiting {
    AcceptedConnection connection;
    int fd() const { return connection.fd.get(); }
    SslPtr ssl;  // Set until the handshake is complete, and after it; null for plain text.
    bool is_secure = false;
    Time deadline{0};
  };
  // Kept for a while after a peer's last connection; otherwise each new connection would begin with fresh limits.
  struct Peer {
    Lendable<PeerCalls> calls;  // Lent to its sessions.
    Time seen{0};
  };
  // Outlives the front in sessions that gRPC still has.
  struct Ear {
    std::mutex mutex;
    Observer* observer = nullptr;  // Null when the front has been destroyed.
  };
  enum class Step { kWait, kReady, kGone, kHandshakeFailed, kNotHttp2 };

  void Loop();
  void LetIn();
  void Go(int fd);
  Step Advance(Waiting& waiting);
  static Step Handshake(Waiting& waiting);
  static Step AwaitPreface(const Waiting& waiting);
  void HandOver(Waiting waiting);
  std::shared_ptr<PeerCalls> CallsOf(const std::string& who);
  void Refuse(Waiting waiting, std::string_view reason, std::string_view why);
  void EndLate(Time now);
  void RenewContext();
  static void Tell(const std::shared_ptr<Ear>& ear, const ConnectionFacts& facts, std::string_view reason,
                   std::string_view why);

  const FrontOptions options_;
  const std::unique_ptr<TlsWatch> tls_;
  const Give give_;
  const Clock& clock_;
  const std::shared_ptr<Ear> ear_ = std::make_shared<Ear>();
  UniqueFd epoll_, wake_;
  std::mutex mutex_;
  std::deque<Waiting> arrived_;  // Guarded by mutex_.
  bool stop_ = false;            // Guarded by mutex_.
  // Used by the thread only.
  SslContext context_;
  std::unordered_map<int, Waiting> waiting_;
  std::unordered_map<std::string, Peer> peers_;  // Keyed by ConnectionFacts::who.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_FRONT_H_
