// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/memory/shared_checks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/analysis/linear_form.h"

namespace hpvm::pass {
namespace {

// Maximum bytes between the places of a check: a place further apart may be outside a buffer when the first is inside.
constexpr int64_t kApartMax = 256;

struct Member {
  OpId id;
  int64_t offset = 0;  // Offset of the operand from the members' common sum.
};

SharedCheck CheckOf(const ir::Function& f, const std::vector<Member>& members) {
  SharedCheck check;
  const auto by_offset = [](const Member& a, const Member& b) { return a.offset < b.offset; };
  const int64_t lowest = std::min_element(members.begin(), members.end(), by_offset)->offset;
  check.below = static_cast<uint64_t>(members[0].offset - lowest);
  for (const Member& member : members) {
    const Op& op = f.op(member.id);
    check.members.push_back(member.id);
    check.from_first.push_back(static_cast<uint64_t>(member.offset - members[0].offset));
    const uint64_t reach = static_cast<uint64_t>(member.offset - lowest) + op.imm + op.width;
    const auto bound =
        std::ranges::find_if(check.bounds, [&](const SharedCheck::Bound& b) { return b.param == op.space_index; });
    if (bound == check.bounds.end()) {
      check.bounds.push_back({op.space_index, reach});
    } else {
      bound->reach = std::max(bound->reach, reach);
    }
  }
  return check;
}

}  // namespace

SharedChecks FindSharedChecks(const ir::Module& module, const std::vector<bool>& is_asked, bool is_together) {
  const ir::Function& f = module.function(module.entry);
  const analysis::LinearForms forms(f);
  SharedChecks found;
  found.of.assign(f.ops.size(), -1);
  for (const ir::Region& region : f.regions) {
    std::map<std::vector<std::pair<uint32_t, uint64_t>>, std::vector<Member>> places;  // Keyed by LinearForm::terms.
    const auto close = [&] {
      for (const auto& [terms, members] : places) {
        for (size_t i = 0; i < members.size() && members.size() > 1; ++i) {
          found.of[members[i].id.index] = static_cast<int32_t>(found.checks.size());
        }
        if (members.size() > 1) {
          found.checks.push_back(CheckOf(f, members));
        }
      }
      places.clear();
    };
    for (OpId id : region.ops) {
      const Op& op = f.op(id);
      const bool is_load = op.code == ir::Opcode::kLoad || op.code == ir::Opcode::kLoad128;
      const bool is_of_param = is_load && op.space == ir::Space::kParam;
      constexpr uint8_t kParts = ir::kWrites | ir::kTraps | ir::kSyncs | ir::kControl;
      const bool is_far = is_of_param && op.imm > kApartMax;
      if (is_together && (is_far || (!is_of_param && (ir::Info(op.code).effects & kParts) != 0))) {
        close();
      }
      if (!is_of_param || !is_asked[id.index] || is_far) {
        continue;
      }
      const analysis::LinearForm form = forms.Of(f.operands_of(op)[0]);
      const int64_t offset = ir::SignedBits(module.address_type(), form.constant);
      const auto known = places.find(form.terms);
      const bool joins = known != places.end() && std::abs(offset - known->second[0].offset) <= kApartMax;
      if (is_together && !joins) {
        close();  // A check that looks ahead must not blame a load behind another one that also misses.
      }
      if (joins || is_together || known == places.end()) {
        places[form.terms].push_back({id, offset});
      }
    }
    close();
  }
  return found;
}

}  // namespace hpvm::pass
