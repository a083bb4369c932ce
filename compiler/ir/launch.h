// SPDX-License-Identifier: Apache-2.0
// One launch of a kernel as the interpreter and the CPU image see it, and the virtual addresses its buffers get.
#ifndef HPVMD_COMPILER_IR_LAUNCH_H_
#define HPVMD_COMPILER_IR_LAUNCH_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/ir/ir.h"

namespace hpvm::ir {

struct Argument {
  uint8_t* data = nullptr;  // Buffers; borrowed during the launch.
  uint64_t bytes = 0;       // Buffers.
  uint64_t scalar = 0;      // Scalars: the bits.
};

// Receives what instances print. Any thread, several at a time; bounding the volume is the sink's business.
class PrintSink {
 public:
  virtual ~PrintSink() = default;
  // `values` are the bits of the operands of Module::formats[format].
  virtual void Print(const std::array<uint64_t, 3>& instance, uint32_t format, std::span<const uint64_t> values) = 0;
};

// Functions of other modules (Module::is_linked).
class HostCalls {
 public:
  virtual ~HostCalls() = default;
  // `type` is in Module::reference_types. `values` hold the arguments' bits and receive the results'; it is as long as
  // the longer of the two. Not kNone ends the caller with that code.
  virtual TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) = 0;
};

// Where one instance lives that is neither made nor put back by the launch: a start function's, or one of hpvm-wast.
// Borrowed. The launch has one instance.
struct InstanceStorage {
  uint8_t* memory = nullptr;      // memory_bytes_max reserved, zero above memory_bytes.
  uint64_t memory_bytes = 0;      // Grows with memory_grow.
  uint64_t memory_bytes_max = 0;
  uint64_t* globals = nullptr;    // One a Module::globals.
  uint8_t* state = nullptr;       // Module::state_bytes.
};

class Checker;  // check.h.

struct Launch {
  std::array<uint64_t, 3> extent{1, 1, 1};   // Instances along x, y, z.
  std::array<uint64_t, 3> group{1, 1, 1};    // Instances of a group; the last group of a dimension may be partial.
  std::vector<Argument> arguments;           // One a kernel parameter, in order.
  // Read at every back edge without a proven trip count; not zero stops the launch with kStopped. Optional.
  const std::atomic<uint32_t>* stop = nullptr;
  PrintSink* print = nullptr;          // Borrowed; null drops what is printed.
  HostCalls* host = nullptr;           // Borrowed; needed by linked modules only.
  Checker* checker = nullptr;          // Borrowed; the interpreter checks the launch; not with `instance`.
  InstanceStorage* instance = nullptr; // Borrowed; null: each instance starts from the module's initial state.

  uint64_t instances() const { return extent[0] * extent[1] * extent[2]; }
};

struct TrapReport {
  TrapCode code = TrapCode::kNone;
  std::array<uint64_t, 3> instance{};
  uint32_t function = 0;   // Index in Module::functions.
  uint32_t source = 0;     // Byte offset in the module's file.
  uint64_t address = 0;    // Memory traps: the flat address.
  uint64_t bytes = 0;      // Memory traps: the width.
};
// "out of bounds memory access at address 65540 (4 bytes) in instance (3, 0, 0), function \"blur\", byte 117 of the
// module".
std::string ToString(const TrapReport& report, const Module& module);

// The virtual space of a launch (docs/KERNELS.md): module memory at [0, memory_bytes_max); then each buffer at a 64
// KiB-aligned base with a gap of at least 64 KiB before it; then group memory. Refuses launches whose buffers do not
// fit the address type, but for modules with separate buffers of which each fits alone.
struct AddressSpace {
  std::vector<uint64_t> base;     // One a parameter; 0 for scalars.
  uint64_t group_base = 0;
  // Each buffer has a space of its own, where it stands alone; bases may be equal. An access of param(k) outside the
  // buffer traps, and no flat address lies in a buffer.
  bool separate = false;
};
StatusOr<AddressSpace> AssignAddresses(const Module& module, std::span<const Argument> arguments);

inline constexpr uint64_t kGroupMemoryBytesMax = 64 * 1024;
inline constexpr uint64_t kBaseAlignment = 64 * 1024;
// Instances of one group of a kernel that runs by groups: each keeps its stack while it waits.
inline constexpr uint64_t kGroupInstancesMax = 1024;
// Data of buffers is at least so aligned, for atomics.
inline constexpr uint64_t kDataAlignment = 8;

// Whether instances of a group share state, so that a group is the smallest part of a launch that can run on its own.
inline bool RunsByGroups(const Module& module) { return module.uses_barrier || module.uses_group_memory; }
// The parts a launch can be cut into: its instances, or its groups if RunsByGroups; both numbered x fastest.
uint64_t WorkUnits(const Module& module, const Launch& launch);
// Arguments match the parameters, extents multiply without overflow, groups are not empty and not too large, data is
// aligned. The functions above and everything that runs a launch rely on it.
Status CheckLaunch(const Module& module, const Launch& launch);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_LAUNCH_H_
