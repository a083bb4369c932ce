// SPDX-License-Identifier: Apache-2.0
#include "server/config/address.h"

#include <gtest/gtest.h>

namespace hpvm::server {
namespace {

// Metrics are served over TCP; further requirements depend on whether other machines can reach the address.
TEST(AddressTest, MetricsListen) {
  struct Case {
    const char *text, *host, *port;  // No host when refused.
    bool is_public = false;
  };
  const Case cases[] = {
      {"127.0.0.1:9090", "127.0.0.1", "9090"},
      {"127.1.2.3:0", "127.1.2.3", "0"},
      {"[::1]:9090", "::1", "9090"},
      {"localhost:1", "localhost", "1"},
      {"0.0.0.0:9090", "0.0.0.0", "9090", true},
      {"192.168.0.1:9090", "192.168.0.1", "9090", true},
      {"[::]:9090", "::", "9090", true},
      {":9090", nullptr, nullptr},
      {"127.0.0.1", nullptr, nullptr},
      {"127.0.0.1:65536", nullptr, nullptr},
      {"127.0.0.1:", nullptr, nullptr},
      {"127.0.0.1:-1", nullptr, nullptr},
      {"127.0.0.1:1,127.0.0.1:2", nullptr, nullptr},
      {"unix:/run/metrics.sock", nullptr, nullptr},
      {"", nullptr, nullptr},
  };
  for (const Case& c : cases) {
    const StatusOr<ListenAddress> parsed = ParseMetricsListen(c.text);
    ASSERT_EQ(parsed.ok(), c.host != nullptr) << c.text << " " << Message(parsed.status());
    if (parsed.ok()) {
      EXPECT_EQ(SplitHostPort(*parsed).host, c.host) << c.text;
      EXPECT_EQ(SplitHostPort(*parsed).port, c.port) << c.text;
      EXPECT_EQ(parsed->is_public, c.is_public) << c.text;
    }
  }
}

// A collector's address has a host, optionally a port and a path, and nothing that could carry a secret.
TEST(AddressTest, ReadsHttpTargets) {
  struct Case {
    const char *text, *host, *port, *path;
  };
  const Case cases[] = {
      {"http://127.0.0.1:4318", "127.0.0.1", "4318", ""},
      {"http://collector.example", "collector.example", "4318", ""},
      {"http://collector:80/", "collector", "80", ""},
      {"http://[::1]:4318/otlp/", "::1", "4318", "/otlp"},
      {"http://[fe80::1]", "fe80::1", "4318", ""},
      {"https://collector:4318", nullptr, nullptr, nullptr},
      {"collector:4318", nullptr, nullptr, nullptr},
      {"http://", nullptr, nullptr, nullptr},
      {"http://:4318", nullptr, nullptr, nullptr},
      {"http://user:secret@collector:4318", nullptr, nullptr, nullptr},
      {"http://collector:0", nullptr, nullptr, nullptr},
      {"http://collector:65536", nullptr, nullptr, nullptr},
      {"http://collector:80x", nullptr, nullptr, nullptr},
      {"http://collector:", nullptr, nullptr, nullptr},
      {"http://::1:4318", nullptr, nullptr, nullptr},
      {"http://collector:4318/?a=b", nullptr, nullptr, nullptr},
      {"http://collector:4318/a b", nullptr, nullptr, nullptr},
      {"http://collector\r\nX: y:4318", nullptr, nullptr, nullptr},
  };
  for (const Case& c : cases) {
    const StatusOr<HttpTarget> parsed = ParseHttpTarget(c.text);
    ASSERT_EQ(parsed.ok(), c.host != nullptr) << c.text << " " << Message(parsed.status());
    if (parsed.ok()) {
      EXPECT_EQ(parsed->host, c.host) << c.text;
      EXPECT_EQ(parsed->port, c.port) << c.text;
      EXPECT_EQ(parsed->path, c.path) << c.text;
    }
  }
}

}  // namespace
}  // namespace hpvm::server
