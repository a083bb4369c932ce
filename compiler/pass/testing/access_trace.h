// SPDX-License-Identifier: Apache-2.0
// What a kernel's instances really touch, and how often its operations really run: the interpreter runs a copy of the
// module that prints before each access, or at each place where control may come from elsewhere.
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
  uint32_t param = 0;           // Whose buffer is touched.
  uint64_t begin = 0, end = 0;  // Of its bytes.
  bool is_load = false, is_store = false;
};

struct AccessTrace {
  ir::TrapReport end;
  std::vector<TracedAccess> accesses;  // As they happened; what trapped, or missed every buffer, is left out.
};

// Of the entry's accesses of space param; others are not seen. At most so many steps.
StatusOr<AccessTrace> TraceAccesses(const ir::Module& module, const ir::Launch& launch, uint64_t steps_max);

// How often each operation of the entry ran, by OpId.
StatusOr<std::vector<uint64_t>> CountOperations(const ir::Module& module, const ir::Launch& launch, uint64_t steps_max);

}  // namespace hpvm::pass::testing

#endif  // HPVMD_COMPILER_PASS_TESTING_ACCESS_TRACE_H_
