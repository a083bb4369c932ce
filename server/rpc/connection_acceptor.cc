// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/thread_watch.h"
#include "server/process/log.h"
#include "server/process/unix_socket.h"

namespace hpvm::server {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kEventsMax = 64;
// Number of connections accepted before the thread checks which have ended.
constexpr int kBurst = 64;
// Pause when there are no descriptors left: other code has to close some first.
constexpr int kPauseMs = 20;
constexpr int kOne = 1, kZero = 0;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

StatusOr<UniqueFd> ListenOn(const addrinfo& address, int port) {
  sockaddr_storage where{};
  std::copy_n(reinterpret_cast<const char*>(address.ai_addr), address.ai_addrlen, reinterpret_cast<char*>(&where));
  if (port != 0) {
    // Both address families have the port at the same offset.
    reinterpret_cast<sockaddr_in*>(&where)->sin_port = htons(static_cast<uint16_t>(port));
  }
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // "::" is every address, of both families.
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &kOne, sizeof(kOne)) != 0 ||
      (address.ai_family == AF_INET6 && setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &kZero, sizeof(kZero)) != 0) ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), address.ai_addrlen) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return FromErrno(errno, "Listening");
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0
             ? ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port)
             : 0;
}

// Without the port; an IPv4 address on a dual-stack socket counts as IPv4.
std::string AddressOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof(text));
  } else if (const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
             address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six)) {
    inet_ntop(AF_INET, &six.s6_addr[12], text, sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &six, text, sizeof(text));
  }
  return text;
}

// Same form as gRPC's.
std::string NameOf(const sockaddr_storage& address, const std::string& host) {
  // Both address families have the port at the same offset.
  const auto port = std::to_string(ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port));
  return host.find(':') != std::string::npos ? "ipv6:%5B" + host + "%5D:" + port : "ipv4:" + host + ":" + port;
}

// Returns the user of a Unix socket's peer; nothing when the kernel does not know it.
std::optional<uid_t> UserOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 ? std::optional(credentials.uid)
                                                                           : std::nullopt;
}

std::string WhoOf(const std::optional<uid_t>& user) {
  return user.has_value() ? "uid " + std::to_string(*user) : "unix";
}

}  // namespace

ConnectionPlace ConnectionCounts::Take(const std::string& who, uint64_t all_max, uint64_t own_max) {
  std::lock_guard lock(mutex_);
  const auto found = by_who_.find(who);
  if (all_ >= all_max || (found != by_who_.end() && found->second >= own_max)) {
    return nullptr;
  }
  ++all_;
  ++by_who_[who];
  return ConnectionPlace(this, [self = shared_from_this(), who](const void*) { self->GiveBack(who); });
}

void ConnectionCounts::GiveBack(const std::string& who) {
  std::lock_guard lock(mutex_);
  --all_;
  if (const auto found = by_who_.find(who); --found->second == 0) {
    by_who_.erase(found);
  }
}

uint64_t ConnectionCounts::all() const {
  std::lock_guard lock(mutex_);
  return all_;
}

ConnectionAcceptor::~ConnectionAcceptor() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    listens_.store(false);
    (void)!write(stop_.get(), &one, sizeof(one));  // The write cannot fail: nobody else writes to the eventfd.
    thread_.join();
  }
}

Status ConnectionAcceptor::ListenUnix(const std::string& path, mode_t mode, Take take) {
  HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, server::ListenUnix(path, mode));
  listeners_.push_back({std::move(fd), /*is_unix=*/true, std::move(take)});
  return absl::OkStatus();
}

StatusOr<int> ConnectionAcceptor::ListenTcp(const std::string& host, const std::string& port, Take take) {
  addrinfo spec{};
  spec.ai_socktype = SOCK_STREAM;
  spec.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &spec, &found); error != 0) {
    return Unavailable("The host \"" + host + "\" has no address: " + gai_strerror(error) + ".");
  }
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  int chosen = 0;
  Status last;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    StatusOr<UniqueFd> fd = ListenOn(*at, chosen);
    if (fd.ok()) {
      chosen = PortOf(fd->get());
      listeners_.push_back({*std::move(fd), /*is_unix=*/false, take});
    } else {
      last = fd.status();
    }
  }
  return chosen != 0 ? StatusOr<int>(chosen) : last;
}

Status ConnectionAcceptor::Start() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !stop_.valid()) {
    return FromErrno(errno, "Creating the event loop that accepts connections");
  }
  std::vector<int> waited = {stop_.get()};
  for (const Listener& listener : listeners_) {
    waited.push_back(listener.fd.get());
  }
  for (const int fd : waited) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return FromErrno(errno, "Waiting for connections");
    }
  }
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void ConnectionAcceptor::Loop() {
  std::array<epoll_event, kEventsMax> events;
  while (true) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == stop_.get()) {
        return;
      }
      for (const Listener& listener : listeners_) {
        if (listener.fd.get() == fd) {
          const WatchedItem item("acceptor", "connections");
          Accept(listener);
        }
      }
    }
  }
}

void ConnectionAcceptor::Accept(const Listener& listener) {
  for (int i = 0; i < kBurst && listens_.load(); ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    UniqueFd fd(accept4(listener.fd.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        LogError("No connection can be accepted: there are no file descriptors left");
        poll(nullptr, 0, kPauseMs);
        return;
      }
      if (errno == ECONNABORTED || errno == EINTR) {
        continue;
      }
      return;
    }
    ConnectionFacts facts;
    facts.is_unix = listener.is_unix;
    facts.accepted = clock_.Now();
    facts.who = listener.is_unix ? WhoOf(UserOf(fd.get())) : AddressOf(address);
    facts.peer = listener.is_unix ? "unix:" : NameOf(address, facts.who);
    ConnectionPlace place = IsNewcomerAdmitted(facts.who) ? Admit(fd.get(), facts) : nullptr;
    if (place == nullptr) {
      refused_.fetch_add(1);
      LogWarning("A connection was refused", {{"peer", facts.who}, {"connections", std::to_string(connections())}});
      continue;
    }
    if (!listener.is_unix) {
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &kOne, sizeof(kOne));
    }
    listener.take({std::move(facts), std::move(place), std::move(fd)});
  }
}

bool ConnectionAcceptor::IsNewcomerAdmitted(const std::string& who) {
  // More addresses than this within a window are counted as one.
  constexpr size_t kCountedMax = 4'096;
  const Time now = clock_.Now();
  if (now - window_ >= ConnectionLimits::kNewWindow) {
    window_ = now;
    newcomers_.clear();
  }
  uint64_t& count = newcomers_[newcomers_.size() < kCountedMax || newcomers_.count(who) != 0 ? who : ""];
  if (count >= limits_.new_max) {
    return false;
  }
  ++count;
  return true;
}

ConnectionPlace ConnectionAcceptor::Admit(int fd, const ConnectionFacts& facts) {
  const std::optional<uid_t> user = facts.is_unix ? UserOf(fd) : std::nullopt;
  if (user.has_value() && (*user == 0 || *user == geteuid())) {
    return counts_->Take(facts.who, limits_.connections_max, limits_.connections_max);
  }
  return counts_->Take(facts.who, limits_.connections_max - limits_.reserved(),
                       facts.is_unix ? limits_.per_user_max : limits_.per_peer_max);
}

}  // namespace hpvm::server
