// SPDX-License-Identifier: Apache-2.0
// Session is one client's connection while gRPC has it: it decrypts and meters what gRPC reads, and meters and
// encrypts what gRPC writes.
//
// gRPC reads, writes and polls its socket itself; only its calls of recvmsg and sendmsg end up here
// (server/front/io_hooks.cc). So nothing is buffered in between, and gRPC notices a slow reader.
#ifndef HPVMD_SERVER_FRONT_SESSION_H_
#define HPVMD_SERVER_FRONT_SESSION_H_

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "server/front/connection_facts.h"
#include "server/front/frame_meter.h"

namespace hpvm::server {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;

// Shuts down the sending side and reads a little of the input: unread input would make the kernel drop the last
// output when the socket is closed, and the client would see a broken connection instead of an ended one.
void EndInOrder(int fd);

class Session {
 public:
  // Called with the reason when a connection is ended, on any thread. Once, or once more when it is also late.
  using OnFault = std::function<void(const Session&, FrameFault)>;

  // `fd` is non-blocking and owned by gRPC, which closes it. `ssl` has completed its handshake on it; null for plain
  // text. Borrows the clock.
  Session(int fd, ConnectionFacts facts, ConnectionPlace place, const FrameLimits& limits,
          std::shared_ptr<PeerCalls> peer, SslPtr ssl, OnFault on_fault, const Clock& clock = RealClock());
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Like recvmsg and sendmsg of the socket. gRPC has one thread at a time in each.
  ssize_t Receive(msghdr* message, int flags);
  ssize_t Send(const msghdr* message, int flags);

  // Ends the connection when its client reads none of gRPC's output, and a TCP connection when no caller has
  // authenticated on it; returns the reason, for Tell. Called while the socket is open.
  FrameFault EndIfLate(Time now);
  void Tell(FrameFault fault) const { on_fault_(*this, fault); }
  // Called when a call had an authenticated caller. Thread-safe.
  void MarkKnown() { is_known_.store(true, std::memory_order_relaxed); }

  // Returns true when any bytes came through this session: gRPC cannot have a call of a connection that it did not
  // read here.
  bool is_counted() const { return is_counted_.load(std::memory_order_relaxed); }
  int fd() const { return fd_; }
  const ConnectionFacts& facts() const { return facts_; }

 private:
  ssize_t ReceiveTls(msghdr* message);
  ssize_t SendTls(const msghdr* message);
  ssize_t WriteTls(const uint8_t* bytes, size_t size);
  // Returns -1 with errno, after telling the client if possible.
  ssize_t End(FrameFault fault);
  void SayGoodbye();

  const int fd_;
  const ConnectionFacts facts_;
  const ConnectionPlace place_;
  const OnFault on_fault_;
  const Duration stall_max_, unknown_max_;
  const Clock& clock_;
  const std::shared_ptr<PeerCalls> peer_;  // Shared by the connections of one peer.
  std::atomic<bool> is_counted_{false}, is_known_;
  bool ended_ = false;  // Used by the reader.
  std::mutex mutex_;    // Guards the members below.
  OpenCalls calls_;
  FrameMeter meter_;
  SslPtr ssl_;
  SentMeter sent_;
  std::atomic<int64_t> stalled_since_ns_{0};  // 0 when it is not stalled.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_SESSION_H_
