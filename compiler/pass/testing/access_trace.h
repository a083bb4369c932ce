// SPDX-License-Identifier: Apache-2.0
// Traces the actual accesses of a kernel's instances, and counts how often its operations run: the interpreter runs a
// copy of the module that prints before each access, or at each place that control may reach by a jump.
#ifndef HPVMD_COMPILER_PASS_TESTING_ACCESS_TRACE_H_
#define HPVMD_COMPILER_PASS_TESTING_ACCESS_TRACE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/ir/launch.h"
#include "compiler/pass/rewrite/words.h"

namespace hpvm::pass::testing {

struct TracedAccess {
  std::array<uint64_t, 3> instance{};
  ir::OpId op;
  uint32_t param = 0;           // The parameter whose buffer is touched.
  uint64_t begin = 0, end = 0;  // Byte range.
  bool is_load = false, is_store = false;
};

struct AccessTrace {
  ir::TrapReport end;
  std::vector<TracedAccess> accesses;  // In order of execution, without accesses that trapped or missed every buffer.
};

// Traces the entry's accesses of space param only. Runs at most `steps_max` steps.
StatusOr<AccessTrace> TraceAccesses(const ir::Module& module, const ir::Launch& launch, uint64_t steps_max);

// Returns how often each operation of the entry ran, by OpId.
StatusOr<std::vector<uint64_t>> CountOperations(const ir::Module& module, const ir::Launch& launch, uint64_t steps_max);

}  // namespace hpvm::pass::testing

#endif  // HPVMD_COMPILER_PASS_TESTING_ACCESS_TRACE_H_
