// SPDX-License-Identifier: Apache-2.0
// Runs one module and launch on the engines under test.
#ifndef HPVMD_TESTS_DIFF_ENGINES_H_
#define HPVMD_TESTS_DIFF_ENGINES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/launch.h"
#include "compiler/pass/gang/gang_plan.h"
#include "tests/diff/program.h"

namespace hpvm::diff {

// A launch without its module: from a program, or from a case on disk.
struct LaunchSpec {
  std::array<uint32_t, 3> extent{1, 1, 1}, group{1, 1, 1};
  std::vector<Param> params;
};
LaunchSpec LaunchOf(const Program& program);

struct Outcome {
  ir::TrapReport trap;                        // kNone when every instance ended.
  std::vector<std::vector<uint8_t>> buffers;  // One per parameter; empty for scalars.
};

// Reads the module for the launch. kInvalidArgument with the front end's message.
StatusOr<ir::Module> Read(std::span<const uint8_t> bytes, const LaunchSpec& launch);

// Runs on the reference interpreter; a trap kStopped means more than `steps_max` steps.
StatusOr<Outcome> Interpret(const ir::Module& module, const LaunchSpec& launch, uint64_t steps_max);

// Replaces one operation by another in the CPU's module, to show that differences are noticed.
struct Fault {
  ir::Opcode from, to;
};

// CpuForm says how the CPU's code is compiled and run.
struct CpuForm {
  std::string level;                    // "x86-64-v3" and so on; the host's when empty.
  std::vector<pass::GangShape> shapes;  // Shapes of tiles; only one instance at a time when empty.
};

// Compiles and runs on the CPU, on the calling thread: first one instance at a time, in order, then once in each
// variant of `shapes` that the launch allows. In all but the first, it is open which of several instances traps.
StatusOr<std::vector<Outcome>> RunOnCpu(const ir::Module& module, const LaunchSpec& launch, const CpuForm& form,
                                        const std::optional<Fault>& fault);

// Returns the addresses of the launch's buffers.
StatusOr<ir::AddressSpace> Addresses(const ir::Module& module, const LaunchSpec& launch);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_ENGINES_H_
