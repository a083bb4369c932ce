// SPDX-License-Identifier: Apache-2.0
#include "server/observe/span_exporter.h"

#include <gtest/gtest.h>

#include <thread>

#include <nlohmann/json.hpp>

#include "server/observe/testing/http_client.h"

namespace hpvm::server {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Collector;

Span SpanOf(uint8_t number) {
  Span span;
  span.trace.fill(0xab);
  span.id.fill(number);
  span.parent.fill(0x01);
  span.name = "run";
  span.kind = Span::Kind::kServer;
  span.start_unix_ns = 1'700'000'000'000'000'001;
  span.end_unix_ns = 1'700'000'000'000'000'999;
  span.attributes = {{"hpvm.tenant", "local"}, {"hpvm.attempt", int64_t{2}}, {"hpvm.existed", true}};
  return span;
}

std::vector<Span> Many(size_t count) { return std::vector<Span>(count, SpanOf(7)); }

HttpTarget TargetOf(const Collector& collector) { return {"127.0.0.1", collector.port(), ""}; }

template <typename Condition>
bool WaitFor(Condition condition, Duration most = seconds(10)) {
  const Time end = RealClock().Now() + most;
  while (!condition() && RealClock().Now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return condition();
}

// The request follows OTLP over HTTP with JSON, field by field.
TEST(SpanExporterTest, SendsOtlp) {
  Collector collector;
  {
    SpanExporter exporter(TargetOf(collector), {"1.2.3", "4711"});
    Span span = SpanOf(2);
    span.failed = true;
    span.error = "bad \xff bytes";
    span.tracestate = "a=1";
    Span root = SpanOf(3);
    root.parent = {};
    exporter.Add({span, root});
    ASSERT_TRUE(WaitFor([&] { return exporter.counts().exported == 2; }));
    EXPECT_EQ(exporter.counts().dropped, 0u);
    EXPECT_EQ(exporter.counts().waiting, 0u);
  }
  ASSERT_EQ(collector.requests().size(), 1u);
  const std::string request = collector.requests()[0];
  EXPECT_TRUE(request.starts_with("POST /v1/traces HTTP/1.1\r\n")) << request.substr(0, 200);
  EXPECT_NE(request.find("\r\nContent-Type: application/json\r\n"), std::string::npos);
  const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4), nullptr, false);
  ASSERT_FALSE(body.is_discarded());
  const json& resource = body.at("resourceSpans").at(0);
  EXPECT_EQ(resource.at("resource").at("attributes").at(0).at("key"), "service.name");
  EXPECT_EQ(resource.at("resource").at("attributes").at(0).at("value").at("stringValue"), "hpvmd");
  const json& spans = resource.at("scopeSpans").at(0).at("spans");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].at("traceId"), "abababababababababababababababab");
  EXPECT_EQ(spans[0].at("spanId"), "0202020202020202");
  EXPECT_EQ(spans[0].at("parentSpanId"), "0101010101010101");
  EXPECT_FALSE(spans[1].contains("parentSpanId"));
  EXPECT_EQ(spans[0].at("kind"), 2);
  EXPECT_EQ(spans[0].at("startTimeUnixNano"), "1700000000000000001");
  EXPECT_EQ(spans[0].at("endTimeUnixNano"), "1700000000000000999");
  EXPECT_EQ(spans[0].at("traceState"), "a=1");
  EXPECT_EQ(spans[0].at("status").at("code"), 2);
  EXPECT_FALSE(spans[1].contains("status"));
  const json want = json::parse(R"([{"key":"hpvm.tenant","value":{"stringValue":"local"}},
                                    {"key":"hpvm.attempt","value":{"intValue":"2"}},
                                    {"key":"hpvm.existed","value":{"boolValue":true}}])");
  EXPECT_EQ(spans[0].at("attributes"), want);
}

// Temporarily refused batches are retried; permanently refused ones are dropped.
TEST(SpanExporterTest, TriesAgain) {
  Collector collector([](size_t number) {
    return number == 0 ? Collector::Refuse("503") : number == 1 ? Collector::Refuse("400") : Collector::Ok();
  });
  SpanExporter exporter(TargetOf(collector), {});
  exporter.Add(Many(3));
  ASSERT_TRUE(WaitFor([&] { return exporter.counts().dropped == 3; }));
  EXPECT_EQ(exporter.counts().failures, 2u);
  EXPECT_EQ(collector.requests().size(), 2u);
  exporter.Add(Many(5));
  ASSERT_TRUE(WaitFor([&] { return exporter.counts().exported == 5; }));
}

// A collector that is missing, or accepts connections and says nothing, slows nobody; spans without room are counted.
TEST(SpanExporterTest, DeadCollectorCostsOnlySpans) {
  for (const bool holds : {false, true}) {
    Collector silent([](size_t) { return std::string(); });
    auto exporter =
        std::make_unique<SpanExporter>(holds ? TargetOf(silent) : HttpTarget{"127.0.0.1", "1", ""}, SpanResource{});
    Time start = RealClock().Now();
    for (int i = 0; i < 1'000; ++i) {
      exporter->Add(Many(10));
    }
    EXPECT_LT(RealClock().Now() - start, seconds(2));
    const SpanCounts counts = exporter->counts();
    EXPECT_EQ(counts.exported, 0u);
    EXPECT_EQ(counts.waiting, SpanExporter::kWaitingMax);
    EXPECT_EQ(counts.dropped, 10'000 - SpanExporter::kWaitingMax);
    start = RealClock().Now();
    exporter.reset();
    EXPECT_LT(RealClock().Now() - start, milliseconds(1'500)) << holds;
  }
}

// Spans of the last moment are sent before the end.
TEST(SpanExporterTest, FlushesAtTheEnd) {
  Collector collector;
  const Time start = RealClock().Now();
  {
    SpanExporter exporter(TargetOf(collector), {});
    exporter.Add(Many(1'500));
  }
  EXPECT_LT(RealClock().Now() - start, milliseconds(1'500));
  size_t spans = 0;
  for (const std::string& request : collector.requests()) {
    for (size_t at = 0; (at = request.find("\"spanId\"", at)) != std::string::npos; ++at) {
      ++spans;
    }
  }
  EXPECT_EQ(spans, 1'500u);
}

// Responses that are not HTTP, endless headers, and closed connections are failures and do not hang.
TEST(SpanExporterTest, HostileAnswers) {
  std::string fields;
  for (int i = 0; i < 3'000; ++i) {
    fields += "X: " + std::string(40, 'x') + "\r\n";
  }
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string answers[] = {
      "SMTP ready\r\n\r\n",   "HTTP/1.1\r\n\r\n",
      "HTTP/1.1 xyz\r\n\r\n", ok + "X: " + std::string(200'000, 'x'),
      ok + fields + "\r\n",   ok + "Content-Length: 200000\r\n\r\n" + std::string(200'000, 'x')};
  for (const std::string& answer : answers) {
    Collector collector([&](size_t) { return answer; });
    SpanExporter exporter(TargetOf(collector), {});
    exporter.Add(Many(1));
    EXPECT_TRUE(WaitFor([&] { return exporter.counts().failures > 0; }, seconds(8))) << answer.substr(0, 20);
    EXPECT_EQ(exporter.counts().exported, 0u);
  }
}

}  // namespace
}  // namespace hpvm::server
