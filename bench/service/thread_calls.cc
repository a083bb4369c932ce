// SPDX-License-Identifier: Apache-2.0
// Loads of threads that each make a call and wait for it.
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "client/status/status.h"
#include "grpcpp/grpcpp.h"

#include "bench/service/run_calls.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm::bench {
namespace {

// One call of the thread with this number, which checks its response.
using Call = std::function<Status(uint32_t)>;

class ThreadLoad final : public CallLoad {
 public:
  ThreadLoad(uint32_t threads, Call call) : threads_(threads), call_(std::move(call)) {}

  StatusOr<Outcome> Run(uint32_t calls) override {
    std::atomic<int64_t> left{static_cast<int64_t>(calls)};
    std::mutex mutex;
    Status failure;
    std::vector<std::vector<int64_t>> took(threads_);
    const Time start = RealClock().Now();
    const auto work = [&](uint32_t thread) {
      while (left.fetch_sub(1) > 0) {
        const Time begin = RealClock().Now();
        if (const Status status = call_(thread); !status.ok()) {
          left = 0;
          std::lock_guard lock(mutex);
          failure = status;
          return;
        }
        took[thread].push_back((RealClock().Now() - begin).count());
      }
    };
    if (threads_ == 1) {
      work(0);
    } else {
      std::vector<std::thread> threads;
      for (uint32_t i = 0; i < threads_; ++i) {
        threads.emplace_back(work, i);
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
    }
    HPVMD_RETURN_IF_ERROR(failure);
    Outcome outcome{RealClock().Now() - start, {}};
    for (const std::vector<int64_t>& ns : took) {
      outcome.call_ns.insert(outcome.call_ns.end(), ns.begin(), ns.end());
    }
    return outcome;
  }

 private:
  const uint32_t threads_;
  const Call call_;
};

std::string Payload(uint32_t thread) {
  std::string data(kCallBytes, '\0');
  for (uint32_t i = 0; i < kCallBytes; ++i) {
    data[i] = static_cast<char>(i * 31 + thread * 7);
  }
  return data;
}

v1::RunRequest RequestOf(const std::string& handle, uint32_t thread) {
  v1::RunRequest request;
  request.set_handle(handle);
  v1::InputBinding* input = request.add_inputs();
  input->set_name("x");
  input->mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
  input->mutable_tensor()->add_shape(kCallBytes);
  input->mutable_tensor()->set_data(Payload(thread));
  return request;
}

Status IsAnswer(const v1::RunRequest& request, const v1::RunResponse& response) {
  return response.outputs_size() == 1 && response.outputs(0).tensor().data() == request.inputs(0).tensor().data()
             ? absl::OkStatus()
             : Internal("An answer does not hold the bytes that were sent.");
}

}  // namespace

StatusOr<std::unique_ptr<CallLoad>> MakeClientLoad(Client& client, const std::string& handle, uint32_t threads) {
  std::vector<v1::RunRequest> requests;
  for (uint32_t i = 0; i < threads; ++i) {
    requests.push_back(RequestOf(handle, i));
  }
  return std::make_unique<ThreadLoad>(threads, [&client, requests = std::move(requests)](uint32_t i) -> Status {
    HPVMD_ASSIGN_OR_RETURN(const v1::RunResponse response, client.Run(requests[i]));
    return IsAnswer(requests[i], response);
  });
}

StatusOr<std::unique_ptr<CallLoad>> MakeTensorLoad(Client& client, const std::string& handle) {
  const std::string payload = Payload(0);
  std::map<std::string, Tensor> inputs = {{"x", {ElementType::kU8, {kCallBytes}, {payload.begin(), payload.end()}}}};
  return std::make_unique<ThreadLoad>(1, [&client, handle, inputs = std::move(inputs)](uint32_t) -> Status {
    HPVMD_ASSIGN_OR_RETURN(const RunOutcome outcome, client.Run(handle, inputs));
    return outcome.outputs.at("y").data == inputs.at("x").data
               ? absl::OkStatus()
               : Internal("An answer does not hold the bytes that were sent.");
  });
}

StatusOr<std::unique_ptr<CallLoad>> MakeStubLoad(const std::string& endpoint, const std::string& handle) {
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials());
  // Shared, because a copyable function holds it.
  const std::shared_ptr<v1::Hpvm::Stub> stub = v1::Hpvm::NewStub(channel);
  return std::make_unique<ThreadLoad>(1, [stub, request = RequestOf(handle, 0)](uint32_t) -> Status {
    grpc::ClientContext context;
    v1::RunResponse response;
    HPVMD_RETURN_IF_ERROR(FromGrpc(stub->Run(&context, request, &response)));
    return IsAnswer(request, response);
  });
}

StatusOr<std::unique_ptr<CallLoad>> MakeRingEchoLoad(RingCaller& caller, uint32_t threads) {
  std::vector<std::string> payloads;
  for (uint32_t i = 0; i < threads; ++i) {
    payloads.push_back(Payload(i));
  }
  return std::make_unique<ThreadLoad>(threads, [&caller, payloads = std::move(payloads)](uint32_t i) -> Status {
    const std::string& sent = payloads[i];
    while (true) {
      HPVMD_ASSIGN_OR_RETURN(const std::optional<RingCaller::Answer> answer, caller.Call(sent, kNever));
      if (answer.has_value()) {
        return std::equal(answer->body.begin(), answer->body.end(), sent.begin(), sent.end(),
                          [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); })
                   ? absl::OkStatus()
                   : Internal("An answer does not hold the bytes that were sent.");
      }
      std::this_thread::yield();  // The ring is full at the moment.
    }
  });
}

Status AwaitRing(Client& client, CallLoad& load) {
  for (int tries = 0; tries < 1'000 && client.CallPath() != "ring"; ++tries) {
    HPVMD_RETURN_IF_ERROR(load.Run(2).status());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return client.CallPath() == "ring" ? absl::OkStatus()
                                     : Internal("The client opened no ring: " + client.CallPath() + ".");
}

}  // namespace hpvm::bench
