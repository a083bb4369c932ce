// SPDX-License-Identifier: Apache-2.0
// Reports faults that a checked launch of the interpreter finds beyond traps. A kernel may run with such a fault on
// one device and fail on another.
//
//   race               Two instances access the same byte of a buffer or of group memory, at least one of them writes,
//                      at least one access is not atomic, and no barrier of their group lies between them. Instances of
//                      different groups are never ordered; nor are instances of kernels that do not run by groups. The
//                      order that atomic operations create (S73) is not considered: that one instance came first in
//                      this run does not mean that it always does. Data handed over by a flag or counter is therefore
//                      reported, too.
//   uninitialised read A read of bytes that nothing has written: in an output-only buffer, in group memory since its
//                      group began, in an instance's stack since the frame was pushed (Module::stack_pointer). Loads
//                      from the stack are allowed when at least one of their bytes is written, or when the value is
//                      only moved within module memory, because copies of structs read padding.
//   wrong buffer       An access through an address that was computed from one buffer's address reaches another buffer,
//                      module memory or group memory. Addresses are tracked through arithmetic, calls, globals and
//                      module memory, not through buffers.
//   missed barrier     An instance waits at a barrier that another instance of its group does not reach.
//
// A launch with a checker in Launch::checker is slower by a factor and takes memory proportional to the memory that
// it accesses. When several instances trap, the lowest (x fastest) is reported.
#ifndef HPVMD_COMPILER_IR_CHECK_H_
#define HPVMD_COMPILER_IR_CHECK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm::ir {

enum class FindingKind : uint8_t { kRace, kUninitializedRead, kWrongBuffer, kMissedBarrier };
std::string_view Name(FindingKind kind);  // "race", "uninitialised read", "wrong buffer", "missed barrier".

// An instance and its operation in the module.
struct FindingLocation {
  std::array<uint64_t, 3> instance{};
  uint32_t function = 0;                     // Index in Module::functions.
  uint32_t source = 0;                       // Byte offset in the module's file; 0 when unknown.
  bool is_write = false, is_atomic = false;  // For accesses.
  bool has_ended = false;  // For missed barriers: the instance ended instead of waiting; it has no function and
                           // source.
};

enum class FindingMemory : uint8_t { kNone, kBuffer, kGroup, kModule };

struct Finding {
  FindingKind kind = FindingKind::kRace;
  FindingLocation first;  // The access, or the earlier of two accesses; for missed barriers, the waiting instance.
  std::optional<FindingLocation> second;  // For races, the later access; for missed barriers, an instance that does not
                                          // arrive.
  FindingMemory memory = FindingMemory::kNone;  // The kind of memory accessed.
  uint32_t param = 0;                           // For kBuffer: the kernel parameter.
  uint64_t offset = 0;                          // For kBuffer, kGroup: the byte within it; for kModule: the address.
  uint64_t bytes = 0;                           // Size of the access.
  uint32_t through = 0;                         // For wrong buffers: the parameter that the address was computed from.
  uint64_t count = 1;                           // Number of occurrences with these operations.
};

// Returns a sentence that names instances, buffer and places. `place` names a byte offset of the module (a line,
// where known); the default is text such as "byte 117 of the module".
std::string ToString(const Finding& finding, const Module& module,
                     const std::function<std::string(uint32_t source)>& place = nullptr);

struct CheckOptions {
  // One per kernel parameter: true for a buffer whose initial content is meaningless. Missing entries are false.
  std::vector<bool> is_output;
  uint32_t findings_max = 100;
  // Memory for the record of accesses; bytes beyond it are not checked for races and uninitialised reads.
  uint64_t record_bytes_max = uint64_t{1} << 30;
};

// Collects the findings of the launches that name it. One launch at a time may use it, and a single Interpreter::Run
// must run all of the launch: accesses of different Runs are not compared.
class Checker {
 public:
  explicit Checker(CheckOptions options = {}) : options_(std::move(options)) {}

  const CheckOptions& options() const { return options_; }
  // Findings in the order of their first occurrence, which is deterministic. One for each kind and pair of
  // operations.
  const std::vector<Finding>& findings() const { return findings_; }
  // Number of further findings that did not fit.
  uint64_t dropped() const { return dropped_; }
  // Returns false when record_bytes_max was too small.
  bool is_complete() const { return is_complete_; }

  // Called by the interpreter. `sites` distinguish operations.
  void Add(const Finding& finding, std::pair<uint32_t, uint32_t> sites);
  void SetIncomplete() { is_complete_ = false; }

 private:
  CheckOptions options_;
  std::vector<Finding> findings_;
  std::map<std::pair<FindingKind, std::pair<uint32_t, uint32_t>>, size_t> known_;  // Indices in findings_.
  uint64_t dropped_ = 0;
  bool is_complete_ = true;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_CHECK_H_
