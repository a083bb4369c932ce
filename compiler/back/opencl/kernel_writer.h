// SPDX-License-Identifier: Apache-2.0
// Writes one kernel: one variant of a program. Internal to this folder.
//
// Values become locals v0, v1 ..., constants and arguments of blocks stand where they are used. Control stays
// structured; what ends more than one construct at once is a goto forward. What a launch passes (gpu_code.h) is an
// argument only if the body asks for it, so the body is written first.
#ifndef HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_
#define HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/back/gpu/mixed_compares.h"
#include "compiler/back/opencl/control.h"
#include "compiler/back/opencl/memory.h"
#include "compiler/back/opencl/text.h"

namespace hpvm::opencl {

// Integers, floats and conversions (emit_arith.cc).
class Arithmetic {
 public:
  Arithmetic(Variant& variant, Text& text, Traps& traps) : v_(variant), text_(text), traps_(traps) {}

  std::string IntUnary(const Op& op);
  void WriteIntBinary(OpId id);
  std::string IntCompare(const Op& op);
  std::string FloatCompare(const Op& op);
  std::string FloatUnary(const Op& op);
  std::string Approx(const Op& op);
  void WriteFloatBinary(OpId id);
  void WriteConvert(OpId id);

 private:
  void WriteDivision(OpId id);
  std::string Rounded(std::string_view function, ir::Type type, const std::string& a) const;
  std::string Narrowed(const std::string& wide);
  std::string FloatBinary(const Op& op);
  void WriteTrunc(OpId id);
  std::string Contracted(OpId id);
  ir::FastMath FastMathOf(const Op& op) const;
  bool IsFast(const Op& op) const { return FastMathOf(op) == ir::FastMath::kAll; }

  Variant& v_;
  Text& text_;
  Traps& traps_;
  const analysis::Definitions definitions_{v_.f};
  // The answer of gpu::FindMixedCompares; empty for devices whose compilers get them right.
  const std::vector<uint8_t> hidden_compares_ =
      v_.target.is_processor ? std::vector<uint8_t>() : gpu::FindMixedCompares(v_.f);
};

class KernelWriter {
 public:
  // All are borrowed.
  KernelWriter(const ir::Module& module, const gpu::GpuPlan& plan, const GpuTarget& target, Helpers& helpers,
               KernelOptions options);

  // The kernel's text; `variant` receives its arguments and whether it can trap.
  std::string Run(GpuVariant* variant);

 private:
  // A construct whose region is open.
  struct Open {
    OpId op;
    ir::RegionId region;
    size_t next = 0;
    bool is_flat = false;  // Written with labels alone, as compilers limit how deep brackets nest.
  };
  void NameParams();
  void NameLoopConstants();
  std::string Prologue();
  void WriteOp(OpId id);
  void WriteGlobal(const Op& op);
  void WriteQuery(const Op& op);

  // emit_control.cc
  void WriteBody();
  void Begin(OpId id);
  bool IsEmpty(OpId id, ir::RegionId side) const;
  void End(const Open& open);
  void WriteTerminator(OpId id, bool is_last);
  void WriteJump(OpId from, const ir::Target& target, std::span<const ValueId> values, bool falls_through);
  void WriteLeaveTable(OpId id);

  Variant v_;
  Text text_{v_};
  Facts facts_{v_, text_};
  Meetings meetings_{v_, text_};
  Traps traps_{v_, text_, facts_, meetings_};
  Arithmetic arithmetic_{v_, text_, traps_};
  Ranges ranges_{v_, text_, facts_};
  Memory memory_{v_, text_, facts_, traps_, ranges_};
  Atomics atomics_{v_, text_, facts_, traps_, ranges_, memory_};
  std::vector<Open> open_;
  std::vector<uint32_t> label_;             // By OpId: numbers of constructs' labels.
  std::vector<bool> end_used_, next_used_;  // By OpId.
  uint32_t labels_ = 0;
  std::set<uint32_t> globals_;  // Mutable ones in use.
  const analysis::Definitions definitions_{v_.f};
  std::map<uint64_t, std::string> kept_constants_;  // Names by their bits, of f64.
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_
