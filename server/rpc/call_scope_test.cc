// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_scope.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/bytes.h"
#include "hpvm/v1/service.grpc.pb.h"
#include "server/events/events.h"
#include "server/observe/tracer.h"

namespace hpvm::server {
namespace {

constexpr char kCaller[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

class Kept final : public SpanSink {
 public:
  void Add(std::vector<Span> more) override {
    std::lock_guard lock(mutex_);
    std::move(more.begin(), more.end(), std::back_inserter(spans_));
  }
  std::vector<Span> spans() {
    std::lock_guard lock(mutex_);
    return spans_;
  }

 private:
  std::mutex mutex_;
  std::vector<Span> spans_;
};

class Calls final : public Observer {
 public:
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::CallEnded& event) {
    std::lock_guard lock(mutex_);
    ++counts_[std::string(event.method) + " " + absl::StatusCodeToString(event.status.code())];
    EXPECT_GE(event.took, Duration{0});
  }
  int count(const std::string& what) {
    std::lock_guard lock(mutex_);
    return counts_[what];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

// Echo answers with what it saw.
class Echo final : public v1::Hpvm::CallbackService {
 public:
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const v1::RunRequest* request,
                                v1::RunResponse* response) override {
    response->add_outputs()->set_name(request->options().traceparent());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(request->handle().empty() ? grpc::Status::OK
                                              : grpc::Status(grpc::StatusCode::NOT_FOUND, "No such graph."));
    return reactor;
  }
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override {
    response->mutable_job()->set_id("job-1");
    response->mutable_job()->set_traceparent(request->options().traceparent());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override {
    response->mutable_job()->set_traceparent(request->options().traceparent());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  // Returns the first message's context, item by item.
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>* Stream(grpc::CallbackServerContext*) override {
    class Reactor final : public grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse> {
     public:
      Reactor() { StartRead(&request_); }
      void OnReadDone(bool ok) override {
        if (!ok) {
          Finish(grpc::Status::OK);
          return;
        }
        response_.mutable_opened()->mutable_summary()->set_name(request_.open().options().traceparent());
        StartWrite(&response_);
      }
      void OnWriteDone(bool) override { StartRead(&request_); }
      void OnDone() override { delete this; }  // gRPC's reactors own themselves.

     private:
      v1::StreamRequest request_;
      v1::StreamResponse response_;
    };
    return new Reactor();
  }
};

class CallScopeTest : public ::testing::Test {
 protected:
  void Start(bool with_tracer = true, bool is_observed = true) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    if (is_observed) {
      events_ = {};
      events_.Subscribe(calls_);
      if (with_tracer) {
        events_.Subscribe(tracer_);
      }
      scopes_.emplace(CallScopes{events_, RealClock(), NoAuditLog()});
      scopes_->AddTo(builder);
    }
    server_ = builder.BuildAndStart();
    stub_ =
        v1::Hpvm::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1)); }

  grpc::Status Run(const std::string& traceparent, const std::string& handle, v1::RunResponse* response) {
    grpc::ClientContext context;
    v1::RunRequest request;
    request.set_handle(handle);
    request.mutable_options()->set_traceparent(traceparent);
    return stub_->Run(&context, request, response);
  }
  // The call's end is reported after its response was sent.
  template <typename Condition>
  bool Soon(Condition condition) {
    for (int i = 0; i < 1'000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return condition();
  }

  SeededRng rng_{5};
  Kept kept_;
  Tracer tracer_{1'000, RealClock(), rng_, kept_};
  Calls calls_;
  EventList events_;
  Echo service_;
  std::optional<CallScopes> scopes_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Hpvm::Stub> stub_;
};

// The handler sees the call's own span, in the caller's trace; the call is counted and exported.
TEST_F(CallScopeTest, HandsOnTheCallsSpan) {
  Start();
  v1::RunResponse response;
  ASSERT_TRUE(Run(kCaller, "", &response).ok());
  const std::optional<TraceContext> seen = ParseTraceparent(response.outputs(0).name());
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(ToHex(seen->trace), "0af7651916cd43dd8448eb211c80319c");
  ASSERT_TRUE(Soon([&] { return kept_.spans().size() == 1; }));
  const Span span = kept_.spans()[0];
  EXPECT_STREQ(span.name, "Run");
  EXPECT_EQ(span.id, seen->span);
  EXPECT_EQ(ToHex(span.parent), "b7ad6b7169203331");
  EXPECT_LE(span.start_unix_ns, span.end_unix_ns);
  EXPECT_EQ(calls_.count("/hpvm.v1.Hpvm/Run OK"), 1);
  v1::RunResponse none;
  EXPECT_EQ(Run(kCaller, "x", &none).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(Soon([&] { return kept_.spans().size() == 2; }));
  EXPECT_TRUE(kept_.spans()[1].failed);
  EXPECT_EQ(kept_.spans()[1].error, "No such graph.");
  EXPECT_EQ(calls_.count("/hpvm.v1.Hpvm/Run NOT_FOUND"), 1);
}

// The span of Submit names the job; calls that do no work have no span and keep their context.
TEST_F(CallScopeTest, SubmitNamesItsJob) {
  Start();
  grpc::ClientContext context, context2;
  v1::SubmitResponse submitted;
  ASSERT_TRUE(stub_->Submit(&context, v1::SubmitRequest(), &submitted).ok());
  EXPECT_TRUE(ParseTraceparent(submitted.job().traceparent()).has_value()) << "A new trace began.";
  v1::GetJobRequest get;
  get.mutable_options()->set_traceparent(kCaller);
  v1::GetJobResponse got;
  ASSERT_TRUE(stub_->GetJob(&context2, get, &got).ok());
  EXPECT_EQ(got.job().traceparent(), kCaller);
  ASSERT_TRUE(Soon([&] { return kept_.spans().size() == 1 && calls_.count("/hpvm.v1.Hpvm/GetJob OK") == 1; }));
  const Span span = kept_.spans()[0];
  EXPECT_STREQ(span.name, "Submit");
  EXPECT_EQ(span.parent, SpanId{});
  EXPECT_EQ(std::get<std::string>(span.attributes.at(0).second), "job-1");
}

// A stream's context is its first message's; cancelled streams are counted too.
TEST_F(CallScopeTest, Streams) {
  Start();
  {
    grpc::ClientContext context;
    auto stream = stub_->Stream(&context);
    v1::StreamRequest open;
    open.mutable_open()->mutable_options()->set_traceparent(kCaller);
    ASSERT_TRUE(stream->Write(open));
    v1::StreamResponse response;
    ASSERT_TRUE(stream->Read(&response));
    const auto seen = ParseTraceparent(response.opened().summary().name());
    ASSERT_TRUE(seen.has_value());
    EXPECT_NE(FormatTraceparent(*seen), kCaller);
    v1::StreamRequest item;
    item.mutable_item();
    ASSERT_TRUE(stream->Write(item));
    ASSERT_TRUE(stream->Read(&response));
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    ASSERT_TRUE(Soon([&] { return kept_.spans().size() == 1; }));
    EXPECT_EQ(kept_.spans()[0].id, seen->span);
  }
  grpc::ClientContext context;
  auto stream = stub_->Stream(&context);
  v1::StreamRequest open;
  open.mutable_open();
  ASSERT_TRUE(stream->Write(open));
  context.TryCancel();
  stream->Finish();
  EXPECT_TRUE(Soon(
      [&] { return calls_.count("/hpvm.v1.Hpvm/Stream OK") + calls_.count("/hpvm.v1.Hpvm/Stream CANCELLED") == 2; }));
}

// Compares the cost of a recorded call with that of a call without a record.
TEST_F(CallScopeTest, Cost) {
  double us[3] = {};
  for (const int kind : {0, 1, 2}) {
    Start(/*with_tracer=*/kind == 2, /*is_observed=*/kind != 0);
    const Time start = RealClock().Now();
    constexpr int kCalls = 2'000;
    for (int i = 0; i < kCalls; ++i) {
      v1::RunResponse response;
      ASSERT_TRUE(Run(kCaller, "", &response).ok());
    }
    us[kind] = static_cast<double>((RealClock().Now() - start).count()) / kCalls / 1'000;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }
  std::printf("one call: %.1f us; counted: %.1f us; counted and traced: %.1f us\n", us[0], us[1], us[2]);
  EXPECT_LT(us[1], 10 * us[0]);
  Start();
}

}  // namespace
}  // namespace hpvm::server
