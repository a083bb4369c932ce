// SPDX-License-Identifier: Apache-2.0
// An engine in this process with the CPU device or others, and the compiler process.
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
#include "compiler/api/service.h"
#include "compiler/api/tuning_record.h"
#include "engine/engine.h"

namespace hpvm::bench {

inline constexpr const char* kBenchKernels = "bench_kernels.wasm";
// Reads a module from the program's folder.
StatusOr<std::vector<uint8_t>> ReadKernels(const std::string& file = kBenchKernels);

class LocalEngine final : private engine::ModuleSource {
 public:
  struct Options {
    std::string kernels = kBenchKernels;
    std::vector<std::string> devices = {"cpu"};  // As CreateDevice accepts them, in order of preference.
    TuningStore* tuning = nullptr;               // For the devices; borrowed for the engine's lifetime.
    uint32_t cpu_threads = 0;                    // For device "cpu"; as many as the machine has when 0.
    graph::Limits graph_limits{};
    uint64_t device_bytes_max = 0;  // EngineOptions::device_bytes_max.
    // Folder where compiled kernels are cached and shared with every process that names it; no cache when empty.
    std::string cache_folder{};
    gpu::ForcedVariant* gpu_forced = nullptr;  // DeviceOptions::gpu_forced.
    // Wraps each device; may be empty.
    std::function<std::unique_ptr<Device>(std::unique_ptr<Device>)> wrap{};
  };
  static StatusOr<std::unique_ptr<LocalEngine>> Start() { return Start(Options()); }
  static StatusOr<std::unique_ptr<LocalEngine>> Start(const Options& options);
  // The document's only module is the one that the engine was started with, whatever its name there.
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
