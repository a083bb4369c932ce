// SPDX-License-Identifier: Apache-2.0
// What a checked launch of the interpreter finds beyond traps: faults that a kernel may get away with on one device and
// not on another.
//
//   race               Two instances touch the same byte of a buffer or of group memory, at least one of them writes,
//                      at least one not atomically, and no barrier of their group lies between. Instances of different
//                      groups are never ordered; nor are those of kernels that do not run by groups. The order that
//                      atomic operations make (S73) is not followed: that one instance came first in this run does not
//                      mean that it must. What is handed over by a flag or counter is so reported too.
//   uninitialised read Of bytes that nothing has written: of a buffer that is output only, of group memory since its
//                      group began, of an instance's stack since the frame was pushed (Module::stack_pointer). Of the
//                      stack, loads pass that touch at least one written byte, or whose value is only moved within
//                      module memory: copies of structs read padding.
//   wrong buffer       An access through an address that was computed from one buffer's lands in another buffer, in
//                      module memory or in group memory. Addresses are followed through arithmetic, calls, globals and
//                      module memory, not through buffers.
//   missed barrier     An instance waits at a barrier that another one of its group does not reach.
//
// With a checker in Launch::checker the launch is slower by a factor and takes memory for what it touches. Of several
// instances that trap, the lowest (x fastest) is reported.
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

// Who did what, and where in the module.
struct FindingPlace {
  std::array<uint64_t, 3> instance{};
  uint32_t function = 0;  // Index in Module::functions.
  uint32_t source = 0;    // Byte offset in the module's file; 0 is unknown.
  bool is_write = false, is_atomic = false;  // Accesses.
  bool has_ended = false;                    // Missed barriers: it ended instead of waiting; no function and source.
};

enum class FindingMemory : uint8_t { kNone, kBuffer, kGroup, kModule };

struct Finding {
  FindingKind kind = FindingKind::kRace;
  FindingPlace first;                   // The access, or the earlier of two; the instance that waits.
  std::optional<FindingPlace> second;   // Races: the later access. Missed barriers: an instance that does not arrive.
  FindingMemory memory = FindingMemory::kNone;  // Where it happened.
  uint32_t param = 0;                   // kBuffer: the kernel parameter.
  uint64_t offset = 0;                  // kBuffer, kGroup: the byte within; kModule: the address.
  uint64_t bytes = 0;                   // Of the access.
  uint32_t through = 0;                 // Wrong buffers: the parameter that the address was computed from.
  uint64_t count = 1;                   // How often it was seen with these operations.
};

// A sentence that names instances, buffer and places. `place` names a byte offset of the module (a line, where one is
// known); by default "byte 117 of the module".
std::string ToString(const Finding& finding, const Module& module,
                     const std::function<std::string(uint32_t source)>& place = nullptr);

struct CheckOptions {
  // One a kernel parameter: whether it is a buffer whose content on entry means nothing. Missing ones are false.
  std::vector<bool> is_output;
  uint32_t findings_max = 100;
  // Memory for the record of accesses; what is touched beyond it is not checked for races and uninitialised reads.
  uint64_t record_bytes_max = uint64_t{1} << 30;
};

// Collects what the launches that name it find. One launch at a time, each by one Interpreter::Run that runs all of
// it: what different Runs touch is not compared.
class Checker {
 public:
  explicit Checker(CheckOptions options = {}) : options_(std::move(options)) {}

  const CheckOptions& options() const { return options_; }
  // In the order in which they were seen first, the same each time. One for each kind and pair of operations.
  const std::vector<Finding>& findings() const { return findings_; }
  // How often something else was seen that did not fit.
  uint64_t dropped() const { return dropped_; }
  // False when record_bytes_max was not enough.
  bool is_complete() const { return is_complete_; }

  // For the interpreter. `sites` tell operations apart.
  void Add(const Finding& finding, std::pair<uint32_t, uint32_t> sites);
  void SetIncomplete() { is_complete_ = false; }

 private:
  CheckOptions options_;
  std::vector<Finding> findings_;
  std::map<std::pair<FindingKind, std::pair<uint32_t, uint32_t>>, size_t> known_;  // Places in findings_.
  uint64_t dropped_ = 0;
  bool is_complete_ = true;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_CHECK_H_
