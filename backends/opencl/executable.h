// SPDX-License-Identifier: Apache-2.0
// A program built by the driver, with one kernel object per variant.
#ifndef HPVMD_BACKENDS_OPENCL_EXECUTABLE_H_
#define HPVMD_BACKENDS_OPENCL_EXECUTABLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/contract/driver_builder.h"
#include "backends/gpu/dispatch.h"
#include "backends/gpu/launch.h"
#include "backends/opencl/buffer.h"
#include "backends/opencl/platform.h"

namespace hpvm::opencl {

struct ExecutableOptions {
  DriverBuilder* builder = nullptr;  // As in DeviceOptions.
  TuningStore* tuning = nullptr;
  gpu::ForcedVariant* forced = nullptr;
  uint32_t undeclared_group_max = 0;  // OpenClOptions.
};

// Location of a launch's trap record.
struct TrapTarget {
  MemoryRef records;
  uint32_t index = 0;
};

// Launches belong to the device's submit thread.
class OpenClExecutable final : public Executable {
 public:
  static StatusOr<std::unique_ptr<OpenClExecutable>> Load(const Found& found, cl_context context, Artifact artifact,
                                                          const ExecutableOptions& options, const Patience& patience);
  const Artifact& artifact() const override { return artifact_; }

  const gpu::LaunchReader& reader() const { return *reader_; }
  gpu::Chooser& chooser() const { return *chooser_; }
  bool can_trap() const { return can_trap_; }
  // The kernel's own queue, for program binaries of FPGA-class devices; null: the device's queue.
  cl_command_queue queue() const { return queue_.get(); }

  // Sets the arguments of one part that differ from its last launch, and returns the kernel to enqueue.
  StatusOr<cl_kernel> Prepare(const gpu::LaunchInputs& inputs, const gpu::Part& part, const TrapTarget& traps);

 private:
  struct Variant {
    Kernel kernel;
    std::vector<bool> has_start;  // One per parameter: a kBufferStart accompanies its kBuffer.
    // Last value set for each argument: a scalar's bits or a memory object's serial number.
    std::vector<uint64_t> last;
    std::vector<bool> is_set;
    uint64_t group_max = 0;  // Largest group size, as reported by the driver.
  };
  struct Built {
    Program program;
    std::vector<Variant> variants;
  };
  using Group = std::array<uint32_t, 3>;

  explicit OpenClExecutable(Artifact artifact);
  Status Build(const Found& found, cl_context context, const ExecutableOptions& options, const Patience& patience);
  StatusOr<Built> BuildFor(const std::string& build_options, const Patience& patience);
  Status CreateVariant(const GpuVariant& variant, Built& built);
  bool CanDeclareGroups() const;
  const GpuTarget& target() const { return found_.info.gpu; }
  StatusOr<Variant*> VariantFor(const gpu::Part& part);
  StatusOr<MemoryRef> MemoryOf(const Variant& variant, uint32_t param, const gpu::LaunchInputs& inputs) const;

  const Artifact artifact_;
  Found found_;
  cl_context context_ = nullptr;  // The device's context.
  ExecutableOptions options_;
  Queue queue_;
  Built built_;
  // The same code built again for groups larger than the driver allows for a kernel without a declared group: when the
  // group is declared, the driver makes it fit. Keyed by group; built at the first launch with such a group.
  std::map<Group, Built> declared_;
  std::unique_ptr<gpu::LaunchReader> reader_;
  std::unique_ptr<gpu::Chooser> chooser_;
  bool can_trap_ = false;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_EXECUTABLE_H_
