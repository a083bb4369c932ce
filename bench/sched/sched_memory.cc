// SPDX-License-Identifier: Apache-2.0
// memory/: a working set of four times the device's limit, compared with one that fits.
//
// The buffers form a ring; in each pass every buffer is updated from its two successors, so that a pass needs all of
// them and no order of the nodes keeps the device from cycling through them. A node holds three, so of room for c of
// k buffers c - 3 remain for buffers that stay: each pass but the first has to bring at least k - c + 3 back, and to
// save as many, since all of them were written. Together with the initial inputs and final outputs, this is the
// minimum that any plan of whole launches moves (for these numbers an exhaustive search finds the same, 122 buffers).
#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/sched/sched.h"
#include "bench/sched/sched_graph.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kBuffers = 16, kPasses = 4, kHeld = kBuffers / 4, kUsed = 3;

struct Ring {
  std::vector<PageMemory> memory;
  BenchGraph graph;
  uint64_t bytes = 0;  // Size of one buffer.
};

Ring MakeRing(uint64_t count, const std::string& device) {
  Ring ring;
  ring.bytes = count * sizeof(float);
  std::vector<std::string> holder(kBuffers);
  for (uint64_t i = 0; i < kBuffers; ++i) {
    PageMemory& memory = ring.memory.emplace_back(ring.bytes);
    const std::span<float> values = memory.as<float>();
    for (uint64_t k = 0; k < count; ++k) {
      values[k] = static_cast<float>((k * 7 + i * 13) % 1000) * 0.001f;
    }
    holder[i] = "x" + std::to_string(i);
    ring.graph.inputs[holder[i]] = {ElementType::kF32, count, memory.data()};
  }
  for (uint64_t pass = 0; pass < kPasses; ++pass) {
    for (uint64_t i = 0; i < kBuffers; ++i) {
      GraphNode& node = ring.graph.nodes.emplace_back();
      node.name = "p" + std::to_string(pass) + "_" + std::to_string(i);
      node.entry = "nstream";
      node.extent = {count, 1, 1};
      node.device = device;
      node.scalars = {0.25f};
      const std::string to = pass + 1 == kPasses ? "y" + std::to_string(i) : std::string();
      node.ports = {{"a", Access::kInOut, ElementType::kF32, count, holder[i], to},
                    {"b", Access::kIn, ElementType::kF32, count, holder[(i + 1) % kBuffers], ""},
                    {"c", Access::kIn, ElementType::kF32, count, holder[(i + 2) % kBuffers], ""}};
      holder[i] = node.name + ".a";
    }
  }
  return ring;
}

bool SameOutputs(const BenchRun& a, const BenchRun& b) {
  return std::all_of(a.outputs().begin(), a.outputs().end(), [&](const auto& output) {
    const PageMemory& other = b.outputs().at(output.first);
    return std::memcmp(output.second.data(), other.data(), other.bytes()) == 0;
  });
}

StatusOr<Measurement> MeasureRing(const std::string& device, uint64_t count, int rounds) {
  const Ring ring = MakeRing(count, device.find(':') == std::string::npos ? device + ":0" : device);
  const auto start = [&](uint64_t device_bytes_max) {
    return LocalEngine::Start(
        {.kernels = "bench_gpu/kernels.wasm", .devices = {device, "cpu"}, .device_bytes_max = device_bytes_max});
  };
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalEngine> roomy, start(0));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalEngine> tight, start(kHeld * ring.bytes));
  HPVMD_ASSIGN_OR_RETURN(BenchRun fits, BenchRun::Prepare(*roomy, ring.graph));
  HPVMD_ASSIGN_OR_RETURN(BenchRun over, BenchRun::Prepare(*tight, ring.graph));
  HPVMD_ASSIGN_OR_RETURN(
      Measurement measured,
      MeasureInterleaved(Better::kLower, {{"ours", [&] { return over.Run(); }}, {"fits", [&] { return fits.Run(); }}},
                         rounds));
  const double gib = 1024.0 * 1024 * 1024;
  const uint64_t once = 2 * kBuffers * ring.bytes;
  const uint64_t least = once + (kPasses - 1) * 2 * (kBuffers - kHeld + kUsed) * ring.bytes;
  measured.figures["moved_gib"] = static_cast<double>(over.last().moved_bytes) / gib;
  measured.figures["least_gib"] = static_cast<double>(least) / gib;
  measured.figures["moved_when_it_fits_gib"] = static_cast<double>(fits.last().moved_bytes) / gib;
  // Cost of moving: the time in which the fitting case moves the same bytes in and out, assuming it does nothing
  // else.
  const double fitting = measured.peers["fits"];
  measured.figures["traffic_ratio"] = static_cast<double>(over.last().moved_bytes) / static_cast<double>(least);
  measured.figures["time_ratio"] = measured.ours / fitting;
  measured.figures["time_over_traffic_ratio"] =
      measured.ours / (fitting * static_cast<double>(least) / static_cast<double>(once));
  measured.note = std::to_string(kBuffers) + " buffers of " + std::to_string(ring.bytes >> 20) + " MiB, room for " +
                  std::to_string(kHeld);
  measured.verified = SameOutputs(over, fits);
  return measured;
}

}  // namespace

void AddSchedMemoryCases(std::vector<Case>& cases, const SchedOptions& options) {
  for (const std::string& device : options.devices) {
    if (device == "cpu") {
      continue;  // Its memory belongs to the caller.
    }
    const uint64_t count = options.quick ? 1 << 16 : options.large ? 128 << 20 : 4 << 20;
    cases.push_back({.suite = "sched",
                     .name = "memory/ring/" + device,
                     .metric = "s",
                     .better = Better::kLower,
                     .run = [=, quick = options.quick] { return MeasureRing(device, count, quick ? 2 : 5); }});
  }
}

}  // namespace hpvm::bench
