// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/verify/verify_module.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "compiler/ir/walk.h"

namespace hpvm::ir {
namespace {

constexpr uint64_t kPageBytes = 64 * limits::kKiB;

void CheckSegments(const std::vector<DataSegment>& segments, uint64_t bytes, const std::string& kind,
                   const std::string& whole, const std::string& place, Diagnostics& out) {
  uint64_t end = 0;
  for (const DataSegment& segment : segments) {
    if (segment.address < end || !IsInRange(segment.address, segment.bytes.size(), bytes)) {
      ReportFault(out, place,
                  "The " + kind + " at " + std::to_string(segment.address) +
                      " overlaps the one before it, is out of order or lies outside the " + whole + ".");
      return;
    }
    end = segment.address + segment.bytes.size();
  }
}

void CheckMemoryAndData(const Module& m, Diagnostics& out) {
  const std::string place = "module \"" + m.name + '"';
  if (m.memory_bytes % kPageBytes != 0 || m.memory_bytes_max % kPageBytes != 0) {
    ReportFault(out, place, "The memory's size is not a multiple of 64 KiB.");
  }
  if (m.memory_bytes > m.memory_bytes_max || m.memory_bytes_max > limits::kModuleMemoryBytesMax) {
    ReportFault(out, place,
                "The memory (" + std::to_string(m.memory_bytes) + " bytes) or its maximum (" +
                    std::to_string(m.memory_bytes_max) + ") is larger than the limit (" +
                    std::to_string(std::min(m.memory_bytes_max, limits::kModuleMemoryBytesMax)) + ").");
  }
  CheckSegments(m.data, m.memory_bytes, "data segment", "memory", place, out);
}

void CheckStateAndReferences(const Module& m, const std::string& place, Diagnostics& out) {
  if (m.state_bytes > limits::kModuleStateBytesMax) {
    ReportFault(out, place,
                "The state (" + std::to_string(m.state_bytes) + " bytes) is larger than the limit (" +
                    std::to_string(limits::kModuleStateBytesMax) + ").");
  }
  CheckSegments(m.state, m.state_bytes, "segment of the state", "state", place, out);
  if (m.first_reference == 0 || !IsInRange(m.first_reference, m.references.size(), 0xffffffffu)) {
    ReportFault(out, place, "The references do not lie in [1, 2^32).");
  }
  for (const Reference& reference : m.references) {
    if (reference.function.index >= m.functions.size() || reference.type >= m.reference_types.size() ||
        m.function(reference.function).type != m.reference_types[reference.type]) {
      ReportFault(out, place,
                  "A reference names a function or a type that does not exist, or a function that is not "
                  "of the type.");
      return;
    }
  }
  const std::optional<uint32_t> pointer = m.stack_pointer;
  if (pointer.has_value() && (*pointer >= m.globals.size() || !m.globals[*pointer].is_mutable ||
                              m.globals[*pointer].type != m.address_type())) {
    ReportFault(out, place, "The stack pointer is not a mutable global of the address type.");
  }
  if (const std::optional<StackFrame>& frame = m.stack_frame;
      frame.has_value() && (frame->begin >= frame->end || frame->end > m.memory_bytes || frame->begin % 8 != 0 ||
                            frame->end % 8 != 0 || (frame->unit != 4 && frame->unit != 8))) {
    ReportFault(out, place, "The stack's frame is empty, not aligned or outside of module memory.");
  }
}

}  // namespace

void ReportFault(Diagnostics& out, std::string place, std::string message, uint32_t source) {
  if (out.size() < limits::kDiagnosticsMax) {
    Diagnostic diagnostic{Severity::kError, std::move(place), std::nullopt, std::move(message)};
    if (source != 0) {
      diagnostic.offset = source;
    }
    out.push_back(std::move(diagnostic));
  }
}

void VerifyModule(const Module& m, Diagnostics& out) {
  const std::string place = "module \"" + m.name + '"';
  CheckMemoryAndData(m, out);
  CheckStateAndReferences(m, place, out);
  for (const Global& global : m.globals) {
    if (Bytes(global.type) == 4 && global.init > 0xffffffffu) {
      ReportFault(out, place, "A global's initial value does not fit its type.");
    }
  }
  if (m.entry.index >= m.functions.size()) {
    ReportFault(out, place, "The entry function does not exist.");
    return;
  }
  if (m.params.size() > limits::kKernelParamsMax) {
    ReportFault(out, place,
                "The kernel has more parameters (" + std::to_string(m.params.size()) + ") than the limit (" +
                    std::to_string(limits::kKernelParamsMax) + ").");
  }
  std::vector<Type> types;
  for (const KernelParam& param : m.params) {
    types.push_back(param.type);
    if (param.is_buffer && param.type != m.address_type()) {
      ReportFault(out, place, "The buffer parameter \"" + param.name + "\" is not of the address type.");
    }
  }
  const FunctionType& entry = m.function(m.entry).type;
  if (entry.params != types || !entry.results.empty()) {
    ReportFault(out, place, "The entry function does not take the kernel's parameters, or returns values.");
  }
}

namespace {

// Walks the functions that the entry may reach.
class UseWalk {
 public:
  explicit UseWalk(const Module& module) : m_(module), reached_(module.functions.size()) {}

  void Run();

  bool has_barrier = false, has_group_memory = false;

 private:
  void Reach(FunctionId function) {
    if (function.valid() && !reached_[function.index]) {
      reached_[function.index] = true;
      work_.push_back(function);
    }
  }
  void Visit(const Op& op);

  const Module& m_;
  std::vector<bool> reached_;
  std::vector<FunctionId> work_;
  bool reached_references_ = false;
};

void UseWalk::Visit(const Op& op) {
  has_barrier |= op.code == Opcode::kBarrier;
  has_group_memory |= op.code == Opcode::kLocalAlloc;
  if (op.code == Opcode::kCall) {
    Reach(FunctionId(static_cast<uint32_t>(op.imm)));
  } else if (op.code == Opcode::kCallRef && !std::exchange(reached_references_, true)) {
    for (const Reference& reference : m_.references) {
      Reach(reference.function);
    }
  }
}

void UseWalk::Run() {
  Reach(m_.entry);
  while (!work_.empty()) {
    const Function& function = m_.function(work_.back());
    work_.pop_back();
    ForEachOp(function, [&](OpId id) { Visit(function.op(id)); });
  }
}

void CheckFormats(const Module& m, Diagnostics& out) {
  if (m.formats.empty()) {
    return;
  }
  std::vector<std::optional<std::vector<Type>>> types(m.formats.size());
  for (const Function& function : m.functions) {
    ForEachOp(function, [&](OpId id) {
      const Op& op = function.op(id);
      if (op.code != Opcode::kPrint) {
        return;
      }
      std::vector<Type> found = function.types_of(function.operands_of(op));
      if (types[op.imm].has_value() && *types[op.imm] != found) {
        ReportFault(out, "module \"" + m.name + '"',
                    "Two prints of format p" + std::to_string(op.imm) + " pass values of different types.", op.source);
      }
      types[op.imm] = std::move(found);
    });
  }
}

}  // namespace

void VerifyUses(const Module& m, Diagnostics& out) {
  UseWalk walk(m);
  walk.Run();
  if ((walk.has_barrier && !m.uses_barrier) || (walk.has_group_memory && !m.uses_group_memory)) {
    ReportFault(out, "module \"" + m.name + '"',
                "A reachable function has a barrier or a local_alloc that the module does not declare.");
  }
  CheckFormats(m, out);
}

}  // namespace hpvm::ir
