// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: plain, and the meaning of the IR. Every back end is compared with it.
//
// It runs instances one after another, x fastest. Kernels that use barriers or group memory run group by group; where
// there are barriers the instances of a group take turns, each running until it waits or ends. The virtual machine
// keeps its own stacks, so a kernel cannot exhaust the thread's.
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
  // The part to run, in WorkUnits (launch.h): instances, or whole groups. Cut to what exists.
  uint64_t begin = 0;
  uint64_t end = std::numeric_limits<uint64_t>::max();
  // Instances, loop iterations and calls after which the launch ends with kStopped, counted over all instances; 0 is
  // no limit.
  uint64_t steps_max = 0;
};

class DecodedModule;

// A module made ready to run. Immutable, so several threads may run parts of one launch at a time; buffers are then
// shared between them, and atomics are atomic.
class Interpreter {
 public:
  // Refuses a module that does not verify.
  static StatusOr<Interpreter> Create(Module module);
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;
  ~Interpreter();

  const Module& module() const;

  // kNone: every instance of the part ended. Otherwise the trap of one instance, after which nothing more ran;
  // buffers keep what was written so far. kStopped: the stop word was set, or steps_max reached. A status means that
  // the launch is malformed (arguments, extents) or memory is short; then nothing ran.
  StatusOr<TrapReport> Run(const Launch& launch, const InterpretOptions& options = {}) const;

 private:
  explicit Interpreter(std::unique_ptr<const DecodedModule> decoded);

  std::unique_ptr<const DecodedModule> decoded_;
};

// Create and Run in one call.
StatusOr<TrapReport> Interpret(const Module& module, const Launch& launch, const InterpretOptions& options = {});

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_INTERPRET_H_
