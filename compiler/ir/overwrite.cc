// SPDX-License-Identifier: Apache-2.0
// Method: for each store, the box of ids and trips is cut by the store's conditions until nothing new is decided;
// the bytes written form an arithmetic progression, whose axes without gaps are folded into its length.
// Progressions with equal axes are sorted and joined where they meet.
// Invariants: every point of a box occurs and every byte of a progression is written: a store whose box is not
// exact is left out. Folding and joining add no byte that is not written, so a range inside a progression without
// axes is covered.
// Conditions are tried again only while one was decided, and joining is repeated only while it makes fewer
// progressions. Conditions and loops spend the prover's steps.
#include "compiler/ir/overwrite.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace hpvm::ir {
namespace {

using Scope = BoundsProver::Scope;

// Bytes [begin + sum of stride * i, the same + bytes), for all i below the counts.
struct Progression {
  struct Axis {
    Wide stride = 0, count = 0;
    friend bool operator==(const Axis&, const Axis&) = default;
  };
  Wide begin = 0, bytes = 0;
  std::vector<Axis> axes;  // Sorted by stride, which is positive; counts are above 1.

  // Removes the axes that leave no gaps, and extends `bytes` by them.
  void Fold() {
    size_t filled = 0;
    for (; filled < axes.size() && axes[filled].stride <= bytes; ++filled) {
      const Exact all = Sum(bytes, Product(axes[filled].stride, axes[filled].count - 1));
      if (!all) {
        break;
      }
      bytes = *all;
    }
    axes.erase(axes.begin(), axes.begin() + static_cast<ptrdiff_t>(filled));
  }
};

// The domain of a store: intervals of ids and trips, of which every combination occurs.
class Domain {
 public:
  Domain(const BoundsProgram& program, const BoundsProver& prover, const BoundsAccess& store)
      : program_(program), prover_(prover), store_(store), scope_(prover, {}) {}

  // Restricts the domain to where the store's conditions hold; kNo: nowhere; kUnknown: the resulting domain is not
  // exact.
  Truth Restrict() {
    std::vector<uint32_t> open = store_.happens_when;
    // One condition may decide another.
    for (size_t before = open.size() + 1; !open.empty() && open.size() < before;) {
      before = open.size();
      std::vector<uint32_t> left;
      for (uint32_t constraint : open) {
        if (!prover_.Spend(1)) {
          return Truth::kUnknown;
        }
        const Truth truth = Apply(program_.constraints[constraint]);
        if (truth == Truth::kNo) {
          return Truth::kNo;
        }
        if (truth == Truth::kUnknown) {
          left.push_back(constraint);
        }
      }
      open = std::move(left);
    }
    const bool is_exact =
        open.empty() && std::ranges::all_of(store_.loops, [&](uint32_t loop) { return IsCounted(loop); });
    return is_exact ? Truth::kYes : Truth::kUnknown;
  }

  std::optional<Progression> Written() {
    Progression written;
    written.bytes = store_.width;
    Exact begin = Wide{store_.reach} - store_.width;
    const Reduced terms = scope_.Reduce(store_.offset);
    if (!scope_.Of(terms).Within(0, Modulus(program_.is_wide ? 64 : 32) - 1)) {
      return std::nullopt;  // The offset wraps.
    }
    for (const ReducedTerm& term : terms) {
      if (!term.factor || term.count > 1) {
        return std::nullopt;
      }
      if (term.count == 0) {
        begin = Sum(begin, term.factor);
        continue;
      }
      const AtomId atom = term.atoms[0];
      if (!IsAxis(atom)) {
        return std::nullopt;
      }
      const Interval interval = scope_.Of(atom);
      if (interval.is_empty() || !interval.Within(-Modulus(64), Modulus(64))) {
        return std::nullopt;
      }
      const Wide factor = *term.factor;
      begin = Sum(begin, Product(factor, factor > 0 ? interval.lo() : interval.hi()));
      written.axes.push_back({factor > 0 ? factor : -factor, *interval.hi() - *interval.lo() + 1});
    }
    if (!begin) {
      return std::nullopt;
    }
    written.begin = *begin;
    std::ranges::sort(written.axes, [](const auto& a, const auto& b) { return a.stride < b.stride; });
    return written;
  }

 private:
  bool IsAxis(AtomId id) const {
    const Atom& atom = program_.atoms[id.index];
    return atom.kind == Atom::Kind::kInstanceId ||
           (atom.kind == Atom::Kind::kTrip && std::ranges::find(store_.loops, atom.index) != store_.loops.end());
  }

  // Decides whether the constraint holds in all of the domain or nowhere, after cutting one axis if necessary.
  Truth Apply(const Constraint& constraint) {
    std::vector<NotNegative> conditions;
    if (!scope_.Split(constraint, &conditions)) {
      return Truth::kUnknown;
    }
    for (const NotNegative& condition : conditions) {
      Truth truth = scope_.Decide(condition);
      if (truth == Truth::kUnknown && Cut(condition)) {
        truth = Truth::kYes;
      }
      if (truth != Truth::kYes) {
        return truth;
      }
    }
    return Truth::kYes;
  }

  bool Cut(const NotNegative& condition) {
    Exact rest = condition.added;
    const ReducedTerm* axis = nullptr;
    for (const ReducedTerm& term : condition.terms) {
      if (term.count == 0) {
        rest = Sum(rest, term.factor);
      } else if (axis != nullptr || term.count > 1 || !IsAxis(term.atoms[0])) {
        return false;
      } else {
        axis = &term;
      }
    }
    if (axis == nullptr || !rest || !axis->factor) {
      return false;
    }
    // factor * axis >= -rest
    const Wide factor = *axis->factor;
    scope_.Refine(axis->atoms[0], factor > 0 ? Interval::AtLeast(-FloorDivide(*rest, factor))
                                             : Interval::AtMost(FloorDivide(*rest, -factor)));
    return true;
  }

  // Returns true when the loop runs equally often in all of the domain: up to the largest trip.
  bool IsCounted(uint32_t index) const {
    const BoundsLoop& loop = program_.loops[index];
    const Exact last = prover_.trips()[index].hi();
    if (loop.ends.empty() || (last && *last <= 0)) {
      return true;  // One iteration.
    }
    if (!loop.is_exact || !last || !prover_.Spend(program_.atoms.size() / 8)) {
      return false;
    }
    Scope before(prover_, {});
    for (size_t i = 0; i < program_.atoms.size(); ++i) {
      const AtomId atom(i);
      const bool is_outer_trip = program_.atoms[i].kind == Atom::Kind::kTrip && program_.atoms[i].index < index;
      if (IsAxis(atom) && (is_outer_trip || program_.atoms[i].kind == Atom::Kind::kInstanceId)) {
        before.Refine(atom, scope_.Refined(atom));
      }
    }
    before.Refine(loop.trip, {0, *last - 1});
    return std::ranges::all_of(loop.goes_on_when, [&](uint32_t constraint) {
      return before.Decide(program_.constraints[constraint]) == Truth::kYes;
    });
  }

  const BoundsProgram& program_;
  const BoundsProver& prover_;
  const BoundsAccess& store_;
  Scope scope_;
};

// Joins progressions that have the same axes and leave no gap between them, until nothing changes.
void Join(std::vector<Progression>& all) {
  for (size_t before = all.size() + 1; all.size() < before;) {
    before = all.size();
    for (Progression& progression : all) {
      progression.Fold();
    }
    const auto key = [](const Progression& p) {
      std::vector<std::pair<Wide, Wide>> axes;
      for (const Progression::Axis& axis : p.axes) {
        axes.emplace_back(axis.stride, axis.count);
      }
      return std::pair(std::move(axes), p.begin);
    };
    std::ranges::sort(all, [&](const auto& a, const auto& b) { return key(a) < key(b); });
    std::vector<Progression> joined;
    for (Progression& next : all) {
      if (!joined.empty() && joined.back().axes == next.axes &&
          next.begin <= joined.back().begin + joined.back().bytes) {
        Progression& last = joined.back();
        last.bytes = std::max(last.bytes, next.begin - last.begin + next.bytes);
      } else {
        joined.push_back(std::move(next));
      }
    }
    all = std::move(joined);
  }
}

}  // namespace

bool StoresCover(const BoundsProgram& program, const BoundsProver& prover,
                 const std::vector<const BoundsAccess*>& stores, const AccessRange& range) {
  std::vector<Progression> written;
  for (const BoundsAccess* store : stores) {
    if (!store->is_certain || !store->is_store) {
      continue;
    }
    Domain domain(program, prover, *store);
    if (domain.Restrict() != Truth::kYes) {
      continue;
    }
    if (std::optional<Progression> progression = domain.Written()) {
      written.push_back(*std::move(progression));
    }
  }
  Join(written);
  return std::ranges::any_of(written, [&](const Progression& p) {
    return p.axes.empty() && p.begin <= range.begin && p.begin + p.bytes >= range.end;
  });
}

}  // namespace hpvm::ir
