// SPDX-License-Identifier: Apache-2.0
// Loads of threads that each make a call and wait for it.
#include <atomic>
#include <mutex>
#include <thread>

#include "bench/service/run_calls.h"

namespace hpvm::bench {
namespace {

// One call of the thread with this number, which checks its answer.
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

}  // namespace

StatusOr<std::unique_ptr<CallLoad>> MakeClientLoad(Client& client, const std::string& handle, uint32_t threads) {
  std::vector<v1::RunRequest> requests;
  for (uint32_t i = 0; i < threads; ++i) {
    v1::RunRequest& request = requests.emplace_back();
    request.set_handle(handle);
    v1::InputBinding* input = request.add_inputs();
    input->set_name("x");
    input->mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
    input->mutable_tensor()->add_shape(kCallBytes);
    input->mutable_tensor()->set_data(Payload(i));
  }
  return std::make_unique<ThreadLoad>(threads, [&client, requests = std::move(requests)](uint32_t i) -> Status {
    HPVMD_ASSIGN_OR_RETURN(const v1::RunResponse response, client.Run(requests[i]));
    return response.outputs_size() == 1 && response.outputs(0).tensor().data() == requests[i].inputs(0).tensor().data()
               ? absl::OkStatus()
               : Internal("An answer does not hold the bytes that were sent.");
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
      std::this_thread::yield();  // The ring is full just now.
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
