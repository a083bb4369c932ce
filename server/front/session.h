// SPDX-License-Identifier: Apache-2.0
// One client's connection while gRPC has it: what gRPC reads from it is decrypted and counted here, what gRPC writes is
// counted and encrypted.
//
// gRPC reads and writes its socket itself, and waits for it itself; only its calls of recvmsg and sendmsg end up here
// (server/front/io_hooks.cc). So nothing is buffered in between, and a slow reader is slow for gRPC.
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

// Ends what goes to the client, and takes a little of what has come: unread, it would make the kernel drop the last
// words when the socket is closed, and the client would find the connection broken, not ended.
void EndInOrder(int fd);

class Session {
 public:
  // Why a connection was ended; on any thread. Once, or once more when it is late, too.
  using OnFault = std::function<void(const Session&, FrameFault)>;

  // `fd` does not block and is gRPC's, who closes it. `ssl` has done its handshake on it; none: plain text. Borrows the
  // clock.
  Session(int fd, ConnectionFacts facts, ConnectionPlace place, const FrameLimits& limits,
          std::shared_ptr<PeerCalls> peer, SslPtr ssl, OnFault on_fault, const Clock& clock = RealClock());
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // As recvmsg and sendmsg of the socket. gRPC has one thread at a time in each.
  ssize_t Receive(msghdr* message, int flags);
  ssize_t Send(const msghdr* message, int flags);

  // Ends the connection when its client takes nothing of what gRPC has for it, and one over TCP when nobody has become
  // known on it: answers why, for Tell. While the socket is open.
  FrameFault EndIfLate(Time now);
  void Tell(FrameFault fault) const { on_fault_(*this, fault); }
  // A call has had a caller who is known. Any thread.
  void MarkKnown() { is_known_.store(true, std::memory_order_relaxed); }

  // Whether anything has come this way: gRPC cannot have a call of a connection that it did not read here.
  bool is_counted() const { return is_counted_.load(std::memory_order_relaxed); }
  int fd() const { return fd_; }
  const ConnectionFacts& facts() const { return facts_; }

 private:
  ssize_t ReceiveTls(msghdr* message);
  ssize_t SendTls(const msghdr* message);
  ssize_t WriteTls(const uint8_t* bytes, size_t size);
  // -1 with errno, after the client has been told, if it can be.
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
  bool ended_ = false;  // The reader's.
  std::mutex mutex_;    // What is below.
  OpenCalls calls_;
  FrameMeter meter_;
  SslPtr ssl_;
  SentMeter sent_;
  std::atomic<int64_t> stalled_since_ns_{0};  // 0: it is not.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_SESSION_H_
