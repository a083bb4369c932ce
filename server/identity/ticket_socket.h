// SPDX-License-Identifier: Apache-2.0
// Tells local processes apart: beside each Unix socket of the service, PATH.auth. Who connects there gets one line for
// the user id that the kernel gives for the peer, and the connection ends:
//
//   hpvmt_… 3600          the ticket, and for how many seconds it is good
//   error: …              why there is none
//
// gRPC shows no peer's user id, which is why this socket is there. Nothing is read from it, and a line fits into a
// socket's buffer, so that no peer, however slow, makes its one thread wait.
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

// What the socket answers to a user id; without the end of the line. Pure.
std::string TicketLineFor(uint32_t uid, const Directory& directory, const TicketMint& mint, Time now);

class TicketSocket {
 public:
  using Answer = std::function<std::string(uint32_t uid)>;  // On the socket's thread.
  // Listens beside each of these service sockets, with their permissions. kUnavailable or what opening them gave.
  static StatusOr<std::unique_ptr<TicketSocket>> Start(const std::vector<std::string>& service_paths, mode_t mode,
                                                       Answer answer);
  // Ends the thread and removes the files.
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
  UniqueFd stop_;  // An eventfd.
  std::thread thread_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_TICKET_SOCKET_H_
