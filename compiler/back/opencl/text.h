// SPDX-License-Identifier: Apache-2.0
// The text of a kernel, and the values that a launch passes to it. Internal to this folder.
#ifndef HPVMD_COMPILER_BACK_OPENCL_TEXT_H_
#define HPVMD_COMPILER_BACK_OPENCL_TEXT_H_

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/analysis/definitions.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/gpu_target.h"
#include "compiler/back/gpu/gpu_plan.h"
#include "compiler/back/opencl/cat.h"
#include "compiler/back/opencl/helpers.h"
#include "compiler/ir/words.h"
#include "compiler/pass/tile/coarsen.h"

namespace hpvm::opencl {

using namespace ir::words;

struct KernelOptions {
  std::string name;                       // The kernel's name in the program.
  std::string suffix;                     // Suffix of helpers that belong to this plan alone.
  std::array<uint32_t, 3> tile{1, 1, 1};  // Instances per work item.
  gpu::Trust trust = gpu::Trust::kNothing;
  bool audits_proofs = false;  // GpuOptions::audits_proofs.
  bool zeroes_group = true;    // False: all of group memory is written before it is read.
  bool is_aligned = false;     // Buffers begin at multiples of 16 bytes.
  bool fast_math = false;
  const pass::CoarseModule* coarse = nullptr;  // The coarse form that the module belongs to; borrowed.
};

// The inputs of one kernel. All but the options are borrowed.
struct Variant {
  // Returns true if a work group is the node's group.
  bool RunsByGroups() const { return module.uses_barrier || module.uses_group_memory; }
  // An unchecked variant omits the checks of proven accesses, unless it audits.
  bool IsProven(OpId id) const { return plan.IsProven(id, options.trust) || f.op(id).is_inside; }
  bool OmitsCheck(OpId id) const { return IsProven(id) && !options.audits_proofs; }
  // Returns the trap code of an access that misses its buffer or group memory.
  ir::TrapCode MissCode(OpId id) const { return IsProven(id) ? ir::TrapCode::kWrongProof : ir::TrapCode::kOutOfBounds; }

  const ir::Module& module;
  const gpu::GpuPlan& plan;
  const GpuTarget& target;
  Helpers& helpers;
  const KernelOptions options;
  const ir::Function& f = module.function(module.entry);
};

// Text holds the text being written, and the names of values in it.
class Text {
 public:
  explicit Text(Variant& variant);

  template <typename... Pieces>
  void Line(const Pieces&... pieces) {
    out_.append(2 * indent_, ' ');
    Append(out_, pieces...);
    out_ += '\n';
  }
  void Label(const std::string& name);
  void Raw(const std::string& text) { out_ += text; }
  void Indent() { ++indent_; }
  void Outdent() { --indent_; }
  std::string Take();  // The text written since the last call.
  // Defines a result.
  void Define(ValueId value, const std::string& expression);
  void Declare(ValueId value);
  void DefineAhead(ValueId value);  // Zero, until its definition assigns it.
  // Declares a variable of the writer's own; `qualifier` is "const " or "".
  void Local(std::string_view qualifier, std::string_view type, const std::string& name, const std::string& expression);
  void WriteLocals();  // Variables that live from the kernel's beginning.
  const std::string& Name(ValueId value) const { return names_[value.index]; }
  void SetName(ValueId value, std::string name) { names_[value.index] = std::move(name); }
  const std::string& Operand(const Op& op, uint32_t i) const { return Name(v_.f.operands_of(op)[i]); }
  ir::Type TypeOf(ValueId value) const { return v_.f.type_of(value); }
  ir::Type OperandType(const Op& op, uint32_t i) const { return TypeOf(v_.f.operands_of(op)[i]); }
  std::string Fresh(std::string_view prefix) { return Cat(prefix, "_", fresh_++); }
  bool ConstantOf(ValueId value, uint64_t* bits) const;
  const Op* DefinitionOf(ValueId value) const { return definitions_.OpOf(value); }

 private:
  Variant& v_;
  std::string out_;
  uint32_t indent_ = 1;
  uint32_t fresh_ = 0;
  std::vector<std::string> names_;  // Indexed by ValueId.
  std::vector<bool> is_ahead_;      // Indexed by ValueId: the variable has been declared ahead.
  const analysis::Definitions definitions_;
  // True in kernels whose group meets in loops, on processors: all variables then live from the kernel's beginning. A
  // return from a loop and the other exits share the block in which clang ends the lifetime of the loop's variables,
  // and PoCL 3.1 rejects such a loop with a barrier in it.
  const bool hoists_locals_;
  std::map<std::string, std::vector<std::string>> locals_;  // Keyed by type.
};

// Facts provides the values that a launch passes (gpu_code.h); each call records that the value is used.
class Facts {
 public:
  Facts(Variant& variant, Text& text) : v_(variant), text_(text) {}

  std::string Fact(GpuArgument::Kind kind, uint32_t index = 0);
  std::string Buffer(uint32_t param) { return Fact(GpuArgument::Kind::kBuffer, param); }
  std::string BufferBytes(uint32_t param) { return Fact(GpuArgument::Kind::kBufferBytes, param); }
  std::string BufferBase(uint32_t param);
  // Returns a uint: the number of valid offsets of an access that ends `reach` bytes after its offset; 0 when none
  // fits. For 32-bit kernels.
  std::string Places(uint32_t param, uint64_t reach);
  std::string InstanceId(uint32_t dimension);
  // Written last, because it depends on the body: the kernel's head, and variables at its beginning.
  std::string Head(GpuVariant* variant);
  void WriteVariables();

 private:
  Variant& v_;
  Text& text_;
  std::set<std::pair<GpuArgument::Kind, uint32_t>> facts_;
  std::set<std::pair<uint32_t, uint64_t>> places_;  // Parameters and reaches.
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_TEXT_H_
