// SPDX-License-Identifier: Apache-2.0
#include "server/identity/ticket_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "server/process/unix_socket.h"

namespace hpvm::server {
namespace {

// When there are no descriptors left: others have to close theirs first.
constexpr int kPauseMs = 20;
// Connections answered before the thread looks whether it is to end.
constexpr int kBurst = 64;

}  // namespace

std::string TicketLineFor(uint32_t uid, const Directory& directory, const TicketMint& mint, Time now) {
  if (!directory.IsAdministrator(uid) && !directory.TenantOfUid(uid).has_value()) {
    return "error: User id " + std::to_string(uid) +
           " belongs to no tenant; an administrator can give it to one (hpvmctl tenant).";
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(TicketMint::kLifetime).count();
  return mint.Issue(uid, now) + " " + std::to_string(seconds);
}

StatusOr<std::unique_ptr<TicketSocket>> TicketSocket::Start(const std::vector<std::string>& service_paths, mode_t mode,
                                                            Answer answer) {
  std::unique_ptr<TicketSocket> socket(new TicketSocket(std::move(answer)));
  for (const std::string& service_path : service_paths) {
    std::string path = service_path + kTicketSocketSuffix;
    HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, ListenUnix(path, mode));
    socket->listeners_.push_back({std::move(path), std::move(fd)});
  }
  socket->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (socket->stop_.get() < 0) {
    return FromErrno(errno, "Making an eventfd");
  }
  socket->thread_ = std::thread([made = socket.get()] { made->Loop(); });
  return socket;
}

TicketSocket::~TicketSocket() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    // An eventfd that nobody has written to takes it.
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  for (const Listener& listener : listeners_) {
    unlink(listener.path.c_str());
  }
}

void TicketSocket::Loop() {
  std::vector<pollfd> waiting;
  waiting.push_back({stop_.get(), POLLIN, 0});
  for (const Listener& listener : listeners_) {
    waiting.push_back({listener.fd.get(), POLLIN, 0});
  }
  while (true) {
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) {
      return;
    }
    if ((waiting[0].revents & POLLIN) != 0) {
      return;
    }
    for (size_t i = 1; i < waiting.size(); ++i) {
      for (int served = 0; served < kBurst && (waiting[i].revents & POLLIN) != 0 && Serve(waiting[i].fd); ++served) {
      }
    }
  }
}

// False: nobody waits any more, or nothing can be done for them now.
bool TicketSocket::Serve(int listener) {
  const UniqueFd peer(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (peer.get() < 0) {
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      poll(nullptr, 0, kPauseMs);
    }
    return error == ECONNABORTED || error == EINTR;
  }
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return true;
  }
  const std::string line = answer_(credentials.uid) + "\n";
  // Does not block: the socket does not, and its buffer is empty. A peer that has gone needs no answer.
  (void)!send(peer.get(), line.data(), line.size(), MSG_NOSIGNAL);
  return true;
}

}  // namespace hpvm::server
