// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/bounds.h"

#include <algorithm>
#include <initializer_list>
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

// `failed`, if not null, receives the index, in the concatenated lists, of the first access that does not fit.
bool Prove(const BoundsProgram& program, std::initializer_list<std::span<const BoundsAccess>> lists,
           const BoundsFacts& facts, uint32_t* failed) {
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
  uint32_t place = 0;
  for (const std::span<const BoundsAccess> list : lists) {
    for (const BoundsAccess& access : list) {
      if (!ClaimOf(prover, access, facts).fits) {
        if (failed != nullptr) {
          *failed = place;
        }
        return false;
      }
      ++place;
    }
  }
  return true;
}

}  // namespace

bool ProveBounds(const BoundsProgram& program, const BoundsFacts& facts, uint32_t* failed) {
  if (program.accesses.empty()) {
    return false;  // No access proves nothing: FindBounds may have dropped the whole program.
  }
  return Prove(program, {program.accesses}, facts, failed);
}

bool ProveByWords(const BoundsProgram& program, const BoundsFacts& facts) {
  return !program.by_words.empty() && Prove(program, {program.accesses, program.by_words}, facts, nullptr);
}

std::vector<bool> FindWordParams(const BoundsProgram& program) {
  std::vector<bool> found;
  for (const Atom& atom : program.atoms) {
    if (atom.kind == Atom::Kind::kWord && !program.by_words.empty()) {
      found.resize(std::max<size_t>(found.size(), atom.index + size_t{1}));
      found[atom.index] = true;
    }
  }
  return found;
}

std::vector<BoundsClaim> ClaimBounds(const BoundsProgram& program, std::span<const BoundsAccess> accesses,
                                     const BoundsFacts& facts) {
  BoundsProver prover(program, facts, {{0, 0, 0}, facts.extent});
  prover.FindTrips();
  std::vector<BoundsClaim> claims;
  for (const BoundsAccess& access : accesses) {
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
      std::ranges::sort(atoms);
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
