// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_endpoint.h"

#include <curl/curl.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "server/observe/testing/http_client.h"
#include "server/testing/test_certificates.h"

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

// Requested texts are complete; HEAD returns the header alone.
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

// All other requests are refused with a code, and the endpoint continues.
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

// Clients that send nothing, send byte by byte, or never read do not block others.
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
  // The newest still has its connection: responses did not wait for other clients' deadlines. Older ones may have
  // given way.
  static_assert(HttpEndpoint::kConnectionsMax > 24, "Twenty requests must not push out the newest.");
  char byte;
  EXPECT_EQ(recv(slow.back().get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// An endless header takes no memory beyond its limit.
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

// One byte a second is not enough to stay: the time limit is for the whole request.
TEST_F(HttpEndpointTest, CutsOffWhoDrips) {
  const UniqueFd fd = testing::ConnectTo(endpoint_->address());
  const Time start = RealClock().Now();
  while (send(fd.get(), "G", 1, MSG_NOSIGNAL) == 1 && RealClock().Now() - start < 3 * HttpEndpoint::kConnectionMax) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_LT(RealClock().Now() - start, HttpEndpoint::kConnectionMax + std::chrono::seconds(3));
}

// A silent client is disconnected after its time.
TEST_F(HttpEndpointTest, ClosesSilentClients) {
  const UniqueFd fd = testing::ConnectTo(endpoint_->address());
  send(fd.get(), "GET", 3, MSG_NOSIGNAL);
  const Time start = RealClock().Now();
  EXPECT_EQ(testing::ReadAll(fd.get()), "");
  const Duration took = RealClock().Now() - start;
  EXPECT_GT(took, HttpEndpoint::kConnectionMax - std::chrono::seconds(1));
  EXPECT_LT(took, HttpEndpoint::kConnectionMax + std::chrono::seconds(3));
}

// The error about an address in use names it.
TEST_F(HttpEndpointTest, AddressInUse) {
  const std::string port = endpoint_->address().substr(endpoint_->address().rfind(':') + 1);
  const auto second = HttpEndpoint::Start({"127.0.0.1", port}, {});
  ASSERT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(Message(second.status()).find(port), std::string::npos);
}

class HttpEndpointTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Serve(authority_);
    auto started = HttpEndpoint::Start(
        {"127.0.0.1", "0"}, {{"/metrics", [](const HttpRequest&) { return HttpResponse{.body = "a 1\n"}; }}}, [this] {
          std::lock_guard lock(mutex_);
          return certificate_;
        });
    ASSERT_TRUE(started.ok()) << started.status();
    endpoint_ = *std::move(started);
  }
  void Serve(TestAuthority& authority) { Serve(authority.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"})); }
  void Serve(const CertifiedKey& pair) {
    std::lock_guard lock(mutex_);
    certificate_ = HttpCertificate{pair.certificate, pair.key};
  }
  // Returns the body for a client that trusts the authority; empty when there was none.
  std::string Get(const TestAuthority& authority) {
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
    std::string body, authorities = authority.certificate();
    curl_blob blob{authorities.data(), authorities.size(), CURL_BLOB_NOCOPY};
    curl_easy_setopt(curl.get(), CURLOPT_URL, ("https://" + endpoint_->address() + "/metrics").c_str());
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO_BLOB, &blob);
    curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 20L);
    curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
    curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
    curl_easy_setopt(
        curl.get(), CURLOPT_WRITEFUNCTION, +[](char* data, size_t one, size_t count, void* to) {
          static_cast<std::string*>(to)->append(data, one * count);
          return one * count;
        });
    curl_easy_perform(curl.get());
    return body;
  }
  bool Eventually(const TestAuthority& authority) {
    for (int i = 0; i < 200 && Get(authority).empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return Get(authority) == "a 1\n";
  }
  TestAuthority authority_{"the authority"};
  std::mutex mutex_;
  std::optional<HttpCertificate> certificate_;
  std::unique_ptr<HttpEndpoint> endpoint_;
};

// Clients that trust another authority, or do not speak TLS, get nothing.
TEST_F(HttpEndpointTlsTest, Serves) {
  EXPECT_EQ(Get(authority_), "a 1\n");
  EXPECT_EQ(Get(TestAuthority("another")), "");
  const std::string plain = testing::Get(endpoint_->address(), "/metrics");
  EXPECT_EQ(plain.find("a 1"), std::string::npos);
}

// A new certificate is used while the endpoint serves; an unusable one is not.
TEST_F(HttpEndpointTlsTest, Renews) {
  Serve(CertifiedKey{"no certificate", "no key"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
  EXPECT_EQ(Get(authority_), "a 1\n");
  TestAuthority next("the next authority");
  for (int i = 0; i < 3; ++i) {
    Serve(next);
    EXPECT_TRUE(Eventually(next));
    Serve(authority_);
    EXPECT_TRUE(Eventually(authority_));
  }
}

// Connections without a handshake do not block others.
TEST_F(HttpEndpointTlsTest, SilentClientsBlockNobody) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(testing::ConnectTo(endpoint_->address()));
    if (i % 2 == 1) {
      send(silent.back().get(), "\x16\x03\x01", 3, MSG_NOSIGNAL);
    }
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Get(authority_), "a 1\n");
  }
}

TEST(HttpEndpointStartTest, NeedsTheFirstCertificate) {
  const auto none = HttpEndpoint::Start({"127.0.0.1", "0"}, {}, [] { return std::nullopt; });
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  const auto wrong = HttpEndpoint::Start({"127.0.0.1", "0"}, {}, [] { return HttpCertificate{"no", "no"}; });
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hpvm::server
