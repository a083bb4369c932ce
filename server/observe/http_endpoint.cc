// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace hpvm {
namespace {

StatusOr<UniqueFd> Listen(const HostPort& listen_at) {
  const std::string host = listen_at.host == "localhost" ? "127.0.0.1" : listen_at.host;
  const auto port = htons(static_cast<uint16_t>(std::stoul(listen_at.port)));  // ParseMetricsListen has checked it.
  sockaddr_storage address{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    size = sizeof(*v6);
  } else {
    return InvalidArgument("The host \"" + host + "\" is no address.");
  }
  UniqueFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(fd.get(), 64) != 0) {
    return Unavailable("Listening on \"" + listen_at.host + ":" + listen_at.port +
                       "\" for metrics failed: " + Message(FromErrno(errno, "bind")));
  }
  return fd;
}

std::string AddressOf(int fd, const HostPort& listen_at) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const uint16_t port = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                      : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  const bool is_ipv6 = listen_at.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + listen_at.host + "]" : listen_at.host) + ":" + std::to_string(ntohs(port));
}

const char* ReasonOf(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "HTTP Version Not Supported";  // 505.
  }
}

bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  return text.size() == lower.size() && std::equal(text.begin(), text.end(), lower.begin(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
         });
}

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

// With any port or none.
bool IsLoopbackHost(std::string_view host) {
  if (!host.starts_with('[')) {
    host = host.substr(0, host.find(':'));
    return ParseMetricsListen(std::string(host) + ":0").ok();
  }
  return host == "[::1]" || host.starts_with("[::1]:");
}

// What is wrong with the header's fields, as a code; 0: nothing.
int CheckFields(std::string_view fields) {
  bool has_host = false;
  while (!fields.empty()) {
    const size_t end = fields.find("\r\n");
    const std::string_view line = fields.substr(0, end);
    fields.remove_prefix(end == std::string_view::npos ? fields.size() : end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || line.find_first_of(" \t") < colon) {
      return 400;
    }
    const std::string_view name = line.substr(0, colon), value = TrimBlanks(line.substr(colon + 1));
    if (EqualsIgnoringCase(name, "host")) {
      if (has_host) {
        return 400;
      }
      if (!IsLoopbackHost(value)) {
        return 403;
      }
      has_host = true;
    } else if (EqualsIgnoringCase(name, "transfer-encoding") ||
               (EqualsIgnoringCase(name, "content-length") && value != "0")) {
      return 413;
    }
  }
  return 0;
}

}  // namespace

// One client: reading its header, then writing the answer, then waiting for its end.
struct HttpEndpoint::Connection {
  UniqueFd fd;
  Time deadline{0};
  std::string header, answer;
  size_t written = 0;
  enum class State : uint8_t { kReading, kWriting, kClosing, kDone } state = State::kReading;
};

StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(const HostPort& listen, Handlers handlers) {
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint());
  endpoint->handlers_ = std::move(handlers);
  HPVMD_ASSIGN_OR_RETURN(endpoint->listener_, Listen(listen));
  endpoint->address_ = AddressOf(endpoint->listener_.get(), listen);
  endpoint->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!endpoint->stop_.valid()) {
    return FromErrno(errno, "Making an eventfd");
  }
  endpoint->thread_ = std::thread([raw = endpoint.get()] { raw->Loop(); });
  return endpoint;
}

HttpEndpoint::~HttpEndpoint() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    HPVMD_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
}

void HttpEndpoint::Loop() {
  std::map<int, Connection> connections;  // By descriptor.
  while (true) {
    std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    Time next = RealClock().Now() + std::chrono::seconds(60);
    for (const auto& [fd, connection] : connections) {
      waits.push_back({fd, static_cast<short>(connection.state == Connection::State::kWriting ? POLLOUT : POLLIN), 0});
      next = std::min(next, connection.deadline);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - RealClock().Now()).count();
    poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(left + 1, 0)));
    if (waits[0].revents != 0) {
      return;
    }
    for (const pollfd& wait : waits) {
      if (const auto found = connections.find(wait.fd); found != connections.end() && wait.revents != 0) {
        Serve(found->second);
      }
    }
    const Time now = RealClock().Now();
    std::erase_if(connections, [&](const auto& entry) {
      return entry.second.state == Connection::State::kDone || now >= entry.second.deadline;
    });
    if (waits[1].revents != 0) {
      Accept(connections);
    }
  }
}

void HttpEndpoint::Accept(std::map<int, Connection>& connections) {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) {
      // The listener stays readable: not a busy loop until there is a descriptor again.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return;
  }
  if (connections.size() >= kConnectionsMax) {
    connections.erase(std::min_element(connections.begin(), connections.end(), [](const auto& a, const auto& b) {
      return a.second.deadline < b.second.deadline;
    }));
  }
  Connection& connection = connections[fd.get()];
  connection.fd = std::move(fd);
  connection.deadline = RealClock().Now() + kConnectionMax;
}

// Goes on with a connection that is ready, as far as it goes without waiting.
void HttpEndpoint::Serve(Connection& connection) {
  using State = Connection::State;
  char chunk[2048];
  while (connection.state == State::kReading) {
    const ssize_t count = recv(connection.fd.get(), chunk, sizeof(chunk), 0);
    if (count <= 0) {
      connection.state = count < 0 && (errno == EAGAIN || errno == EINTR) ? State::kReading : State::kDone;
      if (connection.state == State::kReading) {
        return;
      }
      break;
    }
    connection.header.append(chunk, static_cast<size_t>(count));
    const size_t end = connection.header.find("\r\n\r\n");
    const bool is_whole = end != std::string::npos;
    if (!is_whole && connection.header.size() <= kHeaderBytesMax) {
      continue;
    }
    bool is_head = false;
    const HttpResponse response = is_whole && end <= kHeaderBytesMax
                                      ? Answer(std::string_view(connection.header).substr(0, end), &is_head)
                                      : HttpResponse{.code = 431, .body = "The header is too large.\n"};
    connection.answer = "HTTP/1.1 " + std::to_string(response.code) + " " + ReasonOf(response.code) +
                        "\r\nContent-Type: " + response.content_type +
                        "\r\nContent-Length: " + std::to_string(response.body.size()) +
                        "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n" +
                        (response.code == 405 ? "Allow: GET, HEAD\r\n" : "") + "\r\n" + (is_head ? "" : response.body);
    connection.state = State::kWriting;
  }
  while (connection.state == State::kWriting) {
    const std::string_view rest = std::string_view(connection.answer).substr(connection.written);
    const ssize_t count = send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    connection.written += static_cast<size_t>(std::max<ssize_t>(count, 0));
    if (count < 0) {
      connection.state = State::kDone;
    } else if (connection.written == connection.answer.size()) {
      // What it still sends is read, lest the answer be lost to a reset.
      shutdown(connection.fd.get(), SHUT_WR);
      connection.state = State::kClosing;
    }
  }
  for (int i = 0; i < 16 && connection.state == State::kClosing; ++i) {
    const ssize_t count = recv(connection.fd.get(), chunk, sizeof(chunk), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
      connection.state = State::kDone;
    } else if (count < 0) {
      return;
    }
  }
}

// `header` is without its last empty line.
HttpResponse HttpEndpoint::Answer(std::string_view header, bool* is_head) {
  const auto refuse = [](int code, const char* text) {
    HttpResponse response;
    response.code = code;
    response.body = std::string(text) + "\n";
    return response;
  };
  if (std::any_of(header.begin(), header.end(),
                  [](char c) { return (c >= 0 && c < 0x20 && c != '\r' && c != '\n' && c != '\t') || c == 0x7f; })) {
    return refuse(400, "The request has control characters.");
  }
  const size_t line_end = header.find("\r\n");
  const std::string_view line = header.substr(0, line_end);
  const size_t first = line.find(' '), second = line.rfind(' ');
  if (first == std::string_view::npos || first == second) {
    return refuse(400, "The request line is malformed.");
  }
  const std::string_view method = line.substr(0, first), version = line.substr(second + 1);
  std::string_view path = line.substr(first + 1, second - first - 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return refuse(version.starts_with("HTTP/") ? 505 : 400, "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
  }
  if (path.empty() || path[0] != '/' || path.find(' ') != std::string_view::npos) {
    return refuse(400, "The path is malformed.");
  }
  const std::string_view fields = line_end == std::string_view::npos ? "" : header.substr(line_end + 2);
  if (const int code = CheckFields(fields); code != 0) {
    return refuse(code, code == 403   ? "The host is not a loopback address."
                        : code == 413 ? "Requests have no body here."
                                      : "A header field is malformed.");
  }
  if (method != "GET" && method != "HEAD") {
    return refuse(405, "Only GET and HEAD are known here.");
  }
  *is_head = method == "HEAD";
  path = path.substr(0, path.find('?'));
  const auto handler = handlers_.find(path);
  return handler == handlers_.end() ? refuse(404, "There are /metrics, /livez and /readyz.") : handler->second();
}

}  // namespace hpvm
