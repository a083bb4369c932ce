// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_endpoint.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <fstream>
#include <thread>

#include "server/observe/testing/http_client.h"

namespace hpvm::server {
namespace {

class HttpEndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = HttpEndpoint::Start(
        {"127.0.0.1", "0"},
        {
            {"/metrics", [](const HttpRequest&) { return HttpResponse{.body = "a 1\n"}; }},
            {"/large", [](const HttpRequest&) { return HttpResponse{.body = std::string(3'000'000, 'x')}; }},
            {"/readyz",
             [](const HttpRequest&) {
               return HttpResponse{.code = 503, .content_type = "application/json", .body = "{}\n"};
             }},
        });
    ASSERT_TRUE(started.ok()) << started.status();
    endpoint_ = *std::move(started);
  }
  std::string Exchange(const std::string& request) { return testing::Exchange(endpoint_->address(), request); }
  std::unique_ptr<HttpEndpoint> endpoint_;
};

constexpr char kHost[] = "Host: 127.0.0.1\r\n\r\n";

// What is asked for comes whole; HEAD has the header alone.
TEST_F(HttpEndpointTest, Serves) {
  const std::string got = testing::Get(endpoint_->address(), "/metrics?x=1");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
  EXPECT_TRUE(got.ends_with("\r\n\r\na 1\n")) << got;
  const std::string head = Exchange(std::string("HEAD /metrics HTTP/1.1\r\n") + kHost);
  EXPECT_NE(head.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  const std::string large = testing::Get(endpoint_->address(), "/large");
  EXPECT_GT(large.size(), 3'000'000u);
  const std::string unready = testing::Get(endpoint_->address(), "/readyz");
  EXPECT_TRUE(unready.starts_with("HTTP/1.1 503 ")) << unready;
  EXPECT_NE(unready.find("Content-Type: application/json\r\n"), std::string::npos);
}

// Everything else is refused with a code, and the endpoint goes on.
TEST_F(HttpEndpointTest, Refuses) {
  struct Case {
    const char* name;
    std::string request;
    const char* code;
  };
  const std::string get = "GET /metrics HTTP/1.1\r\n";
  const Case cases[] = {
      {"NoSuchPath", std::string("GET /secret HTTP/1.1\r\n") + kHost, "404"},
      {"Post", std::string("POST /metrics HTTP/1.1\r\n") + kHost, "405"},
      {"UnknownMethod", std::string("\x7fGET /metrics HTTP/1.1\r\n") + kHost, "405"},
      {"NoVersion", std::string("GET /metrics\r\n") + kHost, "400"},
      {"Version2", std::string("GET /metrics HTTP/2.0\r\n") + kHost, "505"},
      {"NotHttp", "\x16\x03\x01 hello there\r\n\r\n", "400"},
      {"Absolute", std::string("GET http://x/metrics HTTP/1.1\r\n") + kHost, "404"},
      {"ForeignHost", get + "Host: evil.example\r\n\r\n", "403"},
      {"ForeignHostWithPort", get + "Host: evil.example:9090\r\n\r\n", "403"},
      {"EmptyHost", get + "Host:\r\n\r\n", "403"},
      {"TwoHosts", get + "Host: localhost\r\nhost: localhost\r\n\r\n", "400"},
      {"Body", get + "Host: localhost\r\nContent-Length: 5\r\n\r\nhello", "413"},
      {"Chunked", get + "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "413"},
      {"NoHost", get + "\r\n", "400"},
      {"FieldWithoutColon", get + "Host\r\n\r\n", "400"},
      {"BlankBeforeColon", get + "Host : localhost\r\n\r\n", "400"},
      {"Folded", get + "Host: localhost\r\n more\r\n\r\n", "400"},
      {"LargeHeader", get + "X: " + std::string(20'000, 'a') + "\r\n\r\n", "431"},
      {"ManyFields",
       get +
           [] {
             std::string fields;
             for (int i = 0; i < 4'000; ++i) {
               fields += "X: y\r\n";
             }
             return fields;
           }() +
           "\r\n",
       "431"},
  };
  for (const Case& c : cases) {
    const std::string got = Exchange(c.request);
    EXPECT_TRUE(got.starts_with(std::string("HTTP/1.1 ") + c.code)) << c.name << ": " << got.substr(0, 100);
  }
  for (const char* host : {"localhost", "localhost:1", "127.0.0.1:80", "[::1]", "[::1]:80"}) {
    EXPECT_TRUE(Exchange(get + "Host: " + host + "\r\n\r\n").starts_with("HTTP/1.1 200")) << host;
  }
  EXPECT_TRUE(Exchange("GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
}

// Clients that send nothing, byte by byte, or never read keep nobody else from an answer.
TEST_F(HttpEndpointTest, SlowClientsBlockNobody) {
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 100; ++i) {
    UniqueFd fd = testing::ConnectTo(endpoint_->address());
    ASSERT_TRUE(fd.valid());
    if (i % 3 == 1) {
      send(fd.get(), "GET /met", 8, MSG_NOSIGNAL);
    } else if (i % 3 == 2) {
      const std::string request = std::string("GET /large HTTP/1.1\r\n") + kHost;
      send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    }
    slow.push_back(std::move(fd));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(testing::Get(endpoint_->address(), "/metrics").ends_with("a 1\n"));
  }
  // The newest has its connection still: the answers waited for nobody's deadline. Older ones may have given way.
  static_assert(HttpEndpoint::kConnectionsMax > 24, "Twenty requests must not push out the newest.");
  char byte;
  EXPECT_EQ(recv(slow.back().get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// A header without end takes no memory beyond its limit.
TEST_F(HttpEndpointTest, HeaderFloodTakesNoMemory) {
  const auto resident_kb = [] {
    std::ifstream file("/proc/self/statm");
    long pages = 0, resident = 0;
    file >> pages >> resident;
    return resident * sysconf(_SC_PAGESIZE) / 1024;
  };
  std::string fields;
  for (int i = 0; i < 1'000; ++i) {
    fields += "X" + std::to_string(i) + ": " + std::string(900, 'y') + "\r\n";
  }
  const long before = resident_kb();
  for (int connection = 0; connection < 10; ++connection) {
    const UniqueFd fd = testing::ConnectTo(endpoint_->address());
    const std::string line = "GET /metrics HTTP/1.1\r\n";
    send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL);
    for (int i = 0; i < 30 && send(fd.get(), fields.data(), fields.size(), MSG_NOSIGNAL) > 0; ++i) {
    }
  }
  EXPECT_LT(resident_kb() - before, 20'000);
  EXPECT_TRUE(testing::Get(endpoint_->address(), "/metrics").ends_with("a 1\n"));
}

// One byte a second is not enough to stay: the time is the whole request's.
TEST_F(HttpEndpointTest, CutsOffWhoDrips) {
  const UniqueFd fd = testing::ConnectTo(endpoint_->address());
  const Time start = RealClock().Now();
  while (send(fd.get(), "G", 1, MSG_NOSIGNAL) == 1 && RealClock().Now() - start < 3 * HttpEndpoint::kConnectionMax) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_LT(RealClock().Now() - start, HttpEndpoint::kConnectionMax + std::chrono::seconds(3));
}

// A silent client is let go after its time.
TEST_F(HttpEndpointTest, ClosesSilentClients) {
  const UniqueFd fd = testing::ConnectTo(endpoint_->address());
  send(fd.get(), "GET", 3, MSG_NOSIGNAL);
  const Time start = RealClock().Now();
  EXPECT_EQ(testing::ReadAll(fd.get()), "");
  const Duration took = RealClock().Now() - start;
  EXPECT_GT(took, HttpEndpoint::kConnectionMax - std::chrono::seconds(1));
  EXPECT_LT(took, HttpEndpoint::kConnectionMax + std::chrono::seconds(3));
}

// An address in use is an error that names it.
TEST_F(HttpEndpointTest, AddressInUse) {
  const std::string port = endpoint_->address().substr(endpoint_->address().rfind(':') + 1);
  const auto second = HttpEndpoint::Start({"127.0.0.1", port}, {});
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Message(second.status()).find(port), std::string::npos);
}

}  // namespace
}  // namespace hpvm::server
