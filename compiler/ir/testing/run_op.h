// SPDX-License-Identifier: Apache-2.0
// Runs one operation on given operands in the interpreter.
#ifndef HPVMD_COMPILER_IR_TESTING_RUN_OP_H_
#define HPVMD_COMPILER_IR_TESTING_RUN_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir::testing {

struct OpOutcome {
  TrapCode trap = TrapCode::kNone;
  uint64_t bits = 0;
};

// Runs a kernel `result[0] = op(operands)`; the operands are scalar parameters.
class OpRunner {
 public:
  // Adds a GoogleTest failure when the kernel does not parse or verify.
  OpRunner(Opcode code, Type type, const std::vector<Type>& operands, Type result);

  OpOutcome Run(const std::vector<uint64_t>& operands) const;

 private:
  std::vector<Interpreter> interpreter_;  // One interpreter, or none after a failure.
};

}  // namespace hpvm::ir::testing

#endif  // HPVMD_COMPILER_IR_TESTING_RUN_OP_H_
