// SPDX-License-Identifier: Apache-2.0
// The state of one instance in a checked launch: the buffers that its values were computed from, and the stack bytes
// that it has written. Internal to the interpreter.
#ifndef HPVMD_COMPILER_IR_INTERPRET_INSTANCE_CHECK_H_
#define HPVMD_COMPILER_IR_INTERPRET_INSTANCE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/ir/interpret/launch_check.h"
#include "compiler/ir/interpret/machine.h"
#include "compiler/ir/stack_record.h"

namespace hpvm::ir {

// The buffers whose addresses are added and subtracted in a value. Compilers write y[i] as x + i + (y - x).
struct Provenance {
  uint16_t plus = 0, minus = 0;  // Parameter + 1; 0 when there is none.

  bool is_none() const { return plus == 0 && minus == 0; }
  // Returns 1 + the parameter in which an address with this provenance should stay, or 0.
  uint32_t through() const { return minus == 0 ? plus : 0; }
};

struct ValueRecord {
  Provenance from;
  // 1 + the index, in InstanceCheck's list, of the load that read the value from unwritten bytes; 0 when there is
  // none. Such a value may be moved, stored in module memory and loaded again, as padding is; any other use is
  // reported.
  uint32_t unwritten = 0;
};

class InstanceCheck {
 public:
  // A completed step.
  struct Step {
    const Code* code;
    const DecodedFunction* function;
    size_t base;       // First slot of its frame.
    const Code* call;  // The call that created the frame; null for the entry's frame.
  };

  InstanceCheck(LaunchCheck& launch, const DecodedModule& decoded) : launch_(launch), decoded_(decoded) {}

  // Call it before the instance's first step. `local` is the instance's number in its group.
  void Start(const Instance& instance, uint32_t local);
  // Call it before each step.
  void Before(const Step& step) {
    if (!unwritten_reads_.empty()) {
      UseOperands(step);
    }
  }
  // Call it after each step that did not trap.
  void After(const Step& step, const Instance& instance);
  CheckedSite SiteAt(const Instance& instance, const DecodedFunction& function, const Code* code) const;

 private:
  // Returns the value in `slot` of the instance's current frame; invalid after calls and returns.
  static uint64_t Operand(const Instance& instance, uint32_t slot) { return instance.frame()[slot]; }
  ValueRecord& Of(size_t base, uint32_t slot) { return values_[base + slot]; }
  const Op& OpOf(const Step& step) const;
  void SetResults(const Step& step, const Op& op, ValueRecord value);
  void UseOperands(const Step& step);
  void Use(size_t base, uint32_t slot);
  void AfterArithmetic(const Step& step, const Op& op, const Instance& instance);
  void AfterGlobal(const Step& step, const Op& op, const Instance& instance);
  void AfterCall(const Step& step, const Instance& instance);
  void AfterReturn(const Step& step, const Instance& instance);
  void AfterMemory(const Step& step, const Op& op, const Instance& instance);
  void AfterBulk(const Step& step, const Op& op, const Instance& instance);
  Location LocationOf(const Step& step, const Op& op, const Instance& instance, uint64_t bytes) const;
  void CheckAccess(const Step& step, const Instance& instance, const Location& location, uint64_t bytes,
                   AccessKind kind, bool reads, uint32_t through);
  void AfterLoad(const Step& step, const Op& op, const Instance& instance, const Location& location);
  void AfterStore(const Step& step, const Op& op, const Location& location);
  bool IsUnwritten(const Location& location, uint64_t bytes) const;
  void MarkStack(const Location& location, uint64_t bytes, bool is_written);
  Provenance LoadPrivate(const Location& location, uint64_t bytes) const;
  void StorePrivate(const Location& location, uint64_t bytes, Provenance provenance);
  void CopyPrivate(const Location& to, const Location& from, uint64_t bytes);

  LaunchCheck& launch_;
  const DecodedModule& decoded_;
  uint32_t local_ = 0;
  std::vector<ValueRecord> values_;  // One per slot of the instance's stack of frames.
  std::vector<Provenance> globals_;
  // Keyed by address in module memory: provenance of addresses stored there at a multiple of their size.
  std::unordered_map<uint64_t, Provenance> stored_;
  StackRecord stack_;
  struct UnwrittenRead {
    CheckedSite site;
    Location location;
    uint64_t bytes = 0;
  };
  std::vector<UnwrittenRead> unwritten_reads_;           // The first read of each load.
  std::unordered_map<uint32_t, uint32_t> read_of_site_;  // 1 + the index in unwritten_reads_.
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_INTERPRET_INSTANCE_CHECK_H_
