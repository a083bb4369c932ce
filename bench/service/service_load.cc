// SPDX-License-Identifier: Apache-2.0
#include "bench/service/service_load.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>

#include "client/status/status.h"
#include "grpcpp/grpcpp.h"

#include "bench/service/peer.grpc.pb.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm::bench {
namespace {

// Maximum number of calls of an open load in flight; with more, the load would measure its own memory.
constexpr size_t kInFlightMax = 50'000;

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, uint32_t index) {
  grpc::ChannelArguments arguments;
  // Forces a separate connection: equal arguments would share one.
  arguments.SetInt("hpvm.bench.connection", static_cast<int>(index));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

template <typename Request>
void BindInput(Request& request, const std::string& data) {
  v1::InputBinding* input = request.add_inputs();
  input->set_name("x");
  input->mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
  input->mutable_tensor()->add_shape(data.size());
  input->mutable_tensor()->set_data(data);
}

template <typename Request>
void Bind(Request& request, const std::string& handle, const std::string& data) {
  request.set_handle(handle);
  BindInput(request, data);
}

struct RunKind {
  using Stub = v1::Hpvm::Stub;
  using Request = v1::RunRequest;
  using Response = v1::RunResponse;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) {
    return v1::Hpvm::NewStub(channel);
  }
  static void Fill(Request& request, const std::string& handle, const std::string& data, uint32_t) {
    Bind(request, handle, data);
  }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->Run(context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string& expected, const Request&) {
    return response.outputs_size() == 1 && response.outputs(0).tensor().data() == expected;
  }
  static std::vector<std::string> JobIds(const Response&) { return {}; }
};

struct SubmitKind {
  using Stub = v1::Hpvm::Stub;
  using Request = v1::SubmitRequest;
  using Response = v1::SubmitResponse;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) {
    return v1::Hpvm::NewStub(channel);
  }
  static void Fill(Request& request, const std::string& handle, const std::string& data, uint32_t) {
    Bind(request, handle, data);
    request.mutable_options()->set_deadline_ns(uint64_t{3'600'000'000'000});
  }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->Submit(context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string&, const Request&) {
    return !response.job().id().empty() && !response.existed();
  }
  static std::vector<std::string> JobIds(const Response& response) { return {response.job().id()}; }
};

// Collects results until the stream ends, and then deletes itself.
class ManyReader final : public grpc::ClientReadReactor<v1::RunManyResponse> {
 public:
  static void Start(v1::Hpvm::Stub& stub, grpc::ClientContext* context, const v1::RunManyRequest* request,
                    v1::RunManyResponse* into, std::function<void(grpc::Status)> done) {
    auto* reader = new ManyReader(into, std::move(done));
    stub.async()->RunMany(context, request, reader);
    reader->StartRead(&reader->part_);
    reader->StartCall();
  }
  void OnReadDone(bool ok) override {
    if (ok) {
      into_->MergeFrom(part_);
      StartRead(&part_);
    }
  }
  void OnDone(const grpc::Status& status) override {
    done_(status);
    delete this;
  }

 private:
  ManyReader(v1::RunManyResponse* into, std::function<void(grpc::Status)> done) : into_(into), done_(std::move(done)) {}
  v1::RunManyResponse part_;
  v1::RunManyResponse* const into_;
  const std::function<void(grpc::Status)> done_;
};

struct RunManyKind {
  using Stub = v1::Hpvm::Stub;
  using Request = v1::RunManyRequest;
  using Response = v1::RunManyResponse;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) {
    return v1::Hpvm::NewStub(channel);
  }
  static void Fill(Request& request, const std::string& handle, const std::string& data, uint32_t batch) {
    request.set_handle(handle);
    for (uint32_t i = 0; i < batch; ++i) {
      BindInput(*request.add_items(), data);
    }
  }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    ManyReader::Start(stub, context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string& expected, const Request& request) {
    return response.results_size() == request.items_size() &&
           std::all_of(response.results().begin(), response.results().end(), [&](const auto& result) {
             return result.run().outputs_size() == 1 && result.run().outputs(0).tensor().data() == expected;
           });
  }
  static std::vector<std::string> JobIds(const Response&) { return {}; }
};

struct SubmitManyKind {
  using Stub = v1::Hpvm::Stub;
  using Request = v1::SubmitManyRequest;
  using Response = v1::SubmitManyResponse;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) {
    return v1::Hpvm::NewStub(channel);
  }
  static void Fill(Request& request, const std::string& handle, const std::string& data, uint32_t batch) {
    for (uint32_t i = 0; i < batch; ++i) {
      SubmitKind::Fill(*request.add_jobs(), handle, data, 1);
    }
  }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->SubmitMany(context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string&, const Request& request) {
    return response.results_size() == request.jobs_size() &&
           std::all_of(response.results().begin(), response.results().end(),
                       [](const auto& result) { return !result.job().id().empty() && !result.existed(); });
  }
  static std::vector<std::string> JobIds(const Response& response) {
    std::vector<std::string> ids;
    for (const v1::SubmitResponse& result : response.results()) {
      ids.push_back(result.job().id());
    }
    return ids;
  }
};

struct EchoKind {
  using Stub = Peer::Stub;
  using Request = Bytes;
  using Response = Bytes;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) { return Peer::NewStub(channel); }
  static void Fill(Request& request, const std::string&, const std::string& data, uint32_t) { request.set_data(data); }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->Echo(context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string& expected, const Request&) {
    return response.data() == expected;
  }
  static std::vector<std::string> JobIds(const Response&) { return {}; }
};

// A rejection says that the same call may succeed later.
Verdict Judge(const grpc::Status& status, bool* names_wait) {
  if (status.ok()) {
    return Verdict::kOk;
  }
  v1::Status carried;
  v1::ErrorDetail detail;
  if (carried.ParseFromString(status.error_details()) && carried.details_size() > 0) {
    carried.details(0).UnpackTo(&detail);
  }
  *names_wait = detail.retry_after_ns() > 0;
  const bool is_rejection = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                            (status.error_code() == grpc::StatusCode::UNAVAILABLE && detail.retryable());
  return is_rejection ? Verdict::kRejected : Verdict::kFailed;
}

void SleepUntil(Time when) {
  const timespec at{.tv_sec = static_cast<time_t>(when.count() / 1'000'000'000),
                    .tv_nsec = static_cast<long>(when.count() % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

std::vector<int64_t> Sorted(const LoadResult& result, Verdict verdict, Time CallRecord::*since) {
  std::vector<int64_t> times;
  for (const CallRecord& call : result.calls) {
    if (call.verdict == verdict) {
      times.push_back((call.done - call.*since).count());
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

template <typename Kind>
class Load final : public ServiceLoad {
 public:
  static StatusOr<std::unique_ptr<ServiceLoad>> Make(const LoadSpec& spec) {
    auto load = std::make_unique<Load>();
    load->timeout_ = spec.timeout;
    for (uint32_t i = 0; i < spec.connections; ++i) {
      auto connection = std::make_unique<Connection>();
      std::shared_ptr<grpc::Channel> channel = Connect(spec.endpoint, i);
      if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
        return Unavailable("No server answers at \"" + spec.endpoint + "\".");
      }
      connection->stub = Kind::NewStub(channel);
      const LoadSpec::Tenant tenant =
          spec.tenants.empty() ? LoadSpec::Tenant{"", spec.handle} : spec.tenants[i % spec.tenants.size()];
      connection->tenant = tenant.name;
      Kind::Fill(connection->request, tenant.handle, spec.input(i), spec.batch);
      connection->expected = spec.output(i);
      load->connections_.push_back(std::move(connection));
    }
    return std::unique_ptr<ServiceLoad>(std::move(load));
  }

  size_t RequestBytes() const override { return connections_[0]->request.ByteSizeLong(); }

  StatusOr<LoadResult> Closed(uint32_t clients, uint64_t calls) override {
    left_ = calls;
    end_ = kNever;
    must_succeed_ = true;
    return RunClosed(clients);
  }

  StatusOr<LoadResult> ClosedFor(uint32_t clients, Duration length) override {
    left_ = UINT64_MAX;
    end_ = RealClock().Now() + length;
    must_succeed_ = false;
    return RunClosed(clients);
  }

  StatusOr<LoadResult> Open(double per_second, Duration length, uint64_t seed) override {
    Reset();
    left_ = 0;  // No call starts another.
    must_succeed_ = false;
    SeededRng rng(seed);
    const Time start = RealClock().Now(), stop = start + length;
    Duration late_max{0};
    uint64_t unsent = 0, sent = 0;
    for (Time due = start; due < stop;) {
      const Time now = RealClock().Now();
      if (due > now) {
        SleepUntil(due);
      } else {
        late_max = std::max(late_max, now - due);
      }
      if (InFlight() >= kInFlightMax) {
        ++unsent;
      } else {
        Send(Take(sent++ % connections_.size()), due);
      }
      // 53 random bits, never 0.
      const double uniform = (static_cast<double>(rng.Next() >> 11) + 1.0) * 0x1p-53;
      due += Duration(static_cast<int64_t>(-std::log(uniform) * 1e9 / per_second));
    }
    StatusOr<LoadResult> result = Collect(start);
    if (result.ok()) {
      result->late_max = late_max;
      result->unsent = unsent;
    }
    return result;
  }

 private:
  struct Connection {
    std::unique_ptr<typename Kind::Stub> stub;
    typename Kind::Request request;
    std::string expected;
    std::string tenant;  // Not sent when empty.
  };
  struct Slot {
    Connection* connection = nullptr;
    typename Kind::Response response;
    std::unique_ptr<grpc::ClientContext> context;
    Time due{0}, sent{0};
  };

  void Reset() {
    std::lock_guard lock(mutex_);
    result_ = LoadResult();
    wrong_ = absl::OkStatus();
  }

  size_t InFlight() {
    std::lock_guard lock(mutex_);
    return in_flight_;
  }

  Slot* Take(size_t connection) {
    std::lock_guard lock(mutex_);
    ++in_flight_;
    if (free_.empty()) {
      slots_.push_back(std::make_unique<Slot>());
      free_.push_back(slots_.back().get());
    }
    Slot* slot = free_.back();
    free_.pop_back();
    slot->connection = connections_[connection].get();
    return slot;
  }

  StatusOr<LoadResult> RunClosed(uint32_t clients) {
    Reset();
    const Time start = RealClock().Now();
    for (uint32_t i = 0; i < clients; ++i) {
      Slot* slot = Take(i % connections_.size());
      if (TakeTurn()) {
        Send(slot, RealClock().Now());
      } else {
        GiveBack(slot);
      }
    }
    return Collect(start);
  }

  StatusOr<LoadResult> Collect(Time start) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return in_flight_ == 0; });
    result_.elapsed = RealClock().Now() - start;
    HPVMD_RETURN_IF_ERROR(wrong_);
    return std::move(result_);
  }

  bool TakeTurn() {
    std::lock_guard lock(mutex_);
    if (left_ == 0 || RealClock().Now() >= end_ || !wrong_.ok()) {
      return false;
    }
    --left_;
    return true;
  }

  void Send(Slot* slot, Time due) {
    slot->due = due;
    slot->sent = RealClock().Now();
    slot->context = std::make_unique<grpc::ClientContext>();
    slot->context->set_deadline(std::chrono::system_clock::now() + timeout_);
    if (!slot->connection->tenant.empty()) {
      slot->context->AddMetadata("hpvm-tenant", slot->connection->tenant);
    }
    slot->response.Clear();
    Kind::Call(*slot->connection->stub, slot->context.get(), &slot->connection->request, &slot->response,
               [this, slot](grpc::Status status) { OnAnswer(slot, status); });
  }

  void OnAnswer(Slot* slot, const grpc::Status& status) {
    CallRecord record{.due = slot->due, .sent = slot->sent, .done = RealClock().Now()};
    record.verdict = Judge(status, &record.names_wait);
    const bool is_wrong =
        status.ok() && !Kind::IsRight(slot->response, slot->connection->expected, slot->connection->request);
    bool more = false;
    {
      std::lock_guard lock(mutex_);
      result_.calls.push_back(record);
      if (status.ok()) {
        for (std::string& id : Kind::JobIds(slot->response)) {
          result_.job_ids.push_back(std::move(id));
        }
      } else if (record.verdict == Verdict::kFailed && result_.failure.empty()) {
        result_.failure = Message(FromGrpc(status));
      }
      if (is_wrong) {
        wrong_ = Internal("An answer is not what it should be.");
      } else if (must_succeed_ && !status.ok() && wrong_.ok()) {
        wrong_ = FromGrpc(status);
      }
      if (left_ > 0 && RealClock().Now() < end_ && wrong_.ok()) {
        --left_;
        more = true;
      }
    }
    if (more) {
      Send(slot, RealClock().Now());
    } else {
      GiveBack(slot);
    }
  }

  void GiveBack(Slot* slot) {
    std::lock_guard lock(mutex_);
    free_.push_back(slot);
    if (--in_flight_ == 0) {
      idle_.notify_all();
    }
  }

  std::vector<std::unique_ptr<Connection>> connections_;
  Duration timeout_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  // Guarded by mutex_ while calls are in flight.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
  size_t in_flight_ = 0;
  uint64_t left_ = 0;
  Time end_ = kNever;
  bool must_succeed_ = false;
  LoadResult result_;
  Status wrong_;
};

}  // namespace

StatusOr<std::unique_ptr<ServiceLoad>> ServiceLoad::Make(const LoadSpec& spec) {
  switch (spec.kind) {
    case LoadKind::kRun:
      return Load<RunKind>::Make(spec);
    case LoadKind::kSubmit:
      return Load<SubmitKind>::Make(spec);
    case LoadKind::kEcho:
      return Load<EchoKind>::Make(spec);
    case LoadKind::kRunMany:
      return Load<RunManyKind>::Make(spec);
    case LoadKind::kSubmitMany:
      return Load<SubmitManyKind>::Make(spec);
  }
  return Internal("There is no such load.");
}

std::vector<int64_t> SortedTimes(const LoadResult& result, Verdict verdict) {
  return Sorted(result, verdict, &CallRecord::due);
}

std::vector<int64_t> SortedSentTimes(const LoadResult& result, Verdict verdict) {
  return Sorted(result, verdict, &CallRecord::sent);
}

uint64_t Count(const LoadResult& result, Verdict verdict) {
  return static_cast<uint64_t>(std::count_if(result.calls.begin(), result.calls.end(),
                                             [&](const CallRecord& call) { return call.verdict == verdict; }));
}

double Quantile(const std::vector<int64_t>& sorted, double per_mille) {
  if (sorted.empty()) {
    return 0;
  }
  // The smallest value that at least that share of values does not exceed.
  const double rank = std::ceil(per_mille / 1000.0 * static_cast<double>(sorted.size()));
  const auto index = static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1;
  return static_cast<double>(sorted[index]);
}

}  // namespace hpvm::bench
