// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/explain.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/ir/walk.h"

namespace hpvm {
namespace {

using Kind = KernelRemark::Kind;

// Group memory and the instance's own are checked against constants; buffers are what launches know the sizes of.
bool ReachesBuffers(const ir::Op& op) {
  const ir::Family family = ir::Info(op.code).family;
  const bool is_access =
      family == ir::Family::kAtomic ||
      (family == ir::Family::kMemory && op.code != ir::Opcode::kMemorySize && op.code != ir::Opcode::kMemoryGrow);
  return is_access && (op.space == ir::Space::kParam || op.space == ir::Space::kFlat);
}

std::string WhatIsAccessed(const ir::Module& module, const ir::Op& op) {
  const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
  const std::string verb = ir::Info(op.code).family == ir::Family::kAtomic ? "atomic access to"
                           : writes                                        ? "store to"
                                                                           : "load from";
  return verb + (op.space == ir::Space::kParam ? " \"" + module.params[op.space_index].name + "\""
                                               : " an address that no one buffer is known for");
}

}  // namespace

void ExplainBounds(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report) {
  const ir::Function& entry = module.function(module.entry);
  std::vector<bool> is_proven(entry.ops.size());
  for (const ir::BoundsAccess& access : bounds.accesses) {
    is_proven[access.op.index] = true;
  }
  size_t accesses = 0, proven = 0;
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const ir::Op& op = entry.op(id);
    if (!ReachesBuffers(op)) {
      return;
    }
    ++accesses;
    proven += is_proven[id.index] ? 1 : 0;
    report->Add(Kind::kBounds, op.source,
                "The " + WhatIsAccessed(module, op) +
                    (is_proven[id.index] ? " is unchecked where a launch shows that it stays inside."
                                         : " keeps its check: its offset is not understood."));
  });
  report->Add(Kind::kBounds, 0,
              std::to_string(proven) + " of " + std::to_string(accesses) +
                  " accesses to buffers are unchecked in launches that show that they stay inside.");
}

void ExplainCalls(const ir::Module& module, KernelReport* report) {
  const ir::Function& entry = module.function(module.entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const ir::Op& op = entry.op(id);
    if (op.code == ir::Opcode::kCall) {
      report->Add(Kind::kCall, op.source,
                  "\"" + module.functions[op.imm].name +
                      "\" stays a call: it is recursive, or too large to stand in its caller.");
    } else if (op.code == ir::Opcode::kCallRef) {
      report->Add(Kind::kCall, op.source, "What is called is known only when the kernel runs.");
    }
  });
}

void ExplainVariants(const GpuCode& code, KernelReport* report) {
  const auto product = [](const std::array<uint32_t, 3>& size) {
    return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
  };
  for (size_t i = 0; i < code.variants.size(); ++i) {
    const GpuVariant& variant = code.variants[i];
    std::string text = "Variant " + std::to_string(i) + " (\"" + variant.entry + "\"): " + product(variant.tile) +
                       (variant.tile == std::array<uint32_t, 3>{1, 1, 1} ? " instance" : " instances") +
                       " a work item, " +
                       (variant.group[0] == 0 ? "groups as the launcher chooses"
                                              : "groups of " + product(variant.group) + " work items") +
                       ", " + (variant.needs_proof ? "unchecked where a launch shows its bounds" : "checked");
    text += variant.needs_alignment ? ", buffers at multiples of 16 bytes" : "";
    text += variant.local_bytes != 0 ? ", " + std::to_string(variant.local_bytes) + " bytes of group memory" : "";
    report->Add(Kind::kTile, 0, text + ".");
  }
}

void SortReport(KernelReport* report) {
  const auto key = [](const KernelRemark& remark) { return std::tie(remark.source, remark.kind, remark.text); };
  std::vector<KernelRemark>& remarks = report->remarks;
  std::stable_sort(remarks.begin(), remarks.end(),
                   [&](const KernelRemark& a, const KernelRemark& b) { return key(a) < key(b); });
  remarks.erase(std::unique(remarks.begin(), remarks.end(),
                            [&](const KernelRemark& a, const KernelRemark& b) { return key(a) == key(b); }),
                remarks.end());
}

}  // namespace hpvm
