// SPDX-License-Identifier: Apache-2.0
// InstanceRunner runs a CPU image's only instance in memory owned by the caller: for modules that are linked with
// others (compiler/front/wasm/testing/link.h), whose memory and state outlive a launch.
//
// Runs may nest: a function of another module called by the instance (ir::HostCalls) may run another instance, even of
// the same image. Nested runs share the stack of the outermost one, so calls between modules end with "call stack
// exhausted" like others. Any thread may run an image; the caller is responsible for synchronising the storage.
#ifndef HPVMD_BACKENDS_CPU_TESTING_INSTANCE_RUNNER_H_
#define HPVMD_BACKENDS_CPU_TESTING_INSTANCE_RUNNER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/image.h"
#include "backends/cpu/lane.h"
#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/launch.h"

namespace hpvm::cpu {

class InstanceRunner {
 public:
  // `reference_types` are the module's, for calls of other modules. Refuses kernels that run by groups.
  static StatusOr<std::unique_ptr<InstanceRunner>> Load(const Artifact& artifact,
                                                        std::span<const ir::FunctionType> reference_types = {});
  InstanceRunner(const InstanceRunner&) = delete;
  InstanceRunner& operator=(const InstanceRunner&) = delete;

  // Runs the launch's instance (its extent is 1) in `launch.instance`, which must be set: memory is left as the
  // instance leaves it; memory_bytes is written back at the end and before a call of another module, and read again
  // after the call. When it returns an error, nothing ran.
  StatusOr<ir::TrapReport> Run(const ir::Launch& launch);

  // Parameters, sizes and function names, for messages; no code.
  const ir::Module& outline() const { return outline_; }

 private:
  struct Invocation;
  InstanceRunner(const Artifact& artifact, std::span<const ir::FunctionType> reference_types, Image image);
  void Prepare(Invocation& invocation, const ir::AddressSpace& addresses);
  static uint32_t CallHost(ir::CpuContext* context, uint32_t reference, uint32_t type, uint64_t* values);
  static void Print(ir::CpuContext* context, uint32_t format, const uint64_t* values);

  ir::Module outline_;
  const Image image_;
  std::vector<uint32_t> print_operands_;  // Indexed by format.
  // Indexed by reference type: the larger number of parameters and results.
  std::vector<uint32_t> host_values_;
  // Granules written by any run. Bits are never cleared and the list is never read, as nothing is restored.
  Pages dirty_;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_TESTING_INSTANCE_RUNNER_H_
