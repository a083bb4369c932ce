// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/bounds.h"

#include <algorithm>
#include <map>
#include <optional>

namespace hpvm::ir {
namespace {

Wide Clamp(Wide value) { return std::clamp(value, -kWideMax, kWideMax); }
bool IsBound(Wide value) { return value > -kWideMax && value < kWideMax; }

Wide Product(Wide a, Wide b) {
  if (a == 0 || b == 0) {
    return 0;
  }
  Wide product = 0;
  const bool overflows = !IsBound(a) || !IsBound(b) || __builtin_mul_overflow(a, b, &product);
  return overflows ? ((a < 0) == (b < 0) ? kWideMax : -kWideMax) : Clamp(product);
}
// Ends that are not known stay so.
Wide Sum(Wide a, Wide b) { return !IsBound(a) ? a : !IsBound(b) ? b : Clamp(a + b); }

Interval Product(const Interval& a, const Interval& b) {
  const Wide ends[] = {Product(a.lo, b.lo), Product(a.lo, b.hi), Product(a.hi, b.lo), Product(a.hi, b.hi)};
  return {*std::min_element(std::begin(ends), std::end(ends)), *std::max_element(std::begin(ends), std::end(ends))};
}
Interval Meet(const Interval& a, const Interval& b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }
Interval Hull(const Interval& a, const Interval& b) {
  return a.is_empty() ? b : b.is_empty() ? a : Interval{std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}

Wide FloorDivide(Wide a, Wide b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

Wide Modulus(uint8_t bits) { return Wide{1} << bits; }
Interval Unsigned(uint8_t bits) { return {0, Modulus(bits) - 1}; }
Interval Signed(uint8_t bits) { return {-Modulus(bits) / 2, Modulus(bits) / 2 - 1}; }

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

// What is left of a polynomial once atoms of a single value are put in: at least as precise as the polynomial.
struct ReducedTerm {
  Wide factor = 0;
  std::array<AtomId, kDegreeMax> atoms;
  uint32_t count = 0;  // Of atoms.

  std::span<const AtomId> all() const { return {atoms.data(), count}; }
  bool Has(AtomId atom) const { return std::find(atoms.begin(), atoms.begin() + count, atom) != atoms.begin() + count; }
  bool IsLike(const ReducedTerm& other) const {
    return count == other.count && std::equal(atoms.begin(), atoms.begin() + count, other.atoms.begin());
  }
};
using Reduced = std::vector<ReducedTerm>;

// What one proof may cost, in evaluated atoms and terms; what is beyond is not known. Nested merges would take time
// exponential in their depth.
constexpr int64_t kProofStepsMax = 20'000;

class Prover {
 public:
  Prover(const BoundsProgram& program, const BoundsFacts& facts) : program_(program), facts_(facts) {}

  bool Run(uint32_t* failed) {
    for (size_t i = 0; i < program_.loops.size(); ++i) {
      trips_.push_back({0, TripMax(i)});
    }
    for (size_t i = 0; i < program_.accesses.size(); ++i) {
      if (!Fits(program_.accesses[i])) {
        if (failed != nullptr) {
          *failed = static_cast<uint32_t>(i);
        }
        return false;
      }
    }
    return true;
  }

 private:
  // Intervals of the atoms where some constraints hold.
  class Scope {
   public:
    Scope(const Prover& prover, std::span<const uint32_t> context)
        : prover_(prover), atoms_(prover.program_.atoms.size()) {
      prover_.Spend(atoms_.size() / 8);
      Assume(context);
    }
    void Assume(std::span<const uint32_t> context) {
      for (int pass = 0; pass < kPasses; ++pass) {
        for (uint32_t constraint : context) {
          Apply(prover_.program_.constraints[constraint]);
        }
      }
    }

    Interval Of(AtomId atom);
    Interval Of(const Polynomial& polynomial) { return Of(Reduce(polynomial)); }
    Interval Of(const Reduced& terms, const ReducedTerm* except = nullptr);
    // Of polynomial * sign - minus.
    Reduced Reduce(const Polynomial& polynomial, int sign = 1, const Polynomial& minus = {});
    void Refine(AtomId atom, const Interval& interval) {
      Known& known = atoms_[atom.index];
      const Interval refined = Meet(known.refined, interval);
      if (!(refined == known.refined)) {
        known.refined = refined;
        ++age_;
      }
    }
    bool is_impossible() const { return is_impossible_; }

   private:
    static constexpr int kPasses = 2;

    Interval Evaluate(const Atom& atom);
    Interval Operation(const Atom& atom);
    Interval Either(const Atom& atom);
    void Apply(const Constraint& constraint);
    void Tighten(const Reduced& terms, Wide added);
    void AddTerms(const Polynomial& polynomial, Wide sign, Reduced* sum);

    struct Known {
      Interval interval;  // As evaluated at `age`.
      Interval refined;   // By constraints.
      uint32_t age = 0;
    };
    const Prover& prover_;
    std::vector<Known> atoms_;
    uint32_t age_ = 1;
    bool is_impossible_ = false;
  };

  Wide TripMax(size_t loop) const;
  std::optional<Wide> TripMaxBy(const BoundsLoop& loop, const Constraint& goes_on) const;
  std::optional<Wide> TripMaxBy(const BoundsLoop& loop, const Polynomial& distance, uint8_t bits) const;
  bool Fits(const BoundsAccess& access) const;
  // False when nothing is left.
  bool Spend(size_t steps) const {
    steps_left_ -= static_cast<int64_t>(steps);
    return steps_left_ > 0;
  }

  const BoundsProgram& program_;
  const BoundsFacts& facts_;
  std::vector<Interval> trips_;  // Of the loops so far.
  mutable int64_t steps_left_ = kProofStepsMax;
};

Interval Prover::Scope::Of(AtomId atom) {
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

void Prover::Scope::AddTerms(const Polynomial& polynomial, Wide sign, Reduced* sum) {
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

Reduced Prover::Scope::Reduce(const Polynomial& polynomial, int sign, const Polynomial& minus) {
  Reduced terms;
  terms.reserve(polynomial.size() + minus.size());
  AddTerms(polynomial, sign, &terms);
  AddTerms(minus, -1, &terms);
  std::erase_if(terms, [](const ReducedTerm& term) { return term.factor == 0; });
  return terms;
}

Interval Prover::Scope::Of(const Reduced& terms, const ReducedTerm* except) {
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

Interval Prover::Scope::Evaluate(const Atom& atom) {
  const BoundsFacts& facts = prover_.facts_;
  const auto single = [](Wide value) { return Interval{value, value}; };
  switch (atom.kind) {
    case Atom::Kind::kInstanceId:
      return {0, Wide{facts.extent[atom.index]} - 1};
    case Atom::Kind::kGroupId:
      return {0, (Wide{facts.extent[atom.index]} - 1) / facts.group[atom.index]};
    case Atom::Kind::kLocalId:
      return {0, Wide{std::min(facts.extent[atom.index], facts.group[atom.index])} - 1};
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

Interval Prover::Scope::Either(const Atom& atom) {
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

Interval Prover::Scope::Operation(const Atom& atom) {
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
void Prover::Scope::Tighten(const Reduced& terms, Wide added) {
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

void Prover::Scope::Apply(const Constraint& c) {
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

// The loop goes on from iteration t only while less(t) < more(t); the difference falls by s each time.
std::optional<Wide> Prover::TripMaxBy(const BoundsLoop& loop, const Constraint& c) const {
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
std::optional<Wide> Prover::TripMaxBy(const BoundsLoop& loop, const Polynomial& distance, uint8_t bits) const {
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

Wide Prover::TripMax(size_t index) const {
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

bool Prover::Fits(const BoundsAccess& access) const {
  const bool is_group = access.param == BoundsAccess::kGroupMemory;
  if (!is_group && access.is_store && !facts_.params[access.param].is_writable) {
    return false;
  }
  const Wide bytes = is_group ? access.group_bytes : facts_.params[access.param].value;
  Scope scope(*this, access.context);
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
  return Prover(program, facts).Run(failed);
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
