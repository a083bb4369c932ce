// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/bounds.h"

#include <algorithm>
#include <map>

#include "compiler/ir/bounds_prover.h"

namespace hpvm::ir {
namespace {

BoundsClaim ClaimOf(const BoundsProver& prover, const BoundsAccess& access, const BoundsFacts& facts) {
  BoundsProver::Scope scope(prover, access.context);
  BoundsClaim claim;
  claim.offset = scope.Of(access.offset);
  claim.is_never = scope.is_impossible() || claim.offset.is_empty();
  const bool is_group = access.param == BoundsAccess::kGroupMemory;
  const Wide bytes = is_group ? access.group_bytes : facts.params[access.param].value;
  const bool may_happen = is_group || !access.is_store || facts.params[access.param].is_writable;
  claim.fits = may_happen && (claim.is_never || claim.offset.Within(0, bytes - access.reach));
  return claim;
}

}  // namespace

bool ProveBounds(const BoundsProgram& program, const BoundsFacts& facts, uint32_t* failed) {
  if (program.accesses.empty()) {
    return false;  // Nothing was asked, so nothing is shown: FindBounds may have dropped it all.
  }
  for (int i = 0; i < 3; ++i) {
    if (facts.group[i] == 0) {
      return false;
    }
    if (facts.extent[i] == 0) {
      return true;
    }
  }
  BoundsProver prover(program, facts, {{0, 0, 0}, facts.extent});
  prover.FindTrips();
  for (size_t i = 0; i < program.accesses.size(); ++i) {
    if (!ClaimOf(prover, program.accesses[i], facts).fits) {
      if (failed != nullptr) {
        *failed = static_cast<uint32_t>(i);
      }
      return false;
    }
  }
  return true;
}

std::vector<BoundsClaim> ClaimBounds(const BoundsProgram& program, const BoundsFacts& facts) {
  BoundsProver prover(program, facts, {{0, 0, 0}, facts.extent});
  prover.FindTrips();
  std::vector<BoundsClaim> claims;
  for (const BoundsAccess& access : program.accesses) {
    claims.push_back(ClaimOf(prover, access, facts));
  }
  return claims;
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
      if (__builtin_add_overflow(total, Wide{x.factor} * y.factor, &total)) {
        return false;
      }
    }
  }
  return FromSum(terms, product);
}

Polynomial ConstantPolynomial(int64_t value) { return value == 0 ? Polynomial() : Polynomial{{value, {}}}; }
Polynomial AtomPolynomial(AtomId atom) { return {{1, {atom}}}; }

}  // namespace hpvm::ir
