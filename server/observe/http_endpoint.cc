// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_endpoint.h"

#include <fcntl.h>
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
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/io/fd.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr int kNice = 10;

StatusOr<UniqueFd> Listen(const HostPort& listen_at) {
  const std::string host = listen_at.host == "localhost" ? "127.0.0.1" : listen_at.host;
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), listen_at.port.c_str(), &hints, &found) != 0) {
    return InvalidArgument("The host \"" + host + "\" has no address.");
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

// Accepts any port or none.
bool IsLoopbackHost(std::string_view host) {
  if (!host.starts_with('[')) {
    host = host.substr(0, host.find(':'));
    const StatusOr<ListenAddress> address = ParseMetricsListen(std::string(host) + ":0");
    return address.ok() && !address->is_public;
  }
  return host == "[::1]" || host.starts_with("[::1]:");
}

// Returns the HTTP code of the fault in a request's header fields; 0 when there is none.
unsigned CheckFields(MHD_Connection* connection, bool any_host) {
  struct Seen {
    bool any_host = false;
    int hosts = 0, credentials = 0;
    unsigned code = 0;
  } seen{.any_host = any_host};
  const auto look = [](void* to, MHD_ValueKind, const char* name, const char* value) {
    auto& into = *static_cast<Seen*>(to);
    const auto is = [name](const char* other) { return strcasecmp(name, other) == 0; };
    if (is("host")) {
      into.code = ++into.hosts > 1                                                 ? MHD_HTTP_BAD_REQUEST
                  : !into.any_host && (value == nullptr || !IsLoopbackHost(value)) ? MHD_HTTP_FORBIDDEN
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

// All members belong to the thread once it runs, because the library has no threads of its own here.
struct HttpEndpoint::Parts {
  // An open connection. The library closes it; this code only shuts it down.
  struct Open {
    int fd = -1;
    Time deadline{0};
  };

  ~Parts();
  Status Serve(std::optional<HttpCertificate> with);
  void Renew();
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
  Certificates certificates;                   // Null for no TLS.
  std::optional<HttpCertificate> certificate;  // The certificate in force.
  std::optional<HttpCertificate> tried;        // The last certificate that was tried, so that a failure is logged once.
  Time next_look{0};
  UniqueFd listener;             // Each server has a copy.
  MHD_Daemon* server = nullptr;  // Owned.
  UniqueFd stop;
  std::deque<Open> open;  // Oldest first.
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

// Replaces the present server by a new one; keeps it when no new one can be started. Connections of the old server
// are cut off.
Status HttpEndpoint::Parts::Serve(std::optional<HttpCertificate> with) {
  UniqueFd copy(fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return FromErrno(errno, "Copying a descriptor");
  }
  std::vector<MHD_OptionItem> tls;
  if (with.has_value()) {
    // The library copies what it reads.
    tls.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, with->chain.data()});
    tls.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, with->key.data()});
  }
  tls.push_back({MHD_OPTION_END, 0, nullptr});
  // Half of a connection's memory is for reading: the limit of the header.
  MHD_Daemon* next = MHD_start_daemon(
      MHD_USE_EPOLL | (with.has_value() ? MHD_USE_TLS : 0u), 0, nullptr, nullptr, &Parts::OnRequest, this,
      MHD_OPTION_LISTEN_SOCKET, copy.get(), MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(kConnectionsMax),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, size_t{2 * kHeaderBytesMax}, MHD_OPTION_CONNECTION_TIMEOUT, 5u,
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, &Parts::OnConnection, this, MHD_OPTION_ARRAY,
      tls.data(), MHD_OPTION_END);
  if (next == nullptr) {
    return with.has_value() ? InvalidArgument("The HTTP server for metrics cannot be started with this certificate.")
                            : Unavailable("The HTTP server for metrics cannot be started.");
  }
  copy.release();  // Owned by the library from here on.
  if (server != nullptr) {
    UniqueFd(MHD_quiesce_daemon(server));  // Stopping a server might otherwise shut down the socket that both share.
    MHD_stop_daemon(server);
    open.clear();
  }
  server = next;
  certificate = std::move(with);
  return absl::OkStatus();
}

void HttpEndpoint::Parts::Renew() {
  if (std::optional<HttpCertificate> next = certificates(); next.has_value() && next != certificate && next != tried) {
    tried = next;
    if (const Status served = Serve(std::move(next)); !served.ok()) {
      LogWarning("Metrics are still served with the previous certificate", {{"error", Message(served)}});
    }
  }
}

StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(const HostPort& listen, Handlers handlers,
                                                            Certificates certificates) {
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint());
  endpoint->parts_ = std::make_unique<Parts>();
  Parts& parts = *endpoint->parts_;
  parts.handlers = std::move(handlers);
  parts.certificates = std::move(certificates);
  HPVMD_ASSIGN_OR_RETURN(parts.listener, Listen(listen));
  parts.stop = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!parts.stop.valid()) {
    return FromErrno(errno, "Making an event");
  }
  std::optional<HttpCertificate> first;
  if (parts.certificates && !(first = parts.certificates()).has_value()) {
    return InvalidArgument("There is no certificate to serve metrics with.");
  }
  HPVMD_RETURN_IF_ERROR(parts.Serve(std::move(first)));
  endpoint->address_ = AddressOf(parts.server, listen.host);
  parts.thread = std::thread([&parts] { parts.Loop(); });
  return endpoint;
}

void HttpEndpoint::Parts::Loop() {
  // A client that polls at full speed gets only idle processor time. On Linux this applies to this thread alone.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  while (true) {
    const Time now = RealClock().Now();
    Duration left = std::chrono::seconds(60);
    if (certificates) {
      if (now >= next_look) {
        Renew();
        next_look = now + std::chrono::seconds(1);
      }
      left = next_look - now;
    }
    for (const Open& one : open) {
      left = std::min(left, one.deadline - now);
    }
    if (MHD_UNSIGNED_LONG_LONG ms = 0; MHD_get_timeout(server, &ms) == MHD_YES) {
      left = std::min<Duration>(left, std::chrono::milliseconds(std::min<uint64_t>(ms, 60'000)));
    }
    const MHD_DaemonInfo* info = MHD_get_daemon_info(server, MHD_DAEMON_INFO_EPOLL_FD);
    pollfd waits[2] = {{stop.get(), POLLIN, 0}, {info->epoll_fd, POLLIN, 0}};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    poll(waits, 2, static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000)));
    if (waits[0].revents != 0) {
      return;
    }
    // Runs again when connections have ended: only then does a library at its limit listen again.
    for (size_t before = SIZE_MAX; before == SIZE_MAX || open.size() < before;) {
      before = open.size();
      MHD_run(server);
    }
    CutOff(RealClock().Now());
  }
}

// Ends connections whose time is over, and the oldest one when there is hardly room for another. The library then
// notices the end and closes them.
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
    return Refuse(MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED, "Only HTTP/1.0 and HTTP/1.1 are supported.");
  }
  if (const unsigned code = CheckFields(connection, certificate.has_value()); code != 0) {
    return Refuse(code, code == MHD_HTTP_FORBIDDEN     ? "The host is not a loopback address."
                        : code == MHD_HTTP_BAD_REQUEST ? "A header field comes twice."
                                                       : "Requests with a body are not supported.");
  }
  if (method != "GET" && method != "HEAD") {
    return Refuse(MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD are supported.");
  }
  const auto handler = handlers.find(path);
  return handler == handlers.end() ? Refuse(MHD_HTTP_NOT_FOUND, "The paths are /metrics, /livez and /readyz.")
                                   : handler->second(RequestOf(connection));
}

MHD_Result HttpEndpoint::Parts::Respond(MHD_Connection* connection, const HttpResponse& response) {
  // The library only reads the body and copies it, although its parameter is not const.
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
