// SPDX-License-Identifier: Apache-2.0
// Measurements of the CPU device, for people: the cost of a tiny dispatch, the delay until a helper joins, and how
// well a short launch is shared.
#include <algorithm>
#include <cstdio>

#include "backends/cpu/pool.h"
#include "backends/registry.h"
#include "tests/conformance/conformance.h"

namespace hpvm::conformance {
namespace {

constexpr std::array<uint64_t, 3> kOne = {1, 1, 1};

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

template <typename Body>
double BestSeconds(int rounds, const Body& body) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const Time start = RealClock().Now();
    body();
    best = std::min(best, Seconds(RealClock().Now() - start));
  }
  return best;
}

Status RunOn(Device& device, Work& work, Timeline& timeline, uint64_t value, bool timed) {
  const TimelinePoint signal{&timeline, value};
  Submission submission;
  submission.commands = &work.commands;
  submission.buffers = work.buffers;
  submission.signals = {&signal, 1};
  if (timed) {
    submission.timings = work.timings;
  }
  HPVMD_RETURN_IF_ERROR(device.Submit(submission));
  return Await(timeline, value);
}

// One instance per dispatch, 10,000 dispatches per submission.
void TinyDispatches(Bench& bench, const char* name, int buffers) {
  std::unique_ptr<Executable> kernel = bench.Load(name);
  std::unique_ptr<Buffer> buffer = bench.Upload(std::vector<float>(64, 0.0f));
  constexpr int kCommands = 10'000;
  Work work;
  std::vector<Arg> args(static_cast<size_t>(buffers), Arg::Of(*buffer));
  if (buffers == 2) {
    args.push_back(Arg::Scalar(1.0f));
  }
  for (int i = 0; i < kCommands; ++i) {
    work.Dispatch(*kernel, kOne, kOne, args);
  }
  std::unique_ptr<Timeline> timeline = bench.CreateTimeline();
  uint64_t value = 0;
  for (bool timed : {false, true}) {
    const double best = BestSeconds(30, [&] {
      HPVMD_CHECK(RunOn(bench.device(), work, *timeline, ++value, timed).ok());
    });
    std::printf("%-28s %-14s %8.1f ns a dispatch\n", name, timed ? "with timings" : "", best / kCommands * 1e9);
  }
}

void Efficiency(uint32_t threads, uint64_t instances) {
  Hub hub;
  std::unique_ptr<Device> device = *backends::CreateDevice("cpu", hub, {threads, nullptr});
  Artifact artifact = *CompileText(KernelText("shadow_stack"), *device);
  std::unique_ptr<Executable> kernel = *device->Load(std::move(artifact));
  BufferSpec spec;
  spec.bytes = instances * 4;
  std::unique_ptr<Buffer> out = *device->Allocate(spec);
  std::unique_ptr<Timeline> timeline = device->CreateTimeline();
  Work work;
  work.Dispatch(*kernel, {instances, 1, 1}, kOne, {Arg::Of(*out)});
  uint64_t value = 0;
  const double best = BestSeconds(200, [&] {
    HPVMD_CHECK(RunOn(*device, work, *timeline, ++value, true).ok());
  });
  std::printf("%-28s %u thread(s)    %8.1f us a launch of %llu instances\n", "shadow_stack", threads, best * 1e6,
              static_cast<unsigned long long>(instances));
}

// From the start of a run to the helper's first chunk.
class Latency final : public cpu::PoolBody {
 public:
  void Work(cpu::Chunks& chunks) override {
    uint64_t begin, end;
    while (chunks.Next(&begin, &end)) {
      if (chunks.participant() == 1 && joined_ == Time{0}) {
        joined_ = RealClock().Now();
        chunks.Cancel();
      }
    }
  }
  Time joined_{0};
};

void HelperLatency(Duration idle) {
  cpu::Pool pool(2, nullptr);
  std::vector<double> latencies;
  for (int i = 0; i < 200; ++i) {
    Latency body;
    const Time until = RealClock().Now() + idle;
    while (RealClock().Now() < until) {
    }
    const Time start = RealClock().Now();
    pool.Run({0, uint64_t{1} << 40, 1, 1, nullptr}, body);
    latencies.push_back(Seconds(body.joined_ - start));
  }
  std::sort(latencies.begin(), latencies.end());
  std::printf("%-28s idle %4lld us   %8.1f us median until the helper's first chunk (best %.1f)\n", "pool",
              static_cast<long long>(idle.count() / 1000), latencies[100] * 1e6, latencies[0] * 1e6);
}

}  // namespace
}  // namespace hpvm::conformance

int main() {
  using namespace hpvm::conformance;
  Bench bench("cpu");
  TinyDispatches(bench, "poke_nothing", 1);
  TinyDispatches(bench, "saxpy", 2);
  TinyDispatches(bench, "shadow_stack", 1);
  HelperLatency(std::chrono::microseconds(5));
  HelperLatency(std::chrono::microseconds(500));
  for (uint64_t instances : {2000, 20'000, 200'000}) {
    Efficiency(1, instances);
    Efficiency(2, instances);
  }
  return 0;
}
