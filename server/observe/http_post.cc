// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_post.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

namespace hpvm {
namespace {

constexpr size_t kHeaderBytesMax = 16 * 1024;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// Waits for the socket; kCancelled when `stop` says so.
Status Await(int fd, short events, Time deadline, int stop) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - RealClock().Now()).count();
    if (left <= 0) {
      return DeadlineExceeded("The collector does not answer in time.");
    }
    pollfd waits[2] = {{fd, events, 0}, {stop, POLLIN, 0}};
    const int ready = poll(waits, stop >= 0 ? 2 : 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready < 0 && errno != EINTR) {
      return FromErrno(errno, "Waiting for the collector");
    }
    if (ready > 0 && stop >= 0 && waits[1].revents != 0) {
      return Cancelled("The export was broken off.");
    }
    if (ready > 0 && waits[0].revents != 0) {
      return absl::OkStatus();
    }
  }
}

StatusOr<UniqueFd> ConnectTo(const addrinfo& address, Time deadline, int stop) {
  UniqueFd fd(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (fd.get() < 0) {
    return FromErrno(errno, "Making a socket");
  }
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return FromErrno(errno, "Connecting to the collector");
  }
  HPVMD_RETURN_IF_ERROR(Await(fd.get(), POLLOUT, deadline, stop));
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    return FromErrno(error != 0 ? error : errno, "Connecting to the collector");
  }
  return fd;
}

StatusOr<UniqueFd> Connect(const HttpTarget& target, Time deadline, int stop) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int code = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &list); code != 0) {
    return Unavailable("The collector's name \"" + target.host + "\" is not resolved: " + gai_strerror(code) + ".");
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(list);
  Status last = Unavailable("The collector's name has no address.");
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    StatusOr<UniqueFd> fd = ConnectTo(*address, deadline, stop);
    if (fd.ok() || absl::IsCancelled(fd.status()) || absl::IsDeadlineExceeded(fd.status())) {
      return fd;
    }
    last = fd.status();
  }
  return last;
}

Status SendAll(int fd, std::string_view bytes, Time deadline, int stop) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      HPVMD_RETURN_IF_ERROR(Await(fd, POLLOUT, deadline, stop));
    } else if (errno != EINTR) {
      return FromErrno(errno, "Sending to the collector");
    }
  }
  return absl::OkStatus();
}

StatusOr<std::string> ReceiveHeader(int fd, Time deadline, int stop) {
  std::string header;
  char chunk[2048];
  while (header.find("\r\n\r\n") == std::string::npos) {
    if (header.size() > kHeaderBytesMax) {
      return Unavailable("The collector's answer has a header beyond " + std::to_string(kHeaderBytesMax) + " bytes.");
    }
    const ssize_t count = recv(fd, chunk, sizeof(chunk), 0);
    if (count > 0) {
      header.append(chunk, static_cast<size_t>(count));
    } else if (count == 0) {
      return Unavailable("The collector closed the connection without an answer.");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HPVMD_RETURN_IF_ERROR(Await(fd, POLLIN, deadline, stop));
    } else if (errno != EINTR) {
      return FromErrno(errno, "Receiving from the collector");
    }
  }
  return header;
}

int ReadNumber(std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && value > 0 ? value : 0;
}

// The number of seconds after "retry-after:", in any case of letters.
int RetryAfter(std::string header) {
  std::transform(header.begin(), header.end(), header.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  constexpr std::string_view kName = "\r\nretry-after:";
  const size_t at = header.find(kName);
  if (at == std::string::npos) {
    return 0;
  }
  const size_t digits = header.find_first_not_of(' ', at + kName.size());
  return digits == std::string::npos ? 0 : ReadNumber(std::string_view(header).substr(digits, 6));
}

}  // namespace

StatusOr<HttpAnswer> HttpPost(const HttpTarget& target, std::string_view content_type, std::string_view body,
                              Time deadline, int stop) {
  HPVMD_ASSIGN_OR_RETURN(const UniqueFd fd, Connect(target, deadline, stop));
  const bool is_ipv6 = target.host.find(':') != std::string::npos;
  std::string head = "POST " + target.path + " HTTP/1.1\r\nHost: " + (is_ipv6 ? "[" + target.host + "]" : target.host) +
                     ":" + target.port + "\r\nContent-Type: " + std::string(content_type) +
                     "\r\nContent-Length: " + std::to_string(body.size()) +
                     "\r\nUser-Agent: hpvmd\r\nConnection: close\r\n\r\n";
  HPVMD_RETURN_IF_ERROR(SendAll(fd.get(), head, deadline, stop));
  HPVMD_RETURN_IF_ERROR(SendAll(fd.get(), body, deadline, stop));
  HPVMD_ASSIGN_OR_RETURN(const std::string header, ReceiveHeader(fd.get(), deadline, stop));
  HttpAnswer answer;
  if (!header.starts_with("HTTP/1.") || header.size() < 12 || header[8] != ' ') {
    return Unavailable("The collector's answer is not HTTP.");
  }
  answer.code = ReadNumber(std::string_view(header).substr(9, 3));
  answer.retry_after_s = RetryAfter(header);
  return answer;
}

}  // namespace hpvm
