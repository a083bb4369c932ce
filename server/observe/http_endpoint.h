// SPDX-License-Identifier: Apache-2.0
// HttpEndpoint is an HTTP/1.1 server for metrics and health: GET and HEAD of a few paths. Based on GNU libmicrohttpd.
//
// One thread serves up to 32 connections at a time, each with one request: at most 8 KiB of header, no body, and 5
// seconds in total, after which the connection is cut off. When nearly all connections are in use, the oldest one
// gives way. Without TLS, requests whose Host is not loopback are refused, so that no web page can read the metrics
// through a name that it controls (DNS rebinding).
#ifndef HPVMD_SERVER_OBSERVE_HTTP_ENDPOINT_H_
#define HPVMD_SERVER_OBSERVE_HTTP_ENDPOINT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/address.h"

namespace hpvm::server {

struct HttpResponse {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpRequest {
  std::string_view authorization;  // The header field's value; empty when missing. Valid while the handler runs.
};

// The server's TLS certificate, as PEM.
struct HttpCertificate {
  std::string chain, key;
  friend bool operator==(const HttpCertificate&, const HttpCertificate&) = default;
};

class HttpEndpoint {
 public:
  static constexpr size_t kConnectionsMax = 32, kHeaderBytesMax = 8 * 1024;
  static constexpr Duration kConnectionMax = std::chrono::seconds(5);

  // Handlers run on the endpoint's thread, one at a time, so they must be quick.
  using Handlers = std::map<std::string, std::function<HttpResponse(const HttpRequest&)>, std::less<>>;

  // Called on the endpoint's thread, about once a second, for the certificate to use; nothing keeps the present one.
  // A certificate that the library refuses is not used.
  using Certificates = std::function<std::optional<HttpCertificate>()>;

  // Returns an endpoint that serves: over TLS exactly when `certificates` is set, which is called at once for the
  // first certificate. kUnavailable when the address cannot be bound, kInvalidArgument when the first certificate
  // cannot be used.
  static StatusOr<std::unique_ptr<HttpEndpoint>> Start(const HostPort& listen, Handlers handlers,
                                                       Certificates certificates = nullptr);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // Returns "127.0.0.1:9090", with the actual port.
  const std::string& address() const { return address_; }

 private:
  struct Parts;
  HttpEndpoint();
  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_HTTP_ENDPOINT_H_
