// SPDX-License-Identifier: Apache-2.0
// hpvm-gpu-copies: measures the throughput of copies between pageable host memory and a device, by shapes of staging
// memory.
//
//   hpvm-gpu-copies --device opencl:0                            the usual shape
//   hpvm-gpu-copies --device vulkan:0 --pinned                   beside it the same from and to pinned memory
//   HPVM_COPIES_SLOTS=3,6,12 HPVM_COPIES_SLOT_MIB=4,8,16 HPVM_COPIES_HELPERS=3,7
//     hpvm-gpu-copies --device opencl:0                          every combination
//   hpvm-gpu-copies --host                                       the host's half alone, without a device
//
// Prints the median and the best of some rounds in GB/s (10^9 bytes), and reports wrong bytes.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "backends/contract/host_block.h"
#include "backends/gpu/host_copy.h"
#include "backends/opencl/device.h"
#include "backends/vulkan/device.h"

namespace hpvm {
namespace {

using Shapes = std::vector<gpu::StagingShape>;

std::vector<uint32_t> FromEnvironment(const char* name, uint32_t usual) {
  const char* const text = std::getenv(name);
  std::vector<uint32_t> values;
  for (const auto& part : absl::StrSplit(text == nullptr ? std::to_string(usual) : text, ',')) {
    uint32_t value = 0;
    if (!absl::SimpleAtoi(part, &value)) {
      std::fprintf(stderr, "%s is not a list of numbers.\n", name);
      std::exit(2);
    }
    values.push_back(value);
  }
  return values;
}

Shapes ShapesFromEnvironment() {
  const gpu::StagingShape usual;
  Shapes shapes;
  const auto mib = FromEnvironment("HPVM_COPIES_SLOT_MIB", static_cast<uint32_t>(usual.slot_bytes / limits::kMiB));
  const auto slots = FromEnvironment("HPVM_COPIES_SLOTS", static_cast<uint32_t>(usual.slots));
  const auto helpers = FromEnvironment("HPVM_COPIES_HELPERS", usual.helpers);
  for (const uint32_t helper : helpers) {
    for (const uint32_t bytes : mib) {
      for (const uint32_t count : slots) {
        shapes.push_back({bytes * limits::kMiB, count, helper});
      }
    }
  }
  return shapes;
}

// Resident pages.
struct Pages {
  explicit Pages(uint64_t size) : bytes(size), data(static_cast<uint8_t*>(std::aligned_alloc(4096, size))) {
    std::memset(data, 1, size);
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  const uint64_t bytes;
  uint8_t* const data;
};

class View final : public Buffer {
 public:
  View(Pages& pages, HostBlock* block) : pages_(pages), block_(block) {}
  uint64_t bytes() const override { return pages_.bytes; }
  uint8_t* host() override { return pages_.data; }
  HostBlock* block() const override { return block_; }

 private:
  Pages& pages_;
  HostBlock* const block_;
};

template <typename F>
std::vector<double> Rates(uint64_t bytes, int rounds, const F& work) {
  std::vector<double> rates;
  for (int round = 0; round <= rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (round != 0) {  // The first one allocates.
      rates.push_back(static_cast<double>(bytes) / seconds.count() / 1e9);
    }
  }
  std::ranges::sort(rates);
  return rates;
}

void Print(const char* what, const std::vector<double>& rates) {
  std::printf("  %s %6.2f (best %6.2f)", what, rates[rates.size() / 2], rates.back());
}

void Print(const gpu::StagingShape& shape) {
  std::printf("%2zu slots of %2llu MiB, %2u helpers", shape.slots,
              static_cast<unsigned long long>(shape.slot_bytes / limits::kMiB), shape.helpers);
}

class DeviceCopies {
 public:
  DeviceCopies(const std::string& name, const gpu::StagingShape& shape) : name_(name), shape_(shape) {}

  Status Open() {
    const bool is_vulkan = name_.rfind("vulkan", 0) == 0;
    StatusOr<std::unique_ptr<Device>> device =
        is_vulkan ? CreateVulkanDevice(name_, hub_, {.as_discrete = true, .staging = shape_})
                  : CreateOpenClDevice(name_, hub_, {.always_stage = true, .staging = shape_});
    HPVMD_RETURN_IF_ERROR(device.status());
    device_ = *std::move(device);
    for (std::unique_ptr<Timeline>& timeline : timelines_) {
      timeline = device_->CreateTimeline();
    }
    return absl::OkStatus();
  }
  Device& device() { return *device_; }

  // Copies one whole buffer to the other.
  Status Copy(Buffer& from, Buffer& to, Lane lane) {
    CommandList list;
    list.commands.push_back(CopyCommand{.source = 0, .target = 1, .bytes = from.bytes()});
    const std::vector<Buffer*> slots{&from, &to};
    Timeline& timeline = *timelines_[static_cast<size_t>(lane)];
    const TimelinePoint end{&timeline, ++value_};
    Submission submission;
    submission.commands = &list;
    submission.buffers = slots;
    submission.signals = {&end, 1};
    submission.lane = lane;
    HPVMD_RETURN_IF_ERROR(device_->Submit(submission));
    return timeline.Wait(end.value, kNever);
  }

 private:
  const std::string name_;
  const gpu::StagingShape shape_;
  Hub hub_;
  std::unique_ptr<Device> device_;
  std::array<std::unique_ptr<Timeline>, kLanes> timelines_;  // Each belongs to one lane.
  uint64_t value_ = 0;
};

Status MeasureDevice(const std::string& name, const gpu::StagingShape& shape, Pages& up, Pages& down, bool is_pinned,
                     int rounds) {
  DeviceCopies up_copies(name, shape);
  HPVMD_RETURN_IF_ERROR(up_copies.Open());
  Device& device = up_copies.device();
  const bool has_lanes = device.info().has_copy_lanes;
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Buffer> memory, device.Allocate({.bytes = up.bytes}));
  HostBlock up_block(up.data, up.bytes), down_block(down.data, down.bytes);
  View from(up, is_pinned ? &up_block : nullptr), to(down, is_pinned ? &down_block : nullptr);
  Status status;
  const auto copy = [&](Buffer& source, Buffer& target, Lane lane) {
    status.Update(up_copies.Copy(source, target, has_lanes ? lane : Lane::kCompute));
  };
  const int warm = is_pinned ? 10 : 0;  // Until the memory is pinned.
  for (int i = 0; i < warm; ++i) {
    copy(from, *memory, Lane::kUpload);
    copy(*memory, to, Lane::kDownload);
  }
  const auto ups = Rates(up.bytes, rounds, [&] { copy(from, *memory, Lane::kUpload); });
  std::memset(down.data, 0, down.bytes);
  const auto downs = Rates(up.bytes, rounds, [&] { copy(*memory, to, Lane::kDownload); });
  HPVMD_RETURN_IF_ERROR(status);
  std::printf("%s  ", name.c_str());
  is_pinned ? static_cast<void>(std::printf("pinned                        ")) : Print(shape);
  Print("up", ups);
  Print("down", downs);
  std::printf("%s\n", std::memcmp(up.data, down.data, up.bytes) == 0 ? "" : "  WRONG BYTES");
  std::fflush(stdout);
  return absl::OkStatus();
}

// Threads that fill and empty slots as fast as possible, without waiting for a device.
void MeasureHost(const gpu::StagingShape& shape, Pages& pages, int rounds) {
  CopyMeter meter;
  gpu::HostCopier copier(shape.helpers, meter);
  Pages slots(shape.slot_bytes * shape.slots);
  const auto move = [&](bool is_up) {
    std::vector<gpu::HostCopier::Task> tasks(shape.slots);
    size_t begun = 0;
    const size_t count = pages.bytes / shape.slot_bytes;
    for (size_t i = 0; i < count + shape.slots; ++i) {
      if (i >= shape.slots) {
        copier.Finish(tasks[i % shape.slots]);
      }
      if (begun < count) {
        uint8_t* const slot = slots.data + i % shape.slots * shape.slot_bytes;
        uint8_t* const page = pages.data + begun++ * shape.slot_bytes;
        copier.Start(tasks[i % shape.slots], {.target = is_up ? slot : page,
                                              .source = is_up ? page : slot,
                                              .bytes = shape.slot_bytes,
                                              .is_streamed = !is_up});
      }
    }
  };
  const auto ups = Rates(pages.bytes, rounds, [&] { move(true); });
  const auto downs = Rates(pages.bytes, rounds, [&] { move(false); });
  std::printf("host      ");
  Print(shape);
  Print("up", ups);
  Print("down", downs);
  std::printf("\n");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  CLI::App app("How quickly copies between pageable host memory and a device flow.");
  std::vector<std::string> devices;
  uint64_t mib = 1024;
  int rounds = 7;
  bool is_host = false, has_pinned = false;
  app.add_option("--device", devices, "\"opencl:0\", \"vulkan:0\"; several are measured one after the other.");
  app.add_option("--mib", mib, "Of each copy.");
  app.add_option("--rounds", rounds, "Of each direction.");
  app.add_flag("--pinned", has_pinned, "Also from and to pinned memory, which needs no staging.");
  app.add_flag("--host", is_host, "Threads alone.");
  CLI11_PARSE(app, argc, argv);
  Pages up(mib * limits::kMiB), down(mib * limits::kMiB);
  for (uint64_t i = 0; i < up.bytes; i += sizeof(i)) {
    const uint64_t word = i * 0x9e3779b97f4a7c15;
    std::memcpy(up.data + i, &word, sizeof(word));
  }
  std::printf("%u processors, copies of %llu MiB, GB/s\n", std::thread::hardware_concurrency(),
              static_cast<unsigned long long>(mib));
  const Shapes shapes = ShapesFromEnvironment();
  for (const gpu::StagingShape& shape : shapes) {
    if (is_host) {
      MeasureHost(shape, down, rounds);
    }
  }
  bool is_ok = true;
  for (const std::string& device : devices) {
    for (size_t i = 0; i < shapes.size() + (has_pinned ? 1 : 0); ++i) {
      const bool is_pinned = i == shapes.size();
      const Status status =
          MeasureDevice(device, is_pinned ? gpu::StagingShape() : shapes[i], up, down, is_pinned, rounds);
      if (!status.ok()) {
        std::printf("%s: %s\n", device.c_str(), Message(status).c_str());
        is_ok = false;
      }
    }
  }
  return is_ok ? 0 : 1;
}

}  // namespace
}  // namespace hpvm

int main(int argc, char** argv) { return hpvm::Main(argc, argv); }
