// SPDX-License-Identifier: Apache-2.0
// The reference interpreter defines the semantics of the IR. Every back end is compared with it.
//
// It runs instances one after another, x fastest. Kernels that use barriers or group memory run group by group; with
// barriers, the instances of a group take turns, each running until it waits or ends. The virtual machine has its own
// stacks, so a kernel cannot exhaust the thread's stack.
#ifndef HPVMD_COMPILER_IR_INTERPRET_INTERPRET_H_
#define HPVMD_COMPILER_IR_INTERPRET_INTERPRET_H_

#include <cstdint>
#include <limits>
#include <memory>

#include "base/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/launch.h"

namespace hpvm::ir {

struct InterpretOptions {
  // The part to run, in WorkUnits (launch.h): instances, or whole groups. Clipped to the existing units.
  uint64_t begin = 0;
  uint64_t end = std::numeric_limits<uint64_t>::max();
  // Limit on instances, loop iterations and calls, counted over all instances; a launch that exceeds it ends with
  // kStopped. 0 means no limit.
  uint64_t steps_max = 0;
};

class DecodedModule;

// A module prepared for execution. It is immutable, so several threads may run parts of one launch concurrently; they
// then share the buffers, and atomics are atomic.
class Interpreter {
 public:
  // Refuses a module that does not verify.
  static StatusOr<Interpreter> Create(Module module);
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;
  ~Interpreter();

  const Module& module() const;

  // Returns kNone when every instance of the part ended. Otherwise returns the trap of one instance, after which
  // nothing more ran; buffers keep the data written so far. kStopped means that the stop word was set or steps_max
  // reached. An error status means that the launch is malformed (arguments, extents) or memory is short; then nothing
  // ran.
  StatusOr<TrapReport> Run(const Launch& launch, const InterpretOptions& options = {}) const;

 private:
  explicit Interpreter(std::unique_ptr<const DecodedModule> decoded);

  std::unique_ptr<const DecodedModule> decoded_;
};

// Calls Create and Run.
StatusOr<TrapReport> Interpret(const Module& module, const Launch& launch, const InterpretOptions& options = {});

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_INTERPRET_H_
