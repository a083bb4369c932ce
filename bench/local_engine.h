// SPDX-License-Identifier: Apache-2.0
// An engine in this process with the CPU device or others, and the compiler process beside it.
#ifndef HPVMD_BENCH_LOCAL_ENGINE_H_
#define HPVMD_BENCH_LOCAL_ENGINE_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/forced_variant.h"
#include "base/status.h"
#include "bench/processes.h"
#include "compiler/api/learnt.h"
#include "compiler/api/service.h"
#include "engine/engine.h"

namespace hpvm::bench {

inline constexpr const char* kBenchKernels = "bench_kernels.wasm";
// The bytes of a module beside the program.
StatusOr<std::vector<uint8_t>> ReadKernels(const std::string& file = kBenchKernels);

class LocalEngine final : private engine::ModuleSource {
 public:
  struct Options {
    std::string kernels = kBenchKernels;
    std::vector<std::string> devices = {"cpu"};  // As CreateDevice takes them, in order of preference.
    LearntStore* learnt = nullptr;               // Of the devices; borrowed for the engine's life.
    uint32_t cpu_threads = 0;                    // Of device "cpu"; 0: as many as the machine has.
    graph::Limits graph_limits{};
    uint64_t device_bytes_max = 0;               // EngineOptions::device_bytes_max.
    // What compiles yield is kept there and shared with every process that names the same folder; empty: nowhere.
    std::string cache_folder{};
    gpu::ForcedVariant* gpu_forced = nullptr;  // DeviceOptions::gpu_forced.
    // Puts something around each device; may be empty.
    std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap{};
  };
  static StatusOr<std::unique_ptr<LocalEngine>> Start() { return Start(Options()); }
  static StatusOr<std::unique_ptr<LocalEngine>> Start(const Options& options);
  // The document's only module is the one this was started with, whatever it is called there.
  StatusOr<std::shared_ptr<engine::PreparedGraph>> Prepare(std::string_view document);
  engine::Engine& engine() { return *engine_; }
  // In the order of Options::devices.
  Device& device(size_t index) { return *devices_[index]; }
  CompilerService& compiler() { return *compiler_; }
  Hub& hub() { return hub_; }
  std::span<const uint8_t> kernels() const { return kernels_; }

 private:
  LocalEngine() = default;
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return std::span<const uint8_t>(kernels_); }

  std::vector<uint8_t> kernels_;
  Hub hub_;
  std::unique_ptr<Process> compiler_process_;
  std::unique_ptr<CompilerService> compiler_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_LOCAL_ENGINE_H_
