// SPDX-License-Identifier: Apache-2.0
// A device whose kernels are C++ functions, found by the entry's name, and the matching compiler: for tests of the
// engine that must not depend on a real back end, and for devices that this machine lacks (with their own memory, or
// submissions that only queue).
#ifndef HPVMD_ENGINE_TESTING_FUNCTION_DEVICE_H_
#define HPVMD_ENGINE_TESTING_FUNCTION_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backends/contract/device.h"
#include "compiler/api/service.h"
#include "compiler/ir/launch.h"
#include "engine/engine.h"

namespace hpvm::engine::testing {

// One instance of a launch.
struct FunctionCall {
  std::array<uint64_t, 3> instance{};
  std::array<uint64_t, 3> extent{};
  std::span<const ir::Argument> arguments;  // One per kernel parameter.
  const std::atomic<uint32_t>* stop = nullptr;
};
// A result other than kNone ends the launch.
using KernelFunction = std::function<ir::TrapCode(const FunctionCall&)>;
using KernelFunctions = std::map<std::string, KernelFunction>;

struct FunctionDeviceOptions {
  std::string id = "cpu:0";
  DeviceKind kind = DeviceKind::kCpu;
  ArtifactKind artifact_kind = ArtifactKind::kCpuImage;
  // When false, buffers are in the device's own memory, and Buffer::host() is null.
  bool host_visible = true;
  // When false, submissions run on a thread of the device.
  bool runs_inline = true;
  uint64_t memory_bytes = uint64_t{1} << 40;
  std::set<std::string> refused_entries{};  // Load fails for these entries.
  bool supports_barrier = true;             // When false, Supports refuses kernels that use barriers.
  std::set<std::string> invalid_entries{};  // For these entries, Load reports a fault of the module.
  std::set<std::string> lost_entries{};     // Launches of these entries lose the device, without a report of the cause.
  std::string silicon{};                    // Empty to use the id.
  bool is_emulated = false;
  uint64_t allocation_bytes_max = 0;  // 0 to use memory_bytes.
  uint64_t group_items_max = uint64_t{1} << 32;
  GpuTarget gpu{};
  uint64_t driver_bytes_max = ~uint64_t{0};  // The driver refuses to hold more than this in its buffers at once.
  bool has_copy_lanes = false;               // Each lane has a thread. Only when submissions run on threads.
  std::function<void(CopyMeter&, uint64_t bytes, bool is_up)> note_copy{};  // Reports copies to the meter.
  // Number of commands that still run before the device is lost: then its memory is garbage, and every submission and
  // allocation fails with kUnavailable. Never lost when negative or null. Borrowed.
  std::atomic<int64_t>* commands_left = nullptr;
  // Number of submissions that are still accepted; then Submit fails with kUnavailable. Otherwise as commands_left.
  std::atomic<int64_t>* submissions_left = nullptr;
  // Memory shared between devices; imports may fail although exports_memory promises them.
  bool exports_memory = false, imports_memory = false, fails_to_import = false;
  // Minimum duration of a launch, as its instances at this speed; 0 or null for the duration of its functions.
  const std::atomic<uint64_t>* instances_per_second = nullptr;  // Borrowed.
  // Delay before each launch begins, which no timing shows.
  std::chrono::nanoseconds launch_delay{0};
  // As in DeviceInfo; 0 when unknown.
  double operations_per_second = 0, link_bytes_per_second = 0;
};

// Counts of a function device's actions, for tests.
struct FunctionDeviceCounts {
  uint32_t exported = 0, imported = 0, copies = 0, loads = 0;
};

// `functions`, `hub` and `counts` are borrowed for the device's life.
std::unique_ptr<Device> CreateFunctionDevice(Hub& hub, const KernelFunctions& functions, FunctionDeviceOptions options,
                                             FunctionDeviceCounts* counts = nullptr);

// Makes artifacts that contain only the entry's name and the parameters. Refuses entries that are missing in
// `functions`, with a diagnostic at byte 8. Counts compiles.
class FunctionCompiler final : public CompilerService {
 public:
  explicit FunctionCompiler(const KernelFunctions& functions) : functions_(functions) {}
  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override;

  std::atomic<uint32_t> compiles{0};
  bool names_artifacts = false;  // Names artifacts as caches do: measurements on one device then apply to similar
                                 // devices.
  // The last request, for tests that compile one thing at a time.
  CompileRequest last;
  std::set<std::string> barrier_entries;  // Entries whose artifacts claim to use barriers.
  std::set<std::string> native_entries;   // Entries whose artifacts claim to be modules written for the device.
  std::map<std::string, ir::BoundsProgram> bounds;           // Keyed by entry: the bounds programs of artifacts.
  std::map<ArtifactKind, std::set<std::string>> refused;     // Refused only for that kind of artifact.
  std::map<ArtifactKind, std::set<std::string>> over_limit;  // A limit of the compiler ends the compile of these
                                                             // after a second.

 private:
  std::mutex mutex_;
  const KernelFunctions& functions_;  // Borrowed.
};

// Provides bytes for every module; a FunctionCompiler ignores them.
class AnyModule final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return std::span<const uint8_t>(kBytes); }

 private:
  static constexpr uint8_t kBytes[] = {0, 'a', 's', 'm'};
};

}  // namespace hpvm::engine::testing

#endif  // HPVMD_ENGINE_TESTING_FUNCTION_DEVICE_H_
