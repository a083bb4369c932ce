// SPDX-License-Identifier: Apache-2.0
// Method: substitution of definitions. Sums, differences, and products and shifts by constants are expanded
// recursively; anything else, and whatever lies at depth eight, becomes a term. Equal terms are then added up.
// Invariants: after each step the value equals the constant plus the sum of factor times term modulo 2^64, for an
// i32 modulo 2^32. The result has each term once, sorted, with a factor that is not 0 in the type.
// Expansion ends at depth eight, so that a form has at most 2^8 terms before they are added up.
#include "compiler/analysis/linear_form.h"

#include <algorithm>

#include "compiler/ir/walk.h"

namespace hpvm::analysis {
namespace {

constexpr int kDepthMax = 8;  // Bounds the search for one value to 2^9 visits, of 2^8 terms.

}  // namespace

LinearForm LinearForms::Of(ValueId value) const {
  LinearForm form;
  Add(value, 1, 0, form);
  const uint64_t mask = ir::Bytes(f_.type_of(value)) == 4 ? 0xffffffffu : ~uint64_t{0};
  form.constant &= mask;
  std::ranges::sort(form.terms);
  std::vector<std::pair<uint32_t, uint64_t>> terms;
  for (const auto& [id, factor] : form.terms) {
    if (!terms.empty() && terms.back().first == id) {
      terms.back().second += factor;
    } else {
      terms.emplace_back(id, factor);
    }
  }
  for (auto& term : terms) {
    term.second &= mask;
  }
  std::erase_if(terms, [](const auto& term) { return term.second == 0; });
  form.terms = std::move(terms);
  return form;
}

void LinearForms::Add(ValueId value, uint64_t factor, int depth, LinearForm& form) const {
  const Op* by = definitions_.OpOf(value);
  if (by != nullptr && by->code == Opcode::kConst && ir::IsInt(by->type)) {
    form.constant += factor * by->imm;
    return;
  }
  const auto operand = [&](uint32_t i) { return f_.operands_of(*by)[i]; };
  switch (by == nullptr || depth == kDepthMax ? Opcode::kConst : by->code) {
    case Opcode::kAdd:
      Add(operand(0), factor, depth + 1, form);
      return Add(operand(1), factor, depth + 1, form);
    case Opcode::kSub:
      Add(operand(0), factor, depth + 1, form);
      return Add(operand(1), 0 - factor, depth + 1, form);
    case Opcode::kMul:
      for (uint32_t i : {0u, 1u}) {
        if (const Op* constant = definitions_.OpOf(operand(i), Opcode::kConst); constant != nullptr) {
          return Add(operand(1 - i), factor * constant->imm, depth + 1, form);
        }
      }
      break;
    case Opcode::kShl:
      if (const Op* constant = definitions_.OpOf(operand(1), Opcode::kConst); constant != nullptr) {
        return Add(operand(0), factor << (constant->imm % (8 * ir::Bytes(by->type))), depth + 1, form);
      }
      break;
    default:
      break;
  }
  form.terms.emplace_back(value.index, factor);
}

}  // namespace hpvm::analysis
