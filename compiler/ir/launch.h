// SPDX-License-Identifier: Apache-2.0
// One launch of a kernel, as the interpreter and CPU images see it, and the virtual addresses of its buffers.
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
  uint8_t* data = nullptr;  // For buffers; borrowed during the launch.
  uint64_t bytes = 0;       // For buffers.
  uint64_t scalar = 0;      // For scalars: the bits.
};

// Receives the output of prints. Several threads call it concurrently; the sink itself must limit the volume.
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
  // `type` is an index in Module::reference_types. `values` holds the arguments' bits and receives the results' bits;
  // it is as long as the longer of the two. A result other than kNone ends the caller with that code.
  virtual TrapCode Call(uint32_t reference, uint32_t type, std::span<uint64_t> values) = 0;
};

// Storage of an instance that the launch neither initialises nor restores: a start function's, or one of hpvm-wast.
// Borrowed. The launch has one instance.
struct InstanceStorage {
  uint8_t* memory = nullptr;  // memory_bytes_max bytes reserved, zero above memory_bytes.
  uint64_t memory_bytes = 0;  // Grows with memory_grow.
  uint64_t memory_bytes_max = 0;
  uint64_t* globals = nullptr;  // One per Module::globals.
  uint8_t* state = nullptr;     // Module::state_bytes bytes.
};

class Checker;  // check.h.

struct Launch {
  std::array<uint64_t, 3> extent{1, 1, 1};  // Number of instances along x, y, z.
  std::array<uint64_t, 3> group{1, 1, 1};   // Number of instances per group; the last group of a dimension may be
                                            // partial.
  std::vector<Argument> arguments;          // One per kernel parameter, in order.
  // Polled at every back edge without a proven trip count; a nonzero value stops the launch with kStopped. Optional.
  const std::atomic<uint32_t>* stop = nullptr;
  PrintSink* print = nullptr;  // Borrowed; when null, prints are dropped.
  HostCalls* host = nullptr;   // Borrowed; only linked modules need it.
  Checker* checker = nullptr;  // Borrowed; makes the interpreter check the launch; not allowed with `instance`.
  InstanceStorage* instance = nullptr;  // Borrowed; when null, each instance starts from the module's initial state.

  uint64_t instances() const { return extent[0] * extent[1] * extent[2]; }
};

struct TrapReport {
  TrapCode code = TrapCode::kNone;
  std::array<uint64_t, 3> instance{};
  uint32_t function = 0;  // Index in Module::functions.
  uint32_t source = 0;    // Byte offset in the module's file.
  uint64_t address = 0;   // For memory traps: the flat address.
  uint64_t bytes = 0;     // For memory traps: the width.
};
// Returns text such as "out of bounds memory access at address 65540 (4 bytes) in instance (3, 0, 0), function
// \"blur\", byte 117 of the module".
std::string ToString(const TrapReport& report, const Module& module);

// The virtual address space of a launch (docs/KERNELS.md): module memory at [0, memory_bytes_max); then each buffer
// at a base aligned to 64 KiB with a gap of at least 64 KiB before it; then group memory. AssignAddresses refuses
// launches whose buffers do not fit the address type; with separate buffers, each must fit alone.
struct AddressSpace {
  std::vector<uint64_t> base;  // One per parameter; 0 for scalars.
  uint64_t group_base = 0;
  // Each buffer has a space of its own; bases may be equal. An access of param(k) outside the buffer traps, and no
  // flat address lies in a buffer.
  bool separate = false;
};
StatusOr<AddressSpace> AssignAddresses(const Module& module, std::span<const Argument> arguments);

inline constexpr uint64_t kGroupMemoryBytesMax = 64 * 1024;
inline constexpr uint64_t kBaseAlignment = 64 * 1024;
// Limit on the instances of one group of a kernel that runs by groups: each keeps its stack while it waits.
inline constexpr uint64_t kGroupInstancesMax = 1024;
// Minimum alignment of buffers' data, for atomics.
inline constexpr uint64_t kDataAlignment = 8;

// Returns true when instances of a group share state, so that a group is the smallest part of a launch that can run
// alone.
inline bool RunsByGroups(const Module& module) { return module.uses_barrier || module.uses_group_memory; }
// Returns the number of parts of a launch: its instances, or its groups if RunsByGroups; both are numbered x fastest.
uint64_t WorkUnits(const Module& module, const Launch& launch);
// Checks that arguments match the parameters, extents multiply without overflow, groups are neither empty nor too
// large, and data is aligned. The functions above and all code that runs a launch rely on it.
Status CheckLaunch(const Module& module, const Launch& launch);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_LAUNCH_H_
