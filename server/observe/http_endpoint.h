// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server for metrics and health: GET and HEAD of a few paths, on loopback. GNU libmicrohttpd behind it.
//
// One thread serves up to 32 connections at a time, each one request: at most 8 KiB of header, no body, 5 seconds for
// everything, after which it is cut off. When nearly all are taken the oldest one gives way. Requests whose Host is
// not loopback are refused, so that no web page reads them by way of a name that it controls.
#ifndef HPVMD_SERVER_OBSERVE_HTTP_ENDPOINT_H_
#define HPVMD_SERVER_OBSERVE_HTTP_ENDPOINT_H_

#include <functional>
#include <map>
#include <memory>
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
  std::string_view authorization;  // The field's value; empty: there is none. As long as the handler runs.
};

class HttpEndpoint {
 public:
  static constexpr size_t kConnectionsMax = 32, kHeaderBytesMax = 8 * 1024;
  static constexpr Duration kConnectionMax = std::chrono::seconds(5);

  // Handlers run on the endpoint's thread, one at a time, so they must not take long.
  using Handlers = std::map<std::string, std::function<HttpResponse(const HttpRequest&)>, std::less<>>;

  // Serves when it returns. kUnavailable when the address cannot be had.
  static StatusOr<std::unique_ptr<HttpEndpoint>> Start(const HostPort& listen, Handlers handlers);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // "127.0.0.1:9090", with the port that was chosen.
  const std::string& address() const { return address_; }

 private:
  struct Parts;
  HttpEndpoint();
  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_HTTP_ENDPOINT_H_
