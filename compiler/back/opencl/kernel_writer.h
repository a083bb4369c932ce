// SPDX-License-Identifier: Apache-2.0
// Writes one kernel, which is one variant of a program. Internal to this folder.
//
// Values become locals v0, v1 ...; constants and block arguments are written where they are used. Control stays
// structured; a jump that ends several constructs is a forward goto. A value that a launch passes (gpu_code.h) becomes
// an argument only if the body uses it, so the body is written first.
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

// Arithmetic writes integers, floats and conversions (emit_arith.cc).
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
  // Result of gpu::FindMixedCompares; empty for devices whose compilers compile them correctly.
  const std::vector<uint8_t> hidden_compares_ =
      v_.target.is_processor ? std::vector<uint8_t>() : gpu::FindMixedCompares(v_.f);
};

// KernelWriter writes the kernel's control flow and assembles its parts.
class KernelWriter {
 public:
  // Borrows all arguments except the options.
  KernelWriter(const ir::Module& module, const gpu::GpuPlan& plan, const GpuTarget& target, Helpers& helpers,
               KernelOptions options);

  // Returns the kernel's text; `variant` receives its arguments and whether it can trap.
  std::string Run(GpuVariant* variant);

 private:
  // A construct whose region is open.
  struct Open {
    OpId op;
    ir::RegionId region;
    size_t next = 0;
    bool is_flat = false;  // Written with labels alone, because compilers limit nesting of brackets.
  };
  void NameParams();
  void NameLoopConstants();
  std::string Prologue();
  void WriteOp(OpId id);
  void WriteGlobal(const Op& op);
  void WriteQuery(const Op& op);

  // In emit_control.cc.
  void WriteBody();
  void Begin(OpId id);
  bool IsEmpty(OpId id, ir::RegionId side) const;
  void End(const Open& open);
  void WriteTerminator(OpId id, bool is_last);
  void WriteJump(OpId from, const ir::Target& target, std::span<const ValueId> values, bool falls_through);
  void WriteBrTable(OpId id);

  Variant v_;
  Text text_{v_};
  Facts facts_{v_, text_};
  Reconvergence reconvergence_{v_, text_};
  Traps traps_{v_, text_, facts_, reconvergence_};
  Arithmetic arithmetic_{v_, text_, traps_};
  Ranges ranges_{v_, text_, facts_};
  Memory memory_{v_, text_, facts_, traps_, ranges_};
  Atomics atomics_{v_, text_, facts_, traps_, ranges_, memory_};
  std::vector<Open> open_;
  std::vector<uint32_t> label_;             // Indexed by OpId: label numbers of constructs.
  std::vector<bool> end_used_, next_used_;  // Indexed by OpId.
  uint32_t labels_ = 0;
  std::set<uint32_t> globals_;  // Mutable globals in use.
  const analysis::Definitions definitions_{v_.f};
  std::map<uint64_t, std::string> kept_constants_;  // Names of f64 constants, by their bits.
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_KERNEL_WRITER_H_
