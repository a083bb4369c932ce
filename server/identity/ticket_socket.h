// SPDX-License-Identifier: Apache-2.0
// TicketSocket tells local processes apart: it listens on PATH.auth beside each Unix socket of the service. A process
// that connects there receives one line, which depends on the peer's user id and groups as the kernel reports them, and
// the connection ends:
//
//   hpvmt_… 3600          the ticket, and the number of seconds for which it is valid
//   error: …              why the process gets no ticket
//
// This socket exists because gRPC does not report the peer's user id. The daemon reads nothing from it, and a line fits
// into the socket's buffer, so a slow peer cannot block the single thread that serves all of them.
#ifndef HPVMD_SERVER_IDENTITY_TICKET_SOCKET_H_
#define HPVMD_SERVER_IDENTITY_TICKET_SOCKET_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "server/identity/directory.h"
#include "server/identity/token.h"

namespace hpvm::server {

inline constexpr char kTicketSocketSuffix[] = ".auth";

// A local peer's ids as the kernel reports them (SO_PEERCRED, SO_PEERGROUPS).
struct LocalPeer {
  uint32_t uid = 0;
  std::vector<uint32_t> gids;  // The primary one first.
};

// Returns the answer to a peer, without the end of the line. The tenant of the user id takes precedence over the
// primary group's tenant, and that over the tenant of the other groups, which must all belong to one tenant. Pure.
std::string TicketLineFor(const LocalPeer& peer, const Directory& directory, const TicketMint& mint, Time now);

class TicketSocket {
 public:
  using Answer = std::function<std::string(const LocalPeer& peer)>;  // Called on the socket's thread.
  // Listens beside each of these service sockets, with the permissions `mode`. Returns kUnavailable or the error from
  // opening a socket.
  static StatusOr<std::unique_ptr<TicketSocket>> Start(const std::vector<std::string>& service_paths, mode_t mode,
                                                       Answer answer);
  // Ends the thread and removes the sockets' files.
  ~TicketSocket();
  TicketSocket(const TicketSocket&) = delete;
  TicketSocket& operator=(const TicketSocket&) = delete;

 private:
  struct Listener {
    std::string path;
    UniqueFd fd;
  };
  explicit TicketSocket(Answer answer) : answer_(std::move(answer)) {}
  void Loop();
  bool Serve(int listener);

  const Answer answer_;
  std::vector<Listener> listeners_;
  UniqueFd stop_;  // An eventfd that ends the thread.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_TICKET_SOCKET_H_
