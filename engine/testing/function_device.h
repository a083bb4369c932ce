// SPDX-License-Identifier: Apache-2.0
// A device whose kernels are C++ functions, found by the entry's name, and the compiler that goes with it: for tests of
// the engine that must not depend on a real back end, and for devices that this machine does not have (memory of their
// own, submissions that only queue).
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
  std::span<const ir::Argument> arguments;  // One a kernel parameter.
  const std::atomic<uint32_t>* stop = nullptr;
};
// Anything but kNone ends the launch.
using KernelFunction = std::function<ir::TrapCode(const FunctionCall&)>;
using KernelFunctions = std::map<std::string, KernelFunction>;

struct FunctionDeviceOptions {
  std::string id = "cpu:0";
  DeviceKind kind = DeviceKind::kCpu;
  ArtifactKind artifact_kind = ArtifactKind::kCpuImage;
  // False: buffers are of the device's own, Buffer::host() is null.
  bool host_visible = true;
  // False: submissions run on a thread of the device.
  bool runs_inline = true;
  uint64_t memory_bytes = uint64_t{1} << 40;
  std::set<std::string> refused_entries{};  // Load fails for these.
  bool supports_barrier = true;             // False: Supports refuses kernels that use barriers.
  std::set<std::string> invalid_entries{};  // Load calls these the module's fault.
  std::set<std::string> lost_entries{};     // Launches of these lose the device, which does not say whose fault it is.
  std::string silicon{};                    // Empty: the id.
  bool is_emulated = false;
  uint64_t allocation_bytes_max = 0;  // 0: memory_bytes.
  uint64_t group_items_max = uint64_t{1} << 32;
  GpuTarget gpu{};
  uint64_t driver_bytes_max = ~uint64_t{0};  // The driver refuses to have more than this in its buffers at once.
  bool has_copy_lanes = false;               // A thread for each lane. Only where submissions run on threads.
  std::function<void(CopyMeter&, uint64_t bytes, bool is_up)> note_copy{};  // What it says of its copies.
  // Commands that still run before the device is lost: its memory is garbage then, and every submission and
  // every allocation fails with kUnavailable. Negative: never. Borrowed; null: never.
  std::atomic<int64_t>* commands_left = nullptr;
  // Submissions that are still taken; Submit fails with kUnavailable then. Otherwise as commands_left.
  std::atomic<int64_t>* submissions_left = nullptr;
  // Memory shared between devices; what exports_memory promises may fail.
  bool exports_memory = false, imports_memory = false, fails_to_import = false;
  // A launch takes as long as its instances need at this speed, at least; 0 or null: as long as its functions do.
  const std::atomic<uint64_t>* instances_per_second = nullptr;  // Borrowed.
  // So long a launch waits before it begins, which no timing shows.
  std::chrono::nanoseconds launch_delay{0};
  // As DeviceInfo has them; 0: unknown.
  double operations_per_second = 0, link_bytes_per_second = 0;
};

// What a function device did, for tests.
struct FunctionDeviceCounts {
  uint32_t exported = 0, imported = 0, copies = 0, loads = 0;
};

// `functions`, `hub` and `counts` are borrowed for the device's life.
std::unique_ptr<Device> CreateFunctionDevice(Hub& hub, const KernelFunctions& functions, FunctionDeviceOptions options,
                                             FunctionDeviceCounts* counts = nullptr);

// Makes an artifact that only carries the entry's name and the parameters. Refuses entries that `functions` does not
// have, with a diagnostic at byte 8. Counts.
class FunctionCompiler final : public CompilerService {
 public:
  explicit FunctionCompiler(const KernelFunctions& functions) : functions_(functions) {}
  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override;

  std::atomic<uint32_t> compiles{0};
  bool names_artifacts = false;  // As caches do: what is learnt on one device is known of others like it.
  // The last request, of a test that compiles one thing at a time.
  CompileRequest last;
  std::set<std::string> barrier_entries;                     // Artifacts that say they use barriers.
  std::set<std::string> native_entries;                      // And that they are modules written for the device.
  std::map<std::string, ir::BoundsProgram> bounds;           // By entry: what artifacts say of their offsets.
  std::map<ArtifactKind, std::set<std::string>> refused;     // Refused for that kind of artifact only.
  std::map<ArtifactKind, std::set<std::string>> over_limit;  // A limit of the compiler's ends these, after a second.

 private:
  std::mutex mutex_;
  const KernelFunctions& functions_;  // Borrowed.
};

// Bytes for every module, of which a FunctionCompiler makes nothing.
class AnyModule final : public ModuleSource {
 public:
  StatusOr<std::span<const uint8_t>> Find(const graph::Module&) override { return std::span<const uint8_t>(kBytes); }

 private:
  static constexpr uint8_t kBytes[] = {0, 'a', 's', 'm'};
};

}  // namespace hpvm::engine::testing

#endif  // HPVMD_ENGINE_TESTING_FUNCTION_DEVICE_H_
