// SPDX-License-Identifier: Apache-2.0
// A minimal HTTP client and server for tests: bytes in, bytes out.
#ifndef HPVMD_SERVER_OBSERVE_TESTING_HTTP_CLIENT_H_
#define HPVMD_SERVER_OBSERVE_TESTING_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/io/fd.h"

namespace hpvm::server::testing {

inline UniqueFd ConnectTo(const std::string& address) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  timeval most{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    fd.reset();
  }
  return fd;
}

inline std::string ReadAll(int fd) {
  std::string text;
  char chunk[4096];
  for (ssize_t count; (count = recv(fd, chunk, sizeof(chunk), 0)) > 0;) {
    text.append(chunk, static_cast<size_t>(count));
  }
  return text;
}

// Returns everything that the server sends in response to these bytes, until it closes.
inline std::string Exchange(const std::string& address, const std::string& request) {
  const UniqueFd fd = ConnectTo(address);
  send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  return ReadAll(fd.get());
}

inline std::string Get(const std::string& address, const std::string& path) {
  return Exchange(address, "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n");
}

// Collector accepts POSTs one after the other and keeps their bodies.
class Collector {
 public:
  // `answer` returns the response to the nth request (from 0); an empty text sends nothing and keeps the connection
  // open.
  explicit Collector(std::function<std::string(size_t)> answer = [](size_t) { return Ok(); })
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at));
    listen(listener_.get(), 16);
    socklen_t size = sizeof(at);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    port_ = std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { Loop(); });
  }
  ~Collector() {
    stop_ = true;
    thread_.join();
  }

  static std::string Ok() { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"; }
  static std::string Refuse(const std::string& code, const std::string& more = "") {
    return "HTTP/1.1 " + code + " No\r\n" + more + "Content-Length: 0\r\n\r\n";
  }
  const std::string& port() const { return port_; }
  std::vector<std::string> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void Loop() {
    std::vector<UniqueFd> held;
    while (!stop_) {
      pollfd wait{listener_.get(), POLLIN, 0};
      if (poll(&wait, 1, 20) <= 0) {
        continue;
      }
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const std::string request = ReadRequest(fd.get());
      size_t number = 0;
      {
        std::lock_guard lock(mutex_);
        number = requests_.size();
        requests_.push_back(request);
      }
      const std::string answer = answer_(number);
      send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (answer.empty()) {
        held.push_back(std::move(fd));
      }
    }
  }
  static std::string ReadRequest(int fd) {
    std::string text;
    char chunk[4096];
    while (true) {
      const size_t end = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      if (end != std::string::npos &&
          text.size() >= end + 4 + (length < end ? std::stoul(text.substr(length + 16)) : 0)) {
        return text;
      }
      const ssize_t count = recv(fd, chunk, sizeof(chunk), 0);
      if (count <= 0) {
        return text;
      }
      text.append(chunk, static_cast<size_t>(count));
    }
  }

  std::function<std::string(size_t)> answer_;
  UniqueFd listener_;
  std::string port_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_OBSERVE_TESTING_HTTP_CLIENT_H_
