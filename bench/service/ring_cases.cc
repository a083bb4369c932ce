// SPDX-License-Identifier: Apache-2.0
// ring/1 and ring/64: Client::Run by ring, from as many threads of one client, compared with ring_echo, which does no
// work for its calls, and with a minimal gRPC server that answers by callbacks.
#include <algorithm>

#include "bench/registry.h"
#include "bench/service/ring_echo.h"
#include "bench/service/run_calls.h"
#include "bench/service/servers.h"

namespace hpvm::bench {
namespace {

double MedianUs(std::vector<int64_t>& ns) {
  std::nth_element(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2), ns.end());
  return static_cast<double>(ns[ns.size() / 2]) / 1e3;
}

// For one thread: the median call's microseconds. For many: calls per second.
StatusOr<Measurement> MeasureRing(uint32_t threads, uint32_t calls, int rounds) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Servers> servers, Servers::Start());
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<RingEcho> echo, RingEcho::Start());
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> ours, MakeClientLoad(*servers->client, servers->handle, threads));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> ring_echo, MakeRingEchoLoad(echo->caller(), threads));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> grpc, MakeCallbackEchoLoad(servers->peer, threads));
  HPVMD_RETURN_IF_ERROR(AwaitRing(*servers->client, *ours));
  const auto round_of = [&](CallLoad& load) {
    return [&load, threads, calls]() -> StatusOr<double> {
      HPVMD_ASSIGN_OR_RETURN(CallLoad::Outcome outcome, load.Run(calls));
      return threads == 1
                 ? MedianUs(outcome.call_ns)
                 : static_cast<double>(outcome.call_ns.size()) * 1e9 / static_cast<double>(outcome.elapsed.count());
    };
  };
  HPVMD_ASSIGN_OR_RETURN(Measurement measurement, MeasureInterleaved(threads == 1 ? Better::kLower : Better::kHigher,
                                                                     {{"ours", round_of(*ours)},
                                                                      {"ring_echo", round_of(*ring_echo)},
                                                                      {"grpc_callback", round_of(*grpc)}},
                                                                     rounds));
  if (servers->client->CallPath() != "ring") {
    return Internal("The client did not stay with its ring: " + servers->client->CallPath() + ".");
  }
  measurement.verified = true;  // Every answer was compared.
  return measurement;
}

}  // namespace

void AddRingCases(std::vector<Case>& cases) {
  cases.push_back(
      {.suite = "overhead", .name = "ring/1", .metric = "us_median_call", .better = Better::kLower, .run = [] {
         return MeasureRing(1, 5'000, 5);
       }});
  cases.push_back(
      {.suite = "overhead", .name = "ring/64", .metric = "calls_per_s", .better = Better::kHigher, .run = [] {
         return MeasureRing(64, 40'000, 5);
       }});
}

}  // namespace hpvm::bench
