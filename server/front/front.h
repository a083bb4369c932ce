// SPDX-License-Identifier: Apache-2.0
// Between the sockets that listen and gRPC: a connection comes to gRPC when its TLS handshake is done and its client
// has begun to say something, and under a Session that counts what it says.
//
// One thread does all handshakes, a step at a time: what one connection makes it do while others wait is bounded by one
// flight of TLS. How many may wait is ConnectionAcceptor's to limit.
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
  // From accepting a connection to its client's first words, TLS included.
  Duration handshake_max = std::chrono::seconds(10);
  std::string client_certificates = "none";
  // In progress on all connections of one address, or of one user id.
  uint64_t calls_per_peer = 1'024;
};

class Front {
 public:
  // gRPC takes a connection, on the front's thread.
  using Give = std::function<void(UniqueFd connection)>;

  // Borrows the observer, and the clock. `tls`: without one TCP is plain text.
  Front(const FrontOptions& options, std::unique_ptr<TlsWatch> tls, Give give, Observer& observer,
        const Clock& clock = RealClock());
  // Ends the connections that wait; what gRPC has goes on, and is told to the observer no more.
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  // kInternal, kInvalidArgument: nothing could be counted, or no TLS be spoken.
  Status Start();
  // Any thread.
  void Take(AcceptedConnection connection);

 private:
  struct Waiting {
    AcceptedConnection connection;
    int fd() const { return connection.fd.get(); }
    SslPtr ssl;  // Until the handshake is done, and after it; none: plain text.
    bool is_secure = false;
    Time deadline{0};
  };
  // Kept for a while after its last connection, or each new one would begin anew.
  struct Peer {
    Lendable<PeerCalls> calls;  // Lent to its sessions.
    Time seen{0};
  };
  // Outlives the front in sessions that gRPC still has.
  struct Ear {
    std::mutex mutex;
    Observer* observer = nullptr;  // Null: the front is gone.
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
  // The thread's.
  SslContext context_;
  std::unordered_map<int, Waiting> waiting_;
  std::unordered_map<std::string, Peer> peers_;  // By ConnectionFacts::who.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_FRONT_H_
