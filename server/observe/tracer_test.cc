// SPDX-License-Identifier: Apache-2.0
#include "server/observe/tracer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"
#include "server/core/state/run_outcome.h"
#include "supervisor/testing/messages.h"

namespace hpvm::server {
namespace {

using std::chrono::milliseconds;

constexpr char kCaller[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kUnsampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

class Kept final : public SpanSink {
 public:
  void Add(std::vector<Span> more) override { std::move(more.begin(), more.end(), std::back_inserter(spans)); }
  const Span* Find(std::string_view name, size_t nth = 0) const {
    for (const Span& span : spans) {
      if (span.name == name && nth-- == 0) {
        return &span;
      }
    }
    return nullptr;
  }
  std::vector<Span> spans;
};

std::string TextOf(const Span& span, std::string_view key) {
  for (const auto& [name, value] : span.attributes) {
    if (key == name) {
      return std::holds_alternative<std::string>(value) ? std::get<std::string>(value)
                                                        : std::to_string(std::get<int64_t>(value));
    }
  }
  return "(none)";
}

class TracerTest : public ::testing::Test {
 protected:
  Tracer Make(uint64_t per_mille = 1'000) { return Tracer(per_mille, clock_, rng_, kept_); }
  v1::Job Job(v1::JobState state, uint32_t attempt) {
    v1::Job job;
    job.set_id("job-1");
    job.set_traceparent(kCaller);
    job.set_created_unix_ns(clock_.WallNs());
    job.set_state(state);
    job.set_attempt(attempt);
    return job;
  }
  RunOutcome Outcome() {
    RunOutcome outcome;
    outcome.SetTotals(milliseconds(2), milliseconds(20));
    v1::RunTiming& timing = *outcome.reply.done.mutable_timing();
    timing.set_bind_ns(1'000'000);
    timing.set_copy_in_ns(3'000'000);
    timing.set_run_ns(8'000'000);
    timing.set_copy_out_ns(2'000'000);
    *outcome.reply.done.add_nodes() = supervisor::testing::Placement("blur", "cpu:0", 1'000'000, 5'000'000);
    return outcome;
  }
  ManualClock clock_;
  SeededRng rng_{1};
  Kept kept_;
};

// A call continues the caller's trace, and passes its own span on.
TEST_F(TracerTest, CallIsAChildOfItsCaller) {
  Tracer tracer = Make();
  v1::RequestOptions options;
  options.set_traceparent(kCaller);
  options.set_tracestate("vendor=1");
  Tracer::Call call = tracer.BeginCall(options);
  const std::optional<TraceContext> inside = ParseTraceparent(options.traceparent());
  ASSERT_TRUE(inside.has_value());
  EXPECT_EQ(ToHex(inside->trace), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_NE(ToHex(inside->span), "b7ad6b7169203331");
  clock_.Advance(milliseconds(20));
  tracer.On(events::RunEnded{"local", "", "graph", options.traceparent(), Outcome()});
  tracer.EndCall(std::move(call), "Run", absl::OkStatus());

  const Span* server = kept_.Find("Run");
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(ToHex(server->parent), "b7ad6b7169203331");
  EXPECT_EQ(server->id, inside->span);
  EXPECT_EQ(server->kind, Span::Kind::kServer);
  EXPECT_EQ(server->tracestate, "vendor=1");
  EXPECT_EQ(server->end_unix_ns - server->start_unix_ns, 20'000'000);
  EXPECT_FALSE(server->failed);
  EXPECT_EQ(TextOf(*server, "rpc.method"), "Run");
  int64_t at = server->start_unix_ns;
  for (const char* name : {"queue", "bind", "copy_in", "run", "copy_out"}) {
    const Span* phase = kept_.Find(name);
    ASSERT_NE(phase, nullptr) << name;
    EXPECT_EQ(phase->parent, server->id) << name;
    EXPECT_EQ(phase->trace, server->trace) << name;
    EXPECT_GE(phase->start_unix_ns, at) << name;
    EXPECT_LE(phase->end_unix_ns, server->end_unix_ns) << name;
    EXPECT_EQ(TextOf(*phase, "hpvm.tenant"), "local") << name;
    at = phase->end_unix_ns;
  }
  const Span* node = kept_.Find("node");
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->parent, kept_.Find("run")->id);
  EXPECT_EQ(TextOf(*node, "hpvm.node"), "blur");
  EXPECT_EQ(TextOf(*node, "hpvm.device"), "cpu:0");
  EXPECT_EQ(node->end_unix_ns - node->start_unix_ns, 4'000'000);
}

// A trace that the caller does not record is not recorded, and its context is unchanged; a malformed context counts
// as none.
TEST_F(TracerTest, SamplingIsObeyed) {
  struct Case {
    const char *name, *traceparent;
    uint64_t per_mille;
    bool recorded, is_new_trace;
  };
  const Case cases[] = {
      {"Sampled", kCaller, 0, true, false},
      {"Unsampled", kUnsampled, 1'000, false, false},
      {"None", "", 1'000, true, true},
      {"NoneAndOff", "", 0, false, true},
      {"Malformed", "00-XYZ", 1'000, true, true},
      {"MalformedAndOff", "00-XYZ", 0, false, true},
  };
  for (const Case& c : cases) {
    kept_.spans.clear();
    Tracer tracer = Make(c.per_mille);
    v1::RequestOptions options;
    options.set_traceparent(c.traceparent);
    options.set_tracestate("UPPER=1");
    Tracer::Call call = tracer.BeginCall(options);
    tracer.On(events::RunEnded{"local", "", "graph", options.traceparent(), Outcome()});
    tracer.EndCall(std::move(call), "Run", Cancelled("x"));
    EXPECT_EQ(!kept_.spans.empty(), c.recorded) << c.name;
    const std::optional<TraceContext> inside = ParseTraceparent(options.traceparent());
    ASSERT_TRUE(inside.has_value()) << c.name;
    EXPECT_EQ(inside->sampled, c.recorded) << c.name;
    EXPECT_EQ(ToHex(inside->trace) != "0af7651916cd43dd8448eb211c80319c", c.is_new_trace) << c.name;
    EXPECT_EQ(options.tracestate(), "") << c.name;
    if (c.recorded) {
      const Span* server = kept_.Find("Run");
      EXPECT_TRUE(server->failed) << c.name;
      EXPECT_EQ(server->parent == SpanId{}, c.is_new_trace) << c.name;
    }
  }
}

// A job's spans stay in one trace over a lost attempt and a restart of the daemon in between.
TEST_F(TracerTest, JobAcrossRestart) {
  v1::Job job = Job(v1::JOB_STATE_ACCEPTED, 0);
  const int64_t created = job.created_unix_ns();
  {
    Tracer first = Make();
    first.On(events::JobChanged{"local", job});
    clock_.Advance(milliseconds(10));
    job.set_state(v1::JOB_STATE_RUNNING);
    job.set_attempt(1);
    job.set_started_unix_ns(clock_.WallNs());
    first.On(events::JobChanged{"local", job});
    first.On(events::JobChanged{"local", job});  // An update about the same attempt.
  }
  clock_.Advance(milliseconds(100));
  SeededRng other(99);
  Tracer second(1'000, clock_, other, kept_);
  job.set_state(v1::JOB_STATE_ACCEPTED);
  v1::LostAttempt& lost = *job.add_lost_attempts();
  lost.set_attempt(1);
  lost.set_ended_unix_ns(clock_.WallNs());
  lost.mutable_error()->set_code(14);
  lost.mutable_error()->set_message("The daemon ended while the attempt ran.");
  second.On(events::JobChanged{"local", job});
  clock_.Advance(milliseconds(50));
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_attempt(2);
  second.On(events::JobChanged{"local", job});
  clock_.Advance(milliseconds(30));
  second.On(events::RunEnded{"local", "job-1", "graph", kCaller, Outcome()});
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_ended_unix_ns(clock_.WallNs());
  job.mutable_prepare()->set_compile_ns(5'000'000);
  second.On(events::JobChanged{"local", job});

  const Span* whole = kept_.Find("job");
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(ToHex(whole->trace), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(ToHex(whole->parent), "b7ad6b7169203331");
  EXPECT_EQ(whole->start_unix_ns, created);
  EXPECT_EQ(whole->end_unix_ns, clock_.WallNs());
  EXPECT_EQ(TextOf(*whole, "hpvm.state"), "SUCCEEDED");
  EXPECT_EQ(TextOf(*whole, "hpvm.job_id"), "job-1");
  EXPECT_FALSE(whole->failed);
  const Span *one = kept_.Find("attempt", 0), *two = kept_.Find("attempt", 1);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(kept_.Find("attempt", 2), nullptr);
  EXPECT_NE(one->id, two->id);
  EXPECT_TRUE(one->failed);
  EXPECT_EQ(one->end_unix_ns - one->start_unix_ns, 100'000'000);
  EXPECT_FALSE(two->failed);
  EXPECT_EQ(two->end_unix_ns - two->start_unix_ns, 30'000'000);
  for (const char* name : {"attempt", "queue"}) {
    EXPECT_EQ(kept_.Find(name, 0)->parent, whole->id) << name;
    EXPECT_EQ(kept_.Find(name, 1)->parent, whole->id) << name;
  }
  EXPECT_EQ(kept_.Find("queue", 2), nullptr);
  EXPECT_EQ(kept_.Find("queue", 1)->end_unix_ns - kept_.Find("queue", 1)->start_unix_ns, 50'000'000);
  for (const char* name : {"prepare", "bind", "copy_in", "run", "copy_out"}) {
    EXPECT_EQ(kept_.Find(name)->parent, two->id) << name;
  }
  std::vector<SpanId> ids;
  for (const Span& span : kept_.spans) {
    ids.push_back(span.id);
    EXPECT_LE(span.start_unix_ns, span.end_unix_ns) << span.name;
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

// A job without a readable context has a trace of its own, the same for each of its spans.
TEST_F(TracerTest, JobWithoutContext) {
  Tracer tracer = Make();
  v1::Job job = Job(v1::JOB_STATE_RUNNING, 1);
  job.set_traceparent("nonsense");
  tracer.On(events::JobChanged{"local", job});
  tracer.On(events::RunEnded{"local", "job-1", "graph", "nonsense", Outcome()});
  job.set_state(v1::JOB_STATE_DEAD);
  job.mutable_error()->set_code(14);
  job.mutable_error()->set_message(std::string(100'000, 'x'));
  tracer.On(events::JobChanged{"local", job});
  ASSERT_NE(kept_.Find("job"), nullptr);
  EXPECT_EQ(kept_.Find("job")->parent, SpanId{});
  EXPECT_TRUE(kept_.Find("job")->failed);
  EXPECT_LT(kept_.Find("job")->error.size(), 1'100u);
  for (const Span& span : kept_.spans) {
    EXPECT_EQ(span.trace, kept_.spans[0].trace) << span.name;
  }
  kept_.spans.clear();
  Make(0).On(events::JobChanged{"local", job});
  EXPECT_TRUE(kept_.spans.empty()) << "Own traces are sampled.";
}

// Times and names from an executor are limited to the run, and cut.
TEST_F(TracerTest, HostileRecords) {
  Tracer tracer = Make();
  RunOutcome outcome = Outcome();
  v1::RunTiming& timing = *outcome.reply.done.mutable_timing();
  timing.set_run_ns(INT64_MAX);
  timing.set_copy_in_ns(UINT64_MAX);
  outcome.reply.done.clear_nodes();
  for (int i = 0; i < 5'000; ++i) {
    v1::NodePlacement& node = *outcome.reply.done.add_nodes();
    node = supervisor::testing::Placement(std::string(10'000, 'n'), std::string(10'000, 'd'), UINT64_MAX, INT64_MAX);
    node.set_math("fast");
  }
  tracer.On(events::RunEnded{"local", "", "graph", kCaller, outcome});
  timing.set_queue_ns(timing.run_ns());  // Now nothing is left for the phases.
  tracer.On(events::RunEnded{"local", "", "graph", kCaller, outcome});
  size_t nodes = 0;
  const int64_t end = clock_.WallNs();
  for (const Span& span : kept_.spans) {
    EXPECT_GE(span.start_unix_ns, end - 20'000'000) << span.name;
    EXPECT_LE(span.end_unix_ns, end) << span.name;
    EXPECT_LE(span.start_unix_ns, span.end_unix_ns) << span.name;
    if (std::string_view(span.name) == "node") {
      ++nodes;
      EXPECT_LT(TextOf(span, "hpvm.node").size(), 300u);
      EXPECT_LT(TextOf(span, "hpvm.device").size(), 300u);
    }
  }
  EXPECT_EQ(nodes, Tracer::kNodesMax);
}

// The steps of a prepare lie inside its call.
TEST_F(TracerTest, PrepareSteps) {
  Tracer tracer = Make();
  v1::RequestOptions options;
  Tracer::Call call = tracer.BeginCall(options);
  clock_.Advance(milliseconds(10));
  v1::PrepareTiming timing;
  timing.set_parse_ns(1'000'000);
  timing.set_compile_ns(UINT64_MAX);
  timing.set_load_ns(1'000'000);
  tracer.AddPrepare(call, timing);
  tracer.EndCall(std::move(call), "PrepareGraph", InvalidArgument("wrong"));
  EXPECT_EQ(kept_.Find("parse")->end_unix_ns - kept_.Find("parse")->start_unix_ns, 1'000'000);
  EXPECT_EQ(kept_.Find("compile")->end_unix_ns, clock_.WallNs());
  EXPECT_EQ(kept_.Find("compile")->parent, kept_.Find("PrepareGraph")->id);
  EXPECT_EQ(TextOf(*kept_.Find("PrepareGraph"), "hpvm.code"), "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace hpvm::server
