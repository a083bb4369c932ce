// SPDX-License-Identifier: Apache-2.0
// Runs a CPU image's only instance in memory that the caller keeps: for modules that are linked with others
// (compiler/front/wasm/testing/link.h), whose memory and state outlive a launch.
//
// Runs may nest: a function of another module that the instance calls (ir::HostCalls) may run an instance of its own,
// of the same image too. Nested runs share the stack of the outermost one, so calls between modules end with "call
// stack exhausted" like others. Any thread may run an image; what the storage holds is the caller's business.
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

  // Runs the launch's instance (its extent is 1) in `launch.instance`, which must be there: memory is left as the
  // instance leaves it, memory_bytes is written back, also before a call of another module, and read again after one.
  // A status means that nothing ran.
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
  std::vector<uint32_t> print_operands_;  // By format.
  std::vector<uint32_t> host_values_;     // By reference type: the longer of parameters and results.
  // Granules that some run wrote. Bits are never cleared and nobody reads the list, as nothing is put back.
  Pages dirty_;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_TESTING_INSTANCE_RUNNER_H_
