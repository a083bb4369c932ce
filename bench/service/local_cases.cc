// SPDX-License-Identifier: Apache-2.0
// local/64MiB and registered/256MiB: large tensors of a client on the daemon's own host, through shared memory.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/status.h"
#include "bench/registry.h"
#include "bench/service/servers.h"
#include "hpvm/client.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kSmallBytes = uint64_t{4} << 10, kLargeBytes = uint64_t{64} << 20,
                   kRegisteredBytes = uint64_t{256} << 20;
// Number of calls per round; the round's value is their median.
constexpr int kCalls = 9;

void FillRandomly(std::span<uint8_t> bytes) {
  SeededRng rng(bytes.size());
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = rng.Next();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
}

// Calls Client::Run with the caller's own tensors, so that each side copies once; compares the result.
StatusOr<double> RunWithTensors(Client& client, const std::string& handle,
                                const std::map<std::string, Tensor>& inputs) {
  const Time start = RealClock().Now();
  HPVMD_ASSIGN_OR_RETURN(const RunOutcome outcome, client.Run(handle, inputs));
  const Duration elapsed = RealClock().Now() - start;
  const auto found = outcome.outputs.find("y");
  if (found == outcome.outputs.end() || found->second.data != inputs.at("x").data) {
    return Internal("The bytes that came back are not those that were sent.");
  }
  return 2.0 * static_cast<double>(kLargeBytes) / static_cast<double>(elapsed.count());
}

StatusOr<Measurement> MeasureLocal() {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Servers> servers, Servers::Start());
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> by_grpc,
                         Client::Connect({.endpoint = servers->daemon, .local_memory = false}));
  std::map<std::string, Tensor> inputs;
  Tensor& x = inputs["x"];
  x.type = ElementType::kU8;
  x.shape = {kLargeBytes};
  x.data.resize(kLargeBytes);
  FillRandomly(x.data);
  HPVMD_ASSIGN_OR_RETURN(
      Measurement measurement,
      MeasureInterleaved(Better::kHigher,
                         {{"ours", [&] { return RunWithTensors(*servers->client, servers->handle, inputs); }},
                          {"by_grpc", [&] { return RunWithTensors(*by_grpc, servers->handle, inputs); }}},
                         7));
  if (servers->client->TensorPath() != "shared memory") {
    return Internal("The client did not use shared memory: " + servers->client->TensorPath() + ".");
  }
  measurement.verified = true;  // Every round compared its bytes.
  return measurement;
}

// Two registered buffers of one size, and a run of the copy graph over them.
struct Registered {
  Buffer in, out;
  v1::RunRequest request;

  static StatusOr<Registered> Make(Servers& servers, uint64_t bytes) {
    Registered made;
    const uint64_t shape[] = {bytes};
    HPVMD_ASSIGN_OR_RETURN(made.in, servers.client->MakeLocalBuffer(ElementType::kU8, shape));
    HPVMD_ASSIGN_OR_RETURN(made.out, servers.client->MakeLocalBuffer(ElementType::kU8, shape));
    FillRandomly(made.in.memory());
    made.request.set_handle(servers.handle);
    made.request.set_placements_max(16);
    v1::InputBinding* input = made.request.add_inputs();
    input->set_name("x");
    input->mutable_buffer()->set_buffer_id(made.in.id());
    v1::OutputBinding* output = made.request.add_outputs();
    output->set_name("y");
    output->set_buffer_id(made.out.id());
    return made;
  }

  // Returns the microseconds of a call, from the daemon's receipt to its reply, that are not its kernel's. The rest
  // is wake-up latency: a client that waited 30 ms for its response takes a millisecond longer to notice it, whatever
  // the run did.
  StatusOr<double> RunBesideKernel(Client& client) const {
    HPVMD_ASSIGN_OR_RETURN(const v1::RunResponse response, client.Run(request));
    int64_t ns = static_cast<int64_t>(response.timing().total_ns());
    if (response.traffic().moved_bytes() != 0 || response.placements().empty()) {
      return Internal("The run moved " + std::to_string(response.traffic().moved_bytes()) + " bytes.");
    }
    for (const v1::NodePlacement& node : response.placements()) {
      ns -= static_cast<int64_t>(node.end_ns() - node.start_ns());
    }
    return static_cast<double>(ns) / 1e3;
  }

  StatusOr<double> Round(Client& client) {
    std::memset(out.memory().data(), 0, out.memory().size());
    std::vector<double> took;
    for (int i = 0; i < kCalls; ++i) {
      HPVMD_ASSIGN_OR_RETURN(took.emplace_back(), RunBesideKernel(client));
    }
    if (std::memcmp(in.memory().data(), out.memory().data(), in.memory().size()) != 0) {
      return Internal("The output is not the input.");
    }
    std::nth_element(took.begin(), took.begin() + kCalls / 2, took.end());
    return took[kCalls / 2];
  }
};

StatusOr<Measurement> MeasureRegistered() {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Servers> servers, Servers::Start());
  HPVMD_ASSIGN_OR_RETURN(Registered large, Registered::Make(*servers, kRegisteredBytes));
  HPVMD_ASSIGN_OR_RETURN(Registered small, Registered::Make(*servers, kSmallBytes));
  HPVMD_ASSIGN_OR_RETURN(Measurement measurement,
                         MeasureInterleaved(Better::kLower,
                                            {{"ours", [&] { return large.Round(*servers->client); }},
                                             {"of_4KiB", [&] { return small.Round(*servers->client); }}},
                                            7));
  measurement.verified = true;  // Every round compared its bytes, and that none were moved.
  return measurement;
}

}  // namespace

void AddLocalCases(std::vector<Case>& cases) {
  cases.push_back({.suite = "overhead",
                   .name = "local/64MiB",
                   .metric = "GB_per_s",
                   .better = Better::kHigher,
                   .run = MeasureLocal});
  cases.push_back({.suite = "overhead",
                   .name = "registered/256MiB",
                   .metric = "us_beside_kernel",
                   .better = Better::kLower,
                   .run = MeasureRegistered});
}

}  // namespace hpvm::bench
