// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/bounds.h"

#include <algorithm>
#include <map>

#include "compiler/ir/bounds_prover.h"

namespace hpvm::ir {
namespace {

bool Fits(const BoundsProver& prover, const BoundsAccess& access, const BoundsFacts& facts) {
  const bool is_group = access.param == BoundsAccess::kGroupMemory;
  if (!is_group && access.is_store && !facts.params[access.param].is_writable) {
    return false;
  }
  const Wide bytes = is_group ? access.group_bytes : facts.params[access.param].value;
  BoundsProver::Scope scope(prover, access.context);
  const Interval offset = scope.Of(access.offset);
  if (scope.is_impossible() || offset.is_empty()) {
    return true;
  }
  return offset.lo >= 0 && IsBound(offset.hi) && offset.hi + access.reach <= bytes;
}

}  // namespace

bool ProveBounds(const BoundsProgram& program, const BoundsFacts& facts, uint32_t* failed) {
  for (int i = 0; i < 3; ++i) {
    if (facts.extent[i] == 0) {
      return true;
    }
  }
  BoundsProver prover(program, facts, {{0, 0, 0}, facts.extent});
  prover.FindTrips();
  for (size_t i = 0; i < program.accesses.size(); ++i) {
    if (!Fits(prover, program.accesses[i], facts)) {
      if (failed != nullptr) {
        *failed = static_cast<uint32_t>(i);
      }
      return false;
    }
  }
  return true;
}

namespace {

bool IsSmall(Wide factor) { return factor > -(Wide{1} << 62) && factor < (Wide{1} << 62); }

bool FromSum(const std::map<std::vector<AtomId>, Wide>& sum, Polynomial* out) {
  out->clear();
  for (const auto& [atoms, factor] : sum) {
    if (factor == 0) {
      continue;
    }
    if (!IsSmall(factor) || out->size() == kTermsMax) {
      return false;
    }
    out->push_back({static_cast<int64_t>(factor), atoms});
  }
  return true;
}

}  // namespace

bool Add(const Polynomial& a, const Polynomial& b, int64_t b_factor, Polynomial* sum) {
  std::map<std::vector<AtomId>, Wide> terms;
  for (const Term& term : a) {
    terms[term.atoms] += term.factor;
  }
  for (const Term& term : b) {
    terms[term.atoms] += Wide{term.factor} * b_factor;
  }
  return FromSum(terms, sum);
}

bool Multiply(const Polynomial& a, const Polynomial& b, Polynomial* product) {
  std::map<std::vector<AtomId>, Wide> terms;
  for (const Term& x : a) {
    for (const Term& y : b) {
      std::vector<AtomId> atoms = x.atoms;
      atoms.insert(atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(atoms.begin(), atoms.end());
      if (atoms.size() > kDegreeMax) {
        return false;
      }
      Wide& total = terms[std::move(atoms)];
      total = Clamp(total + Product(Wide{x.factor}, Wide{y.factor}));
    }
  }
  return FromSum(terms, product);
}

Polynomial ConstantPolynomial(int64_t value) { return value == 0 ? Polynomial() : Polynomial{{value, {}}}; }
Polynomial AtomPolynomial(AtomId atom) { return {{1, {atom}}}; }

}  // namespace hpvm::ir
