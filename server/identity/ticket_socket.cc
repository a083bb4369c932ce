// SPDX-License-Identifier: Apache-2.0
#include "server/identity/ticket_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "server/process/unix_socket.h"

namespace hpvm::server {
namespace {

// Pause when no file descriptors are left: other parts of the daemon have to close some first.
constexpr int kPauseMs = 20;
// Number of connections answered before the thread checks again whether it should end.
constexpr int kBurst = 64;

// Returns the group by which the peer belongs to a tenant.
StatusOr<uint32_t> TenantsGroup(const LocalPeer& peer, const Directory& directory) {
  std::map<std::string, uint32_t> found;
  for (size_t i = 0; i < peer.gids.size(); ++i) {
    const std::optional<std::string> tenant = directory.TenantOfGid(peer.gids[i]);
    if (i == 0 && tenant.has_value()) {
      return peer.gids[i];
    }
    if (tenant.has_value()) {
      found.emplace(*tenant, peer.gids[i]);
    }
  }
  const std::string user = "User id " + std::to_string(peer.uid);
  if (found.empty()) {
    return Unauthenticated(user +
                           " belongs to no tenant, nor does a group of this user; an administrator can give the user "
                           "id to a tenant (hpvmctl tenant set --add-uid).");
  }
  if (found.size() > 1) {
    return Unauthenticated(user + " is in groups of more than one tenant (\"" + found.begin()->first + "\", \"" +
                           std::next(found.begin())->first +
                           "\"); an administrator can give the user id to one of them (hpvmctl tenant set --add-uid).");
  }
  return found.begin()->second;
}

// Returns the groups of a connected socket's peer. The kernel allows 65,536 groups (NGROUPS_MAX); only root can assign
// them.
std::vector<uint32_t> GroupsOf(int peer, uint32_t primary) {
  std::vector<gid_t> gids(64);
  auto size = static_cast<socklen_t>(gids.size() * sizeof(gid_t));
  int result = getsockopt(peer, SOL_SOCKET, SO_PEERGROUPS, gids.data(), &size);
  if (result != 0 && errno == ERANGE) {
    gids.resize(size / sizeof(gid_t));
    result = getsockopt(peer, SOL_SOCKET, SO_PEERGROUPS, gids.data(), &size);
  }
  gids.resize(result == 0 ? size / sizeof(gid_t) : 0);
  gids.insert(gids.begin(), primary);
  return gids;
}

}  // namespace

std::string TicketLineFor(const LocalPeer& peer, const Directory& directory, const TicketMint& mint, Time now) {
  LocalUser user{peer.uid, std::nullopt};
  if (!directory.IsAdministrator(peer.uid) && !directory.TenantOfUid(peer.uid).has_value()) {
    StatusOr<uint32_t> gid = TenantsGroup(peer, directory);
    if (!gid.ok()) {
      return "error: " + std::string(gid.status().message());
    }
    user.gid = *gid;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(TicketMint::kLifetime).count();
  return mint.Issue(user, now) + " " + std::to_string(seconds);
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
    // The write cannot fail: nothing else has written to this eventfd.
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

// Answers one connection. Returns false when none waits, or none can be accepted now.
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
  const std::string line = answer_({credentials.uid, GroupsOf(peer.get(), credentials.gid)}) + "\n";
  // Sending does not block: the socket is non-blocking and its buffer is empty. A peer that has gone needs no answer.
  (void)!send(peer.get(), line.data(), line.size(), MSG_NOSIGNAL);
  return true;
}

}  // namespace hpvm::server
