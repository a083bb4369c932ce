// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/bounds_prover.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace hpvm::ir {

Wide Product(Wide a, Wide b) {
  if (a == 0 || b == 0) {
    return 0;
  }
  Wide product = 0;
  const bool overflows = !IsBound(a) || !IsBound(b) || __builtin_mul_overflow(a, b, &product);
  return overflows ? ((a < 0) == (b < 0) ? kWideMax : -kWideMax) : Clamp(product);
}

Interval Product(const Interval& a, const Interval& b) {
  const Wide ends[] = {Product(a.lo, b.lo), Product(a.lo, b.hi), Product(a.hi, b.lo), Product(a.hi, b.hi)};
  return {*std::min_element(std::begin(ends), std::end(ends)), *std::max_element(std::begin(ends), std::end(ends))};
}

Wide FloorDivide(Wide a, Wide b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

namespace {

// Ends that are not known stay so.
Wide Sum(Wide a, Wide b) { return !IsBound(a) ? a : !IsBound(b) ? b : Clamp(a + b); }

Interval Meet(const Interval& a, const Interval& b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }
Interval Hull(const Interval& a, const Interval& b) {
  return a.is_empty() ? b : b.is_empty() ? a : Interval{std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}

Interval Unsigned(uint8_t bits) { return CanonicalRange(false, bits); }
Interval Signed(uint8_t bits) { return CanonicalRange(true, bits); }

// The interval of the canonical form of a value whose interval, modulo 2^bits, is `interval`.
Interval Canonical(const Interval& interval, const Interval& canonical, uint8_t bits) {
  if (interval.is_empty() || interval.Within(canonical.lo, canonical.hi)) {
    return interval;
  }
  if (interval.is_single()) {
    Wide value = interval.lo % Modulus(bits);
    value += value < canonical.lo ? Modulus(bits) : 0;
    value -= value > canonical.hi ? Modulus(bits) : 0;
    return {value, value};
  }
  return canonical;
}

// A mask 2^bits - 2^k, which rounds down; nothing for others.
std::optional<int> RoundingMask(const Interval& mask, uint8_t bits) {
  if (!mask.is_single()) {
    return std::nullopt;
  }
  for (int k = 0; k < bits; ++k) {
    if (mask.lo == Modulus(bits) - (Wide{1} << k)) {
      return k;
    }
  }
  return std::nullopt;
}

// The next power of two above, less 1.
Wide AllOnes(Wide value) {
  Wide ones = 1;
  while (ones <= value) {
    ones *= 2;
  }
  return ones - 1;
}

Interval And(const Interval& a, const Interval& b, uint8_t bits) {
  if (a.is_single() && b.is_single()) {
    return {a.lo & b.lo, a.lo & b.lo};
  }
  for (const auto& [value, mask] : {std::pair{a, b}, std::pair{b, a}}) {
    if (const std::optional<int> k = RoundingMask(mask, bits)) {
      return {value.lo >> *k << *k, value.hi >> *k << *k};
    }
  }
  return {0, std::min(a.hi, b.hi)};
}

Interval DivideOrRemain(Opcode code, const Interval& a, const Interval& b, const Interval& otherwise) {
  const Interval divisor{std::max<Wide>(b.lo, 1), b.hi};  // 0 traps.
  if (a.lo < 0 || b.lo < 0 || divisor.is_empty()) {
    return otherwise;
  }
  if (code == Opcode::kDivU || code == Opcode::kDivS) {
    return {a.lo / divisor.hi, a.hi / divisor.lo};
  }
  if (a.is_single() && divisor.is_single()) {
    return {a.lo % divisor.lo, a.lo % divisor.lo};
  }
  return a.hi < divisor.lo ? a : Interval{0, std::min(a.hi, divisor.hi - 1)};
}

// The trip's coefficient of -s, s > 0, and the rest; nothing when the trip occurs in another way.
struct Slope {
  Wide s = 0;
  Reduced rest;
};
std::optional<Slope> SlopeOf(const Reduced& terms, AtomId trip) {
  Slope slope;
  for (const ReducedTerm& term : terms) {
    if (!term.Has(trip)) {
      slope.rest.push_back(term);
    } else if (term.count == 1) {
      slope.s = -term.factor;
    } else {
      return std::nullopt;
    }
  }
  return slope.s > 0 && IsBound(slope.s) ? std::optional(slope) : std::nullopt;
}

}  // namespace

void BoundsProver::Scope::Refine(AtomId atom, const Interval& interval) {
  Known& known = atoms_[atom.index];
  const Interval refined = Meet(known.refined, interval);
  if (!(refined == known.refined)) {
    known.refined = refined;
    ++age_;
  }
}

Interval BoundsProver::Scope::Of(AtomId atom) {
  if (atoms_[atom.index].age != age_) {
    if (!prover_.Spend(1)) {
      return {};
    }
    const Interval evaluated = Evaluate(prover_.program_.atoms[atom.index]);
    Known& known = atoms_[atom.index];
    known.interval = Meet(evaluated, known.refined);
    known.age = age_;
  }
  return atoms_[atom.index].interval;
}

void BoundsProver::Scope::AddTerms(const Polynomial& polynomial, Wide sign, Reduced* sum) {
  prover_.Spend(polynomial.size());
  for (const Term& term : polynomial) {
    ReducedTerm reduced;
    reduced.factor = sign * term.factor;
    for (AtomId atom : term.atoms) {
      const Interval interval = Of(atom);
      if (interval.is_single()) {
        reduced.factor = Product(reduced.factor, interval.lo);
      } else if (reduced.count < kDegreeMax) {
        reduced.atoms[reduced.count++] = atom;
      } else {
        reduced.factor = kWideMax;  // Nothing is known of such a sum.
      }
    }
    const auto same = std::find_if(sum->begin(), sum->end(), [&](const ReducedTerm& t) { return t.IsLike(reduced); });
    if (same == sum->end()) {
      sum->push_back(reduced);
    } else {
      same->factor = Sum(same->factor, reduced.factor);
    }
  }
}

Reduced BoundsProver::Scope::Reduce(const Polynomial& polynomial, int sign, const Polynomial& minus) {
  Reduced terms;
  terms.reserve(polynomial.size() + minus.size());
  AddTerms(polynomial, sign, &terms);
  AddTerms(minus, -1, &terms);
  std::erase_if(terms, [](const ReducedTerm& term) { return term.factor == 0; });
  return terms;
}

Interval BoundsProver::Scope::Of(const Reduced& terms, const ReducedTerm* except) {
  Interval sum{0, 0};
  for (const ReducedTerm& term : terms) {
    if (&term == except) {
      continue;
    }
    if (!IsBound(term.factor)) {
      return {};
    }
    Interval product{term.factor, term.factor};
    for (AtomId atom : term.all()) {
      product = Product(product, Of(atom));
    }
    if (!IsBound(product.lo) && !IsBound(product.hi)) {
      return {};
    }
    sum = {IsBound(sum.lo) && IsBound(product.lo) ? Sum(sum.lo, product.lo) : -kWideMax,
           IsBound(sum.hi) && IsBound(product.hi) ? Sum(sum.hi, product.hi) : kWideMax};
  }
  return sum;
}

Interval BoundsProver::Scope::Evaluate(const Atom& atom) {
  const BoundsFacts& facts = prover_.facts_;
  const auto single = [](Wide value) { return Interval{value, value}; };
  const size_t dimension = std::min<size_t>(atom.index, 2);  // Where it is one.
  const Wide first = prover_.box_.first[dimension], last = first + prover_.box_.count[dimension] - 1;
  const Wide group = facts.group[dimension];
  switch (atom.kind) {
    case Atom::Kind::kInstanceId:
      return {first, last};
    case Atom::Kind::kGroupId:
      return {first / group, last / group};
    case Atom::Kind::kLocalId:
      return first / group == last / group ? Interval{first % group, last % group} : Interval{0, group - 1};
    case Atom::Kind::kInstanceCount:
      return single(facts.extent[atom.index]);
    case Atom::Kind::kGroupSize:
      return single(facts.group[atom.index]);
    case Atom::Kind::kScalar: {
      const BoundsFacts::Param& param = facts.params[atom.index];
      return single(param.bits == 32 ? Wide{static_cast<int32_t>(param.value)}
                                     : Wide{static_cast<int64_t>(param.value)});
    }
    case Atom::Kind::kBufferBytes:
      return single(facts.params[atom.index].value);
    case Atom::Kind::kTrip:
      return atom.index < prover_.trips_.size() ? prover_.trips_[atom.index] : Interval{0, kWideMax};
    case Atom::Kind::kRange:
      return atom.range;
    case Atom::Kind::kOperation:
      return Operation(atom);
    case Atom::Kind::kEither:
      return Either(atom);
  }
  return {};
}

Interval BoundsProver::Scope::Either(const Atom& atom) {
  Interval hull{1, 0};
  for (size_t i = 0; i < atom.operands.size(); ++i) {
    Interval value;
    if (atom.contexts[i].empty()) {
      value = Of(atom.operands[i]);
    } else {
      prover_.Spend(atoms_.size() / 8);
      Scope inner = *this;
      inner.is_impossible_ = false;
      inner.Assume(atom.contexts[i]);
      value = inner.is_impossible() ? Interval{1, 0} : inner.Of(atom.operands[i]);
    }
    hull = Hull(hull, value);
  }
  return hull;
}

Interval BoundsProver::Scope::Operation(const Atom& atom) {
  const uint8_t bits = atom.bits;
  const bool is_signed = atom.code == Opcode::kShrS || atom.code == Opcode::kDivS || atom.code == Opcode::kRemS ||
                         atom.code == Opcode::kExtendS || atom.code == Opcode::kExtend8 ||
                         atom.code == Opcode::kExtend16 || atom.code == Opcode::kExtend32;
  const Interval all = is_signed ? Signed(bits) : Unsigned(bits);
  const Interval a = Canonical(Of(atom.operands[0]), all, bits);
  const Interval b = atom.operands.size() > 1 ? Canonical(Of(atom.operands[1]), all, bits) : Interval{0, 0};
  if (a.is_empty() || b.is_empty()) {
    return {1, 0};
  }
  switch (atom.code) {
    case Opcode::kShrU:
    case Opcode::kShrS: {
      if (!b.is_single()) {
        return a.lo >= 0 ? Interval{0, a.hi} : all;
      }
      const int count = static_cast<int>(((b.lo % bits) + bits) % bits);
      return {a.lo >> count, a.hi >> count};
    }
    case Opcode::kAnd:
      return And(a, b, bits);
    case Opcode::kOr:
      return a.is_single() && b.is_single()
                 ? Interval{a.lo | b.lo, a.lo | b.lo}
                 : Interval{std::max(a.lo, b.lo), std::min(AllOnes(a.hi | b.hi), a.hi + b.hi)};
    case Opcode::kXor:
      return a.is_single() && b.is_single() ? Interval{a.lo ^ b.lo, a.lo ^ b.lo}
                                            : Interval{0, std::min(AllOnes(a.hi | b.hi), a.hi + b.hi)};
    case Opcode::kDivU:
    case Opcode::kDivS:
    case Opcode::kRemU:
    case Opcode::kRemS:
      return DivideOrRemain(atom.code, a, b, all);
    case Opcode::kExtendU:
    case Opcode::kExtendS:
      return a;
    case Opcode::kExtend8:
      return a.Within(-128, 127) ? a : Interval{-128, 127};
    case Opcode::kExtend16:
      return a.Within(-32768, 32767) ? a : Interval{-32768, 32767};
    case Opcode::kExtend32:
      return a.Within(Signed(32).lo, Signed(32).hi) ? a : Signed(32);
    default:
      return all;
  }
}

// terms + added >= 0: tightens each atom that occurs once, alone and to the first power.
void BoundsProver::Scope::Tighten(const Reduced& terms, Wide added) {
  if (Sum(Of(terms).hi, added) < 0) {
    is_impossible_ = true;
    return;
  }
  for (const ReducedTerm& term : terms) {
    if (term.count != 1 || !IsBound(term.factor)) {
      continue;
    }
    const AtomId atom = term.atoms[0];
    const bool is_alone =
        std::none_of(terms.begin(), terms.end(), [&](const ReducedTerm& t) { return &t != &term && t.Has(atom); });
    const Wide most = is_alone ? Of(terms, &term).hi : kWideMax;
    if (!IsBound(most)) {
      continue;
    }
    const Wide limit = most + added;  // factor * atom >= -limit
    if (term.factor > 0) {
      Refine(atom, {-FloorDivide(limit, term.factor), kWideMax});
    } else {
      Refine(atom, {-kWideMax, FloorDivide(limit, -term.factor)});
    }
  }
}

void BoundsProver::Scope::Apply(const Constraint& c) {
  const Interval less = Of(c.less), more = Of(c.more);
  const Interval all = c.is_signed ? Signed(c.bits) : Unsigned(c.bits);
  if (is_impossible_ || !more.Within(all.lo, all.hi) || less.hi > all.hi) {
    return;
  }
  if (less.lo < all.lo) {
    // A negative value wraps to so large a one that the comparison would have failed: so it is not negative.
    const Wide lowest = more.hi - Modulus(c.bits) + (c.or_equal ? 1 : 0);
    if (c.is_signed || less.lo < lowest) {
      return;
    }
    Tighten(Reduce(c.less), 0);
  }
  Tighten(Reduce(c.more, 1, c.less), c.or_equal ? 0 : -1);
}

bool BoundsProver::Scope::Split(const Constraint& c, std::vector<NotNegative>* conditions) {
  const Interval all = CanonicalRange(c.is_signed, c.bits);
  // What is negative as a whole wraps as a whole.
  const auto wrap = [&](Interval& interval) -> Wide {
    if (c.is_signed || interval.is_empty() || !interval.Within(-Modulus(c.bits), -1)) {
      return 0;
    }
    interval = {interval.lo + Modulus(c.bits), interval.hi + Modulus(c.bits)};
    return Modulus(c.bits);
  };
  Interval less = Of(c.less), more = Of(c.more);
  const Wide wrapped = wrap(more) - wrap(less);
  if (less.is_empty() || more.is_empty() || !more.Within(all.lo, all.hi) || less.hi > all.hi) {
    return false;
  }
  if (less.lo < all.lo) {
    // As in Apply: the constraint holds only where it is not negative.
    if (c.is_signed || less.lo < more.hi - Modulus(c.bits) + (c.or_equal ? 1 : 0)) {
      return false;
    }
    conditions->push_back({Reduce(c.less), 0});
  }
  conditions->push_back({Reduce(c.more, 1, c.less), wrapped - (c.or_equal ? 0 : 1)});
  return true;
}

Truth BoundsProver::Scope::Decide(const NotNegative& condition) {
  const Interval sum = Of(condition.terms);
  if (sum.is_empty() || !IsBound(sum.lo) || !IsBound(sum.hi)) {
    return Truth::kUnknown;
  }
  return sum.lo + condition.added >= 0 ? Truth::kYes : sum.hi + condition.added < 0 ? Truth::kNo : Truth::kUnknown;
}

Truth BoundsProver::Scope::Decide(const Constraint& constraint) {
  std::vector<NotNegative> conditions;
  if (!Split(constraint, &conditions)) {
    return Truth::kUnknown;
  }
  Truth all = Truth::kYes;
  for (const NotNegative& condition : conditions) {
    const Truth truth = Decide(condition);
    if (truth == Truth::kNo) {
      return Truth::kNo;
    }
    all = truth == Truth::kYes ? all : truth;
  }
  return all;
}

// The loop goes on from iteration t only while less(t) < more(t); the difference falls by s each time.
std::optional<Wide> BoundsProver::TripMaxBy(const BoundsLoop& loop, const Constraint& c) const {
  Scope scope(*this, loop.context);
  const std::optional<Slope> slope = SlopeOf(scope.Reduce(c.more, 1, c.less), loop.trip);
  if (!slope) {
    return std::nullopt;
  }
  const Wide most = scope.Of(slope->rest).hi;
  if (!IsBound(most)) {
    return std::nullopt;
  }
  const Wide last = std::max<Wide>(FloorDivide(most - (c.or_equal ? 0 : 1), slope->s) + 1, 0);
  // Up to there both sides must be canonical. Then no instance runs on: the comparison after `last` would have failed.
  Scope bounded(*this, loop.context);
  bounded.Refine(loop.trip, {0, last});
  const Interval all = c.is_signed ? Signed(c.bits) : Unsigned(c.bits);
  const bool is_canonical = bounded.Of(c.less).Within(all.lo, all.hi) && bounded.Of(c.more).Within(all.lo, all.hi);
  return is_canonical ? std::optional(last) : std::nullopt;
}

// The loop goes on from iteration t only while distance(t) = first - s t is not 0 modulo 2^bits.
std::optional<Wide> BoundsProver::TripMaxBy(const BoundsLoop& loop, const Polynomial& distance, uint8_t bits) const {
  for (const int sign : {1, -1}) {
    Scope scope(*this, loop.context);
    const std::optional<Slope> slope = SlopeOf(scope.Reduce(distance, sign), loop.trip);
    if (!slope) {
      continue;
    }
    const Interval first = scope.Of(slope->rest);
    // It must hit 0 exactly, from above, without wrapping.
    const bool is_hit = std::all_of(slope->rest.begin(), slope->rest.end(),
                                    [&](const ReducedTerm& term) { return term.factor % slope->s == 0; });
    if (is_hit && first.Within(0, Modulus(bits) - 1)) {
      return first.hi / slope->s;
    }
  }
  return std::nullopt;
}

Wide BoundsProver::TripMax(size_t index) const {
  const BoundsLoop& loop = program_.loops[index];
  if (loop.ends.empty()) {
    return 0;
  }
  if (loop.ends.size() > 1) {
    return kWideMax;  // One edge may carry the loop past where the other's condition is understood.
  }
  Wide most = kWideMax;
  for (uint32_t constraint : loop.ends[0].goes_on) {
    most = std::min(most, TripMaxBy(loop, program_.constraints[constraint]).value_or(kWideMax));
  }
  for (const Distance& distance : loop.ends[0].distances) {
    most = std::min(most, TripMaxBy(loop, distance.polynomial, distance.bits).value_or(kWideMax));
  }
  return most;
}

}  // namespace hpvm::ir
