// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_endpoint.h"

#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>

#include "base/io/fd.h"

namespace hpvm::server {
namespace {

constexpr int kNice = 10;

StatusOr<UniqueFd> Listen(const HostPort& listen_at) {
  const std::string host = listen_at.host == "localhost" ? "127.0.0.1" : listen_at.host;
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), listen_at.port.c_str(), &hints, &found) != 0) {
    return InvalidArgument("The host \"" + host + "\" is no address.");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
  UniqueFd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0 || listen(fd.get(), 64) != 0) {
    return Unavailable("Listening on \"" + listen_at.host + ":" + listen_at.port +
                       "\" for metrics failed: " + Message(FromErrno(errno, "bind")));
  }
  return fd;
}

std::string AddressOf(MHD_Daemon* server, const std::string& host) {
  const uint16_t port = MHD_get_daemon_info(server, MHD_DAEMON_INFO_BIND_PORT)->port;
  return (host.find(':') != std::string::npos ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// With any port or none.
bool IsLoopbackHost(std::string_view host) {
  if (!host.starts_with('[')) {
    host = host.substr(0, host.find(':'));
    return ParseMetricsListen(std::string(host) + ":0").ok();
  }
  return host == "[::1]" || host.starts_with("[::1]:");
}

// What is wrong with a request's fields, as a code; 0: nothing.
unsigned CheckFields(MHD_Connection* connection) {
  struct Seen {
    int hosts = 0, credentials = 0;
    unsigned code = 0;
  } seen;
  const auto look = [](void* to, MHD_ValueKind, const char* name, const char* value) {
    auto& into = *static_cast<Seen*>(to);
    const auto is = [name](const char* other) { return strcasecmp(name, other) == 0; };
    if (is("host")) {
      into.code = ++into.hosts > 1                             ? MHD_HTTP_BAD_REQUEST
                  : value == nullptr || !IsLoopbackHost(value) ? MHD_HTTP_FORBIDDEN
                                                               : into.code;
    } else if (is("authorization")) {
      into.code = ++into.credentials > 1 ? MHD_HTTP_BAD_REQUEST : into.code;
    } else if (is("transfer-encoding") ||
               (is("content-length") && (value == nullptr || std::string_view(value) != "0"))) {
      into.code = MHD_HTTP_CONTENT_TOO_LARGE;
    }
    return into.code == 0 ? MHD_YES : MHD_NO;
  };
  MHD_get_connection_values(connection, MHD_HEADER_KIND, look, &seen);
  return seen.code;
}

HttpRequest RequestOf(MHD_Connection* connection) {
  const char* value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
  return {.authorization = value == nullptr ? std::string_view() : std::string_view(value)};
}

HttpResponse Refuse(unsigned code, const char* text) {
  HttpResponse response;
  response.code = static_cast<int>(code);
  response.body = std::string(text) + "\n";
  return response;
}

}  // namespace

// Everything belongs to the thread once it runs: the library has none of its own here.
struct HttpEndpoint::Parts {
  // One that is open. The library closes it; we only shut it down.
  struct Open {
    int fd = -1;
    Time deadline{0};
  };

  ~Parts();
  void Loop();
  void CutOff(Time now);
  HttpResponse Answer(MHD_Connection* connection, std::string_view path, std::string_view method,
                      std::string_view version);
  MHD_Result Respond(MHD_Connection* connection, const HttpResponse& response);
  static MHD_Result OnRequest(void* parts, MHD_Connection* connection, const char* url, const char* method,
                              const char* version, const char* upload, size_t* upload_bytes, void** request);
  static void OnConnection(void* parts, MHD_Connection* connection, void** of_connection,
                           MHD_ConnectionNotificationCode what);

  Handlers handlers;
  MHD_Daemon* server = nullptr;  // Owned.
  UniqueFd stop;
  std::deque<Open> open;  // The oldest first.
  std::thread thread;
};

HttpEndpoint::Parts::~Parts() {
  if (thread.joinable()) {
    const uint64_t one = 1;
    HPVMD_CHECK(write(stop.get(), &one, sizeof(one)) == sizeof(one));
    thread.join();
  }
  if (server != nullptr) {
    MHD_stop_daemon(server);
  }
}

HttpEndpoint::HttpEndpoint() = default;
HttpEndpoint::~HttpEndpoint() = default;

StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(const HostPort& listen, Handlers handlers) {
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint());
  endpoint->parts_ = std::make_unique<Parts>();
  Parts& parts = *endpoint->parts_;
  parts.handlers = std::move(handlers);
  HPVMD_ASSIGN_OR_RETURN(UniqueFd listener, Listen(listen));
  parts.stop = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // Half of what a connection may hold is for reading: the header's limit.
  parts.server = MHD_start_daemon(
      MHD_USE_EPOLL, 0, nullptr, nullptr, &Parts::OnRequest, &parts, MHD_OPTION_LISTEN_SOCKET, listener.get(),
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(kConnectionsMax), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      size_t{2 * kHeaderBytesMax}, MHD_OPTION_CONNECTION_TIMEOUT, 5u, MHD_OPTION_STRICT_FOR_CLIENT, 1,
      MHD_OPTION_NOTIFY_CONNECTION, &Parts::OnConnection, &parts, MHD_OPTION_END);
  if (parts.server == nullptr || !parts.stop.valid()) {
    return Unavailable("The HTTP server for metrics cannot be started.");
  }
  listener.release();  // The library's.
  endpoint->address_ = AddressOf(parts.server, listen.host);
  parts.thread = std::thread([&parts] { parts.Loop(); });
  return endpoint;
}

void HttpEndpoint::Parts::Loop() {
  // Whoever asks as fast as it can takes processor time that nobody else wants. Of this thread alone, on Linux.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  const MHD_DaemonInfo* info = MHD_get_daemon_info(server, MHD_DAEMON_INFO_EPOLL_FD);
  while (true) {
    const Time now = RealClock().Now();
    Duration left = std::chrono::seconds(60);
    for (const Open& one : open) {
      left = std::min(left, one.deadline - now);
    }
    if (MHD_UNSIGNED_LONG_LONG ms = 0; MHD_get_timeout(server, &ms) == MHD_YES) {
      left = std::min<Duration>(left, std::chrono::milliseconds(std::min<uint64_t>(ms, 60'000)));
    }
    pollfd waits[2] = {{stop.get(), POLLIN, 0}, {info->epoll_fd, POLLIN, 0}};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    poll(waits, 2, static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000)));
    if (waits[0].revents != 0) {
      return;
    }
    // Once more when some have ended: only then does a library that was at its limit listen again.
    for (size_t before = SIZE_MAX; before == SIZE_MAX || open.size() < before;) {
      before = open.size();
      MHD_run(server);
    }
    CutOff(RealClock().Now());
  }
}

// Those whose time is over; and the oldest while there is hardly room for another. The library then finds them at
// their end and closes them.
void HttpEndpoint::Parts::CutOff(Time now) {
  constexpr size_t kRoom = 4;
  const size_t surplus = open.size() + kRoom > kConnectionsMax ? open.size() + kRoom - kConnectionsMax : 0;
  for (size_t i = 0; i < open.size(); ++i) {
    if (i < surplus || now >= open[i].deadline) {
      shutdown(open[i].fd, SHUT_RDWR);
      open[i].deadline = kNever;
    }
  }
}

void HttpEndpoint::Parts::OnConnection(void* of, MHD_Connection* connection, void**,
                                       MHD_ConnectionNotificationCode what) {
  auto& parts = *static_cast<Parts*>(of);
  const int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    parts.open.push_back({fd, RealClock().Now() + kConnectionMax});
  } else {
    std::erase_if(parts.open, [fd](const Open& one) { return one.fd == fd; });
  }
}

MHD_Result HttpEndpoint::Parts::OnRequest(void* of, MHD_Connection* connection, const char* url, const char* method,
                                          const char* version, const char*, size_t*, void**) {
  auto& parts = *static_cast<Parts*>(of);
  return parts.Respond(connection, parts.Answer(connection, url, method, version));
}

HttpResponse HttpEndpoint::Parts::Answer(MHD_Connection* connection, std::string_view path, std::string_view method,
                                         std::string_view version) {
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return Refuse(MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED, "Only HTTP/1.0 and HTTP/1.1 are spoken here.");
  }
  if (const unsigned code = CheckFields(connection); code != 0) {
    return Refuse(code, code == MHD_HTTP_FORBIDDEN     ? "The host is not a loopback address."
                        : code == MHD_HTTP_BAD_REQUEST ? "A header field comes twice."
                                                       : "Requests have no body here.");
  }
  if (method != "GET" && method != "HEAD") {
    return Refuse(MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD are known here.");
  }
  const auto handler = handlers.find(path);
  return handler == handlers.end() ? Refuse(MHD_HTTP_NOT_FOUND, "There are /metrics, /livez and /readyz.")
                                   : handler->second(RequestOf(connection));
}

MHD_Result HttpEndpoint::Parts::Respond(MHD_Connection* connection, const HttpResponse& response) {
  // The library only reads what it is to copy, though its type does not say so.
  MHD_Response* made = MHD_create_response_from_buffer(response.body.size(), const_cast<char*>(response.body.data()),
                                                       MHD_RESPMEM_MUST_COPY);
  if (made == nullptr) {
    return MHD_NO;
  }
  MHD_add_response_header(made, "Content-Type", response.content_type.c_str());
  MHD_add_response_header(made, "Cache-Control", "no-store");
  MHD_add_response_header(made, "X-Content-Type-Options", "nosniff");
  MHD_add_response_header(made, "Connection", "close");
  if (response.code == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(made, "Allow", "GET, HEAD");
  }
  if (response.code == MHD_HTTP_UNAUTHORIZED) {
    MHD_add_response_header(made, "WWW-Authenticate", "Bearer");
  }
  const MHD_Result queued = MHD_queue_response(connection, static_cast<unsigned>(response.code), made);
  MHD_destroy_response(made);
  return queued;
}

}  // namespace hpvm::server
