// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/check_barriers.h"

#include <vector>

#include "base/limits.h"
#include "compiler/analysis/uniformity.h"
#include "compiler/ir/walk.h"

namespace hpvm::pass {
namespace {

bool IsBarrier(Opcode code) { return code == Opcode::kBarrier || code == Opcode::kLocalAlloc; }

// Returns, by FunctionId, true for functions that contain or call a barrier; calls through references are not
// followed.
std::vector<bool> FunctionsWithBarriers(const ir::Module& module) {
  std::vector<bool> has(module.functions.size());
  std::vector<std::vector<uint32_t>> callers(module.functions.size());
  std::vector<uint32_t> work;
  for (uint32_t i = 0; i < module.functions.size(); ++i) {
    const ir::Function& function = module.functions[i];
    bool found = false;
    ir::ForEachOp(function, [&](ir::OpId id) {
      found |= IsBarrier(function.op(id).code);
      if (function.op(id).code == Opcode::kCall) {
        callers[function.op(id).imm].push_back(i);
      }
    });
    has[i] = found;
    if (found) {
      work.push_back(i);
    }
  }
  while (!work.empty()) {
    const uint32_t callee = work.back();
    work.pop_back();
    for (uint32_t caller : callers[callee]) {
      if (!has[caller]) {
        has[caller] = true;
        work.push_back(caller);
      }
    }
  }
  return has;
}

std::string Sentence(const ir::Module& module, const ir::Function& function, const ir::Op& op, const ir::Op& branch,
                     const NamePlace& name_place) {
  std::string what = op.code == Opcode::kLocalAlloc ? "A local_alloc" : "A barrier";
  if (op.code == Opcode::kCall) {
    what = "A call of \"" + module.functions[op.imm].name + "\", which has a barrier or local_alloc,";
  }
  const std::string at = name_place ? " at " + name_place(op.source) : "";
  const std::string branch_place = name_place ? name_place(branch.source) : "byte " + std::to_string(branch.source);
  return what + at + " in function \"" + function.name +
         "\" is under control that varies: whether an instance reaches it depends on its id, by the branch at " +
         branch_place + ". Every instance of a group must reach the same barriers; move it out of the branch or loop.";
}

}  // namespace

void CheckBarriers(const ir::Module& module, const std::string& place, Diagnostics& diagnostics,
                   const NamePlace& name_place) {
  if (!module.uses_barrier && !module.uses_group_memory) {
    return;
  }
  const std::optional<analysis::Uniformity> uniformity = analysis::AnalyseUniformity(module);
  if (!uniformity) {
    return;
  }
  const std::vector<bool> has_barrier = FunctionsWithBarriers(module);
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const ir::Function& function = module.functions[i];
    const analysis::FunctionUniformity& known = uniformity->functions[i];
    ir::ForEachOp(function, [&](ir::OpId id) {
      const ir::Op& op = function.op(id);
      const bool waits = IsBarrier(op.code) || (op.code == Opcode::kCall && has_barrier[op.imm]);
      const ir::OpId branch = known.decided_by[id.index];
      if (waits && branch.valid() && diagnostics.size() < limits::kDiagnosticsMax) {
        diagnostics.push_back(
            {Severity::kError, place, op.source, Sentence(module, function, op, function.op(branch), name_place)});
      }
    });
  }
}

}  // namespace hpvm::pass
