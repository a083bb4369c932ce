// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/explain.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/limits.h"
#include "compiler/ir/access.h"
#include "compiler/ir/walk.h"

namespace hpvm::compile {
namespace {

using Kind = KernelRemark::Kind;

// Returns true for accesses beyond the instance's private memory, which is checked against constants.
bool ReachesOthers(const ir::Op& op) {
  const ir::Family family = ir::Info(op.code).family;
  const bool is_access =
      family == ir::Family::kAtomic ||
      (family == ir::Family::kMemory && op.code != ir::Opcode::kMemorySize && op.code != ir::Opcode::kMemoryGrow);
  return is_access && (op.space == ir::Space::kParam || op.space == ir::Space::kFlat || op.space == ir::Space::kGroup);
}

std::string WhatIsAccessed(const ir::Module& module, const ir::Op& op) {
  const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
  const std::string verb = ir::Info(op.code).family == ir::Family::kAtomic ? "atomic access to"
                           : writes                                        ? "store to"
                                                                           : "load from";
  return verb + (op.space == ir::Space::kParam   ? " \"" + module.params[op.space_index].name + "\""
                 : op.space == ir::Space::kGroup ? " group memory"
                                                 : " an address whose buffer is not known");
}

bool Touch(const ir::AccessRange& a, const ir::AccessRange& b) {
  return !a.is_empty() && !b.is_empty() && a.begin < b.end && b.begin < a.end;
}

}  // namespace

void ExplainBounds(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report) {
  const ir::Function& entry = module.function(module.entry);
  std::vector<bool> is_proven(entry.ops.size()), is_by_words(entry.ops.size());
  for (const ir::BoundsAccess& access : bounds.accesses) {
    is_proven[access.op.index] = true;
  }
  for (const ir::BoundsAccess& access : bounds.by_words) {
    is_by_words[access.op.index] = true;
  }
  size_t accesses = 0, proven = 0, by_words = 0, group_accesses = 0, group_proven = 0;
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const ir::Op& op = entry.op(id);
    if (!ReachesOthers(op)) {
      return;
    }
    const bool is_group = op.space == ir::Space::kGroup;
    ++(is_group ? group_accesses : accesses);
    (is_group ? group_proven : proven) += is_proven[id.index] ? 1 : 0;
    by_words += is_by_words[id.index] ? 1 : 0;
    report->Add(
        Kind::kBounds, op.source,
        "The " + WhatIsAccessed(module, op) +
            (is_proven[id.index]     ? " is unchecked in launches that show that it stays within bounds."
             : is_by_words[id.index] ? " is unchecked on GPUs in launches where the range of its indices is known."
                                     : " keeps its check: the compiler cannot bound its offset."));
  });
  report->Add(Kind::kBounds, 0,
              std::to_string(proven) + " of " + std::to_string(accesses) +
                  " accesses to buffers are unchecked in launches that show that they stay within bounds" +
                  (by_words != 0 ? ", and " + std::to_string(by_words) + " more where indices are known" : "") + ".");
  if (group_accesses != 0) {
    report->Add(Kind::kBounds, 0,
                std::to_string(group_proven) + " of " + std::to_string(group_accesses) +
                    " accesses to group memory are unchecked in such launches.");
  }
}

LaunchHalves FindHalves(const ir::Module& module, const ir::BoundsProgram& bounds) {
  constexpr uint64_t kInstances = 16, kScalar = 16, kBufferBytes = uint64_t{1} << 26;
  ir::BoundsFacts facts;
  facts.extent = {kInstances, kInstances, kInstances};
  for (const ir::KernelParam& param : module.params) {
    facts.params.push_back({.is_buffer = param.is_buffer,
                            .is_writable = param.is_writable,
                            .value = param.is_buffer ? kBufferBytes : kScalar,
                            .bits = static_cast<uint8_t>(8 * ir::Bytes(param.type))});
  }
  LaunchHalves found;
  for (const uint32_t dimension : {0, 1, 2}) {
    std::vector<ir::ParamAccess> halves[2];
    ir::InstanceBox box{.first = {0, 0, 0}, .count = facts.extent};
    box.count[dimension] = kInstances / 2;
    bool is_known = ir::FindAccesses(bounds, facts, box, &halves[0]);
    box.first[dimension] = kInstances / 2;
    is_known = ir::FindAccesses(bounds, facts, box, &halves[1]) && is_known;
    std::optional<uint32_t> shared;
    for (uint32_t i = 0; is_known && i < module.params.size() && !shared; ++i) {
      const ir::ParamAccess &a = halves[0][i], &b = halves[1][i];
      const bool is_shared = Touch(a.written, b.written) || Touch(a.written, b.read) || Touch(a.read, b.written);
      shared = is_shared ? std::optional<uint32_t>(i) : std::nullopt;
    }
    found.apart += is_known && !shared ? std::string(1, "xyz"[dimension]) : "";
    found.shared = dimension == 0 ? shared : found.shared;
  }
  return found;
}

void ExplainParts(const ir::Module& module, const ir::BoundsProgram& bounds, KernelReport* report) {
  const LaunchHalves halves = FindHalves(module, bounds);
  if (!halves.apart.empty()) {
    std::string along(1, halves.apart[0]);
    for (size_t i = 1; i < halves.apart.size(); ++i) {
      along += std::string(" or ") + halves.apart[i];
    }
    report->Add(Kind::kBounds, 0,
                "A launch can be split along " + along +
                    " and run on several devices, if its sizes keep the parts' accesses apart.");
    return;
  }
  const ir::Function& entry = module.function(module.entry);
  std::vector<bool> is_known(entry.ops.size());
  for (const std::vector<ir::BoundsAccess>* accesses : {&bounds.accesses, &bounds.by_words, &bounds.others}) {
    for (const ir::BoundsAccess& access : *accesses) {
      is_known[access.op.index] = true;
    }
  }
  bool is_said = false;
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const ir::Op& op = entry.op(id);
    const bool writes = (ir::Info(op.code).effects & ir::kWrites) != 0;
    const bool is_cause = halves.shared ? writes && op.space == ir::Space::kParam && op.space_index == *halves.shared
                                        : !is_known[id.index];
    if (!is_said && op.space != ir::Space::kGroup && ReachesOthers(op) && is_cause) {
      is_said = true;
      report->Add(Kind::kBounds, op.source,
                  "The launch cannot be split: the " + WhatIsAccessed(module, op) +
                      (halves.shared ? " may reach bytes that other parts of the launch access."
                                     : " has an offset that the compiler cannot bound."));
    }
  });
  if (!is_said) {
    report->Add(Kind::kBounds, 0,
                "The launch cannot be split: a function that the kernel calls may access any byte of its buffers.");
  }
}

void ExplainCalls(const ir::Module& module, KernelReport* report) {
  const ir::Function& entry = module.function(module.entry);
  ir::ForEachOp(entry, [&](ir::OpId id) {
    const ir::Op& op = entry.op(id);
    if (op.code == ir::Opcode::kCall) {
      report->Add(Kind::kCall, op.source,
                  "\"" + module.functions[op.imm].name + "\" is not inlined: it is recursive or too large.");
    } else if (op.code == ir::Opcode::kCallRef) {
      report->Add(Kind::kCall, op.source, "The function that this call reaches is known only when the kernel runs.");
    }
  });
}

void ExplainVariants(const GpuCode& code, KernelReport* report) {
  const auto product = [](const std::array<uint32_t, 3>& size) {
    return std::to_string(size[0]) + "x" + std::to_string(size[1]) + "x" + std::to_string(size[2]);
  };
  for (size_t i = 0; i < code.variants.size(); ++i) {
    const GpuVariant& variant = code.variants[i];
    std::string text =
        "Variant " + std::to_string(i) + " (\"" + variant.entry + "\"): " + product(variant.tile) +
        (variant.tile == std::array<uint32_t, 3>{1, 1, 1} ? " instance" : " instances") + " per work item, " +
        (variant.group[0] == 0 ? "groups of a size that the launcher chooses"
                               : "groups of " + product(variant.group) + " work items") +
        ", " +
        (variant.needs_words
             ? "unchecked in launches that show that its accesses stay within bounds and whose indices are known"
         : variant.needs_proof ? "unchecked in launches that show that its accesses stay within bounds"
                               : "checked");
    text += variant.needs_alignment ? ", buffers at multiples of 16 bytes" : "";
    text += variant.local_bytes != 0 ? ", " + std::to_string(variant.local_bytes) + " bytes of group memory" : "";
    report->Add(Kind::kTile, 0, text + ".");
  }
}

void SortReport(KernelReport* report) {
  const auto key = [](const KernelRemark& remark) { return std::tie(remark.source, remark.kind, remark.text); };
  std::vector<KernelRemark>& remarks = report->remarks;
  std::ranges::stable_sort(remarks, [&](const KernelRemark& a, const KernelRemark& b) { return key(a) < key(b); });
  remarks.erase(std::unique(remarks.begin(), remarks.end(),
                            [&](const KernelRemark& a, const KernelRemark& b) { return key(a) == key(b); }),
                remarks.end());
  remarks.resize(std::min<size_t>(remarks.size(), limits::kRemarksMax));
  for (KernelRemark& remark : remarks) {
    remark.text.resize(std::min<size_t>(remark.text.size(), limits::kRemarkBytesMax));
  }
}

}  // namespace hpvm::compile
