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
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backends/device.h"
#include "compiler/ir/launch.h"
#include "compiler/service.h"

namespace hpvm::testing {

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
};

// `functions` and `hub` are borrowed for the device's life.
std::unique_ptr<Device> CreateFunctionDevice(Hub& hub, const KernelFunctions& functions, FunctionDeviceOptions options);

// Makes an artifact that only carries the entry's name and the parameters. Refuses entries that `functions` does not
// have, with a diagnostic at byte 8. Counts.
class FunctionCompiler final : public CompilerService {
 public:
  explicit FunctionCompiler(const KernelFunctions& functions) : functions_(functions) {}
  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override;

  std::atomic<uint32_t> compiles{0};
  std::set<std::string> barrier_entries;                  // Artifacts that say they use barriers.
  std::map<ArtifactKind, std::set<std::string>> refused;  // Refused for that kind of artifact only.

 private:
  const KernelFunctions& functions_;  // Borrowed.
};

}  // namespace hpvm::testing

#endif  // HPVMD_ENGINE_TESTING_FUNCTION_DEVICE_H_
