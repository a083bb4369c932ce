// SPDX-License-Identifier: Apache-2.0
// Method: interval arithmetic over the atoms of polynomials. Constraints tighten the intervals of single atoms;
// ties bound sums of several atoms. Trip counts follow from the conditions on back edges, and ranges of carried
// values from induction on a few guesses.
// Invariants: each interval contains every value that can occur; one that cannot be determined is unbounded. A
// scope only narrows: Refine intersects, and an inner scope begins as a copy. A cached interval holds while no
// constraint or tie has been added since (age_). Loops are examined from the first on, each with the trips of those
// before it.
// An atom that is being evaluated is not entered again. All scopes of one use share kStepsMax steps; when they are
// spent nothing more is known. Constraints are applied twice, and a scope has at most 16 ties.
#include "compiler/ir/bounds_prover.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace hpvm::ir {

namespace {

Interval Unsigned(uint8_t bits) { return CanonicalRange(false, bits); }
Interval Signed(uint8_t bits) { return CanonicalRange(true, bits); }

// Returns the interval of the canonical form of a value whose interval, modulo 2^bits, is `interval`; its ends are
// known. `canonical` is a CanonicalRange.
Interval Canonical(const Interval& interval, const Interval& canonical, uint8_t bits) {
  if (interval.is_empty() || interval.Within(*canonical.lo(), *canonical.hi())) {
    return interval;
  }
  if (const Exact single = interval.single()) {
    Wide value = *single % Modulus(bits);
    value += value < *canonical.lo() ? Modulus(bits) : 0;
    value -= value > *canonical.hi() ? Modulus(bits) : 0;
    return Interval::Single(value);
  }
  return canonical;
}

// Returns k for a mask 2^bits - 2^k, which rounds down; nothing for other masks.
std::optional<int> RoundingMask(const Interval& mask, uint8_t bits) {
  const Exact single = mask.single();
  for (int k = 0; single && k < bits; ++k) {
    if (*single == Modulus(bits) - (Wide{1} << k)) {
      return k;
    }
  }
  return std::nullopt;
}

// Returns the next larger power of two, minus 1.
Wide AllOnes(Wide value) {
  Wide ones = 1;
  while (ones <= value) {
    ones *= 2;
  }
  return ones - 1;
}

// The following functions require nonempty operands as Canonical returns them.
Interval And(const Interval& a, const Interval& b, uint8_t bits) {
  if (a.single() && b.single()) {
    return Interval::Single(*a.single() & *b.single());
  }
  for (const auto& [value, mask] : {std::pair{a, b}, std::pair{b, a}}) {
    if (const std::optional<int> k = RoundingMask(mask, bits)) {
      return {*value.lo() >> *k << *k, *value.hi() >> *k << *k};
    }
  }
  return {0, std::min(*a.hi(), *b.hi())};
}

Interval Or(const Interval& a, const Interval& b) {
  if (a.single() && b.single()) {
    return Interval::Single(*a.single() | *b.single());
  }
  return {std::max(*a.lo(), *b.lo()), std::min(AllOnes(*a.hi() | *b.hi()), *a.hi() + *b.hi())};
}

Interval Xor(const Interval& a, const Interval& b) {
  if (a.single() && b.single()) {
    return Interval::Single(*a.single() ^ *b.single());
  }
  return {0, std::min(AllOnes(*a.hi() | *b.hi()), *a.hi() + *b.hi())};
}

Interval ShiftRight(const Interval& a, const Interval& b, const Interval& otherwise, uint8_t bits) {
  if (!b.single()) {
    return *a.lo() >= 0 ? Interval{0, *a.hi()} : otherwise;
  }
  const int count = static_cast<int>(((*b.single() % bits) + bits) % bits);
  return {*a.lo() >> count, *a.hi() >> count};
}

Interval ShiftLeft(const Interval& a, const Interval& b, const Interval& all, uint8_t bits) {
  const bool fits = *b.hi() < bits && *a.hi() <= *all.hi() >> *b.hi();
  return fits ? Interval{*a.lo() << *b.lo(), *a.hi() << *b.hi()} : all;
}

bool IsPowerOrZero(Wide value) { return value >= 0 && (value & (value - 1)) == 0; }

Interval DivideOrRemain(Opcode code, const Interval& a, const Interval& b, const Interval& otherwise) {
  const Wide least = std::max<Wide>(*b.lo(), 1), most = *b.hi();  // A division by 0 traps.
  if (*a.lo() < 0 || *b.lo() < 0 || least > most) {
    return otherwise;
  }
  if (code == Opcode::kDivU || code == Opcode::kDivS) {
    return {*a.lo() / most, *a.hi() / least};
  }
  if (a.single() && least == most) {
    return Interval::Single(*a.single() % least);
  }
  return *a.hi() < least ? a : Interval{0, std::min(*a.hi(), most - 1)};
}

// Splits terms into -s * trip, s > 0, and the rest; nothing when the trip occurs in another way.
struct Slope {
  Wide s = 0;
  Reduced rest;
};
std::optional<Slope> SlopeOf(const Reduced& terms, AtomId trip) {
  Slope slope;
  for (const ReducedTerm& term : terms) {
    if (!term.Has(trip)) {
      slope.rest.push_back(term);
    } else if (term.count == 1 && term.factor) {
      slope.s = -*term.factor;
    } else {
      return std::nullopt;
    }
  }
  return slope.s > 0 ? std::optional(slope) : std::nullopt;
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
    if (atoms_[atom.index].is_open) {  // A tie leads from the atom's operands back to the atom.
      return atoms_[atom.index].refined;
    }
    atoms_[atom.index].is_open = true;
    const Interval evaluated = Evaluate(prover_.program_.atoms[atom.index]);
    Known& known = atoms_[atom.index];
    known.is_open = false;
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
      if (const Exact single = interval.single()) {
        reduced.factor = Product(reduced.factor, single);
      } else if (reduced.count < kDegreeMax) {
        reduced.atoms[reduced.count++] = atom;
      } else {
        reduced.factor = Exact();
      }
    }
    AddTo(sum, reduced);
  }
}

void BoundsProver::Scope::AddTo(Reduced* sum, const ReducedTerm& term) {
  const auto same = std::ranges::find_if(*sum, [&](const ReducedTerm& t) { return t.IsLike(term); });
  if (same == sum->end()) {
    sum->push_back(term);
  } else {
    same->factor = Sum(same->factor, term.factor);
  }
}

Reduced BoundsProver::Scope::Reduce(const Polynomial& polynomial, int sign, const Polynomial& minus) {
  Reduced terms;
  terms.reserve(polynomial.size() + minus.size());
  AddTerms(polynomial, sign, &terms);
  AddTerms(minus, -1, &terms);
  std::erase_if(terms, [](const ReducedTerm& term) { return term.factor == Exact(0); });
  return terms;
}

Interval BoundsProver::Scope::Of(const Polynomial& polynomial) { return OfTied(Reduce(polynomial)); }

// Also uses facts about several of the atoms together.
Interval BoundsProver::Scope::OfTied(const Reduced& terms) {
  Interval interval = Of(terms);
  for (size_t i = 0; i < ties_.size() && terms.size() > 1; ++i) {
    const Tie tie = ties_[i];  // A copy, because the evaluation may add ties.
    const auto has = [&](const ReducedTerm& term) { return term.Has(tie.of); };
    if (!tie.of.valid() || std::ranges::any_of(terms, has)) {
      interval = Meet(interval, By(tie.holds, terms));
    }
  }
  return interval;
}

// Given the fact h >= 0, p = (p - k h) + k h is at least p - k h when k > 0, and at most that when k < 0; k is chosen
// such that the first common term of h and p cancels.
Interval BoundsProver::Scope::By(const NotNegative& holds, const Reduced& terms) {
  prover_.Spend(terms.size() + holds.terms.size());
  for (const ReducedTerm& held : holds.terms) {
    const auto same = std::ranges::find_if(terms, [&](const ReducedTerm& t) { return t.IsLike(held); });
    if (held.count == 0 || same == terms.end() || !same->factor || !held.factor || *same->factor % *held.factor != 0) {
      continue;
    }
    const Exact k = *same->factor / *held.factor;
    Reduced rest = terms;
    for (ReducedTerm term : holds.terms) {
      term.factor = Product(term.factor, -*k);
      AddTo(&rest, term);
    }
    std::erase_if(rest, [](const ReducedTerm& term) { return term.factor == Exact(0); });
    const Interval without = Sum(Of(rest), Product(Interval::Single(*k), Interval::Single(-holds.added)));
    return *k > 0 ? Interval{without.lo(), Exact()} : Interval{Exact(), without.hi()};
  }
  return {};
}

Interval BoundsProver::Scope::Of(const Reduced& terms, const ReducedTerm* except) {
  Interval sum = Interval::Single(0);
  for (const ReducedTerm& term : terms) {
    if (&term == except) {
      continue;
    }
    if (!term.factor) {
      return {};
    }
    Interval product = Interval::Single(*term.factor);
    for (AtomId atom : term.all()) {
      product = Product(product, Of(atom));
    }
    sum = Sum(sum, product);
  }
  return sum;
}

std::optional<Wide> BoundsProver::Scope::Residue(const Reduced& terms, Wide divisor) {
  Reduced rest;
  Wide constant = 0;
  for (const ReducedTerm& term : terms) {
    if (!term.factor) {
      return std::nullopt;
    }
    if (term.count == 0) {
      constant += *term.factor;
    } else if (*term.factor % divisor != 0) {
      rest.push_back(term);
    }
  }
  const auto left = [&](Wide value) { return (value % divisor + divisor) % divisor; };
  if (rest.empty()) {
    return left(constant);
  }
  // x & (divisor - 1) has the same remainder as x.
  for (const Atom& atom : prover_.program_.atoms) {
    if (atom.kind != Atom::Kind::kOperation || atom.code != Opcode::kAnd || !prover_.Spend(1) ||
        Of(atom.operands[1]).single() != Exact(divisor - 1)) {
      continue;
    }
    const Exact value = Of(AtomId(static_cast<uint32_t>(&atom - prover_.program_.atoms.data()))).single();
    for (const int sign : {1, -1}) {
      Reduced apart = rest;
      AddTerms(atom.operands[0], -sign, &apart);
      const bool is_multiple = value && std::ranges::all_of(apart, [&](const ReducedTerm& term) {
                                 return term.factor && (term.count == 0 || *term.factor % divisor == 0);
                               });
      if (is_multiple) {
        return left(
            std::accumulate(apart.begin(), apart.end(), constant + sign * *value,
                            [](Wide sum, const ReducedTerm& t) { return t.count == 0 ? sum + *t.factor : sum; }));
      }
    }
  }
  return std::nullopt;
}

template <typename Visit>
void BoundsProver::Scope::ForEachChoice(const Reduced& terms, Visit visit) {
  const auto is_choice = [&](const ReducedTerm& term) {
    return term.count == 1 && term.factor && prover_.program_.atoms[term.atoms[0].index].kind == Atom::Kind::kEither;
  };
  const auto choice = std::ranges::find_if(terms, is_choice);
  if (choice == terms.end()) {
    return visit(*this, terms);
  }
  const Atom& atom = prover_.program_.atoms[choice->atoms[0].index];
  for (size_t i = 0; i < atom.operands.size(); ++i) {
    prover_.Spend(atoms_.size() / 8);
    Scope inner = *this;
    inner.is_impossible_ = false;
    inner.Assume(atom.contexts[i]);
    if (inner.is_impossible()) {
      continue;
    }
    Reduced chosen = terms;
    chosen[static_cast<size_t>(choice - terms.begin())].factor = 0;
    inner.AddTerms(atom.operands[i], *choice->factor, &chosen);
    std::erase_if(chosen, [](const ReducedTerm& term) { return term.factor == Exact(0); });
    visit(inner, chosen);
  }
}

Interval BoundsProver::Scope::Evaluate(const Atom& atom) {
  const BoundsFacts& facts = prover_.facts_;
  const size_t dimension = std::min<size_t>(atom.index, 2);  // For atoms whose index is a dimension.
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
      return Interval::Single(facts.extent[atom.index]);
    case Atom::Kind::kGroupSize:
      return Interval::Single(facts.group[atom.index]);
    case Atom::Kind::kScalar: {
      const BoundsFacts::Param& param = facts.params[atom.index];
      return Interval::Single(param.bits == 32 ? Wide{static_cast<int32_t>(param.value)}
                                               : Wide{static_cast<int64_t>(param.value)});
    }
    case Atom::Kind::kBufferBytes:
      return Interval::Single(facts.params[atom.index].value);
    case Atom::Kind::kTrip:
      return atom.index < prover_.trips_.size() ? prover_.trips_[atom.index] : Interval::AtLeast(0);
    case Atom::Kind::kWord:
      return Word(atom);
    case Atom::Kind::kRange:
      return atom.range;
    case Atom::Kind::kOperation:
      return Operation(atom);
    case Atom::Kind::kEither:
      return Either(atom);
    case Atom::Kind::kCarried:
      return Meet(Unsigned(atom.bits),
                  prover_.carried_[static_cast<size_t>(&atom - prover_.program_.atoms.data())].range);
  }
  return {};
}

// Nothing is known of words in a buffer that the kernel may write.
Interval BoundsProver::Scope::Word(const Atom& atom) const {
  const BoundsFacts::Param& param = prover_.facts_.params[atom.index];
  if (param.is_writable || !param.words.is_known()) {
    return atom.bits == 32 ? Unsigned(32) : Signed(32);
  }
  return {param.words.lo, param.words.hi};
}

Interval BoundsProver::Scope::Either(const Atom& atom) {
  Interval hull = Interval::Empty();
  for (size_t i = 0; i < atom.operands.size(); ++i) {
    Interval value;
    if (atom.contexts[i].empty()) {
      value = Of(atom.operands[i]);
    } else {
      prover_.Spend(atoms_.size() / 8);
      Scope inner = *this;
      inner.is_impossible_ = false;
      inner.Assume(atom.contexts[i]);
      value = inner.is_impossible() ? Interval::Empty() : inner.Of(atom.operands[i]);
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
  const Interval b = atom.operands.size() > 1 ? Canonical(Of(atom.operands[1]), all, bits) : Interval::Single(0);
  if (a.is_empty() || b.is_empty()) {
    return Interval::Empty();
  }
  switch (atom.code) {
    case Opcode::kShrU:
    case Opcode::kShrS:
      return ShiftRight(a, b, all, bits);
    case Opcode::kShl:
      return ShiftLeft(a, b, all, bits);
    case Opcode::kAnd:
      KeepMasked(atom, all);
      return And(a, b, bits);
    case Opcode::kOr:
      return Or(a, b);
    case Opcode::kXor:
      return Xor(a, b);
    case Opcode::kDivU:
    case Opcode::kDivS:
      // The polynomial equals the dividend only where it is canonical.
      if (b.single() && *b.single() > 0 && Of(atom.operands[0]).Within(0, *all.hi())) {
        KeepQuotient(atom, *b.single());
      }
      return DivideOrRemain(atom.code, a, b, all);
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
      return a.Within(*Signed(32).lo(), *Signed(32).hi()) ? a : Signed(32);
    default:
      return all;
  }
}

// Given terms + added >= 0, tightens each atom that occurs once, alone and to the first power.
void BoundsProver::Scope::Tighten(const Reduced& terms, Wide added) {
  if (const Exact most = Sum(Of(terms).hi(), added); most && *most < 0) {
    is_impossible_ = true;
    return;
  }
  for (const ReducedTerm& term : terms) {
    if (term.count != 1 || !term.factor) {
      continue;
    }
    const AtomId atom = term.atoms[0];
    const bool is_alone = std::ranges::none_of(terms, [&](const ReducedTerm& t) { return &t != &term && t.Has(atom); });
    const Exact limit = is_alone ? Sum(Of(terms, &term).hi(), added) : Exact();
    if (!limit) {
      continue;
    }
    // factor * atom >= -limit
    if (*term.factor > 0) {
      Refine(atom, Interval::AtLeast(-FloorDivide(*limit, *term.factor)));
    } else {
      Refine(atom, Interval::AtMost(FloorDivide(*limit, -*term.factor)));
    }
  }
}

namespace {

Interval Canonicals(const Constraint& c) { return CanonicalRange(c.is_signed, c.bits); }

// Returns true when the constraint, if it holds, also holds for the values as integers: `more` is canonical, and
// `less` is canonical or a negative number that would wrap to so large a number that the comparison would fail; then
// it is not negative.
bool IsComparable(const Constraint& c, const Interval& less, const Interval& more) {
  const Interval all = Canonicals(c);
  if (!more.Within(*all.lo(), *all.hi()) || !less.is_bounded() || *less.hi() > *all.hi()) {
    return false;
  }
  const Wide lowest = *more.hi() - Modulus(c.bits) + (c.or_equal ? 1 : 0);
  return *less.lo() >= *all.lo() || (!c.is_signed && *less.lo() >= lowest);
}

}  // namespace

void BoundsProver::Scope::Keep(const void* by, const Reduced& terms, Wide added, AtomId of) {
  const auto has_atoms = [](const ReducedTerm& term) { return term.count != 0; };
  const auto known = std::ranges::find_if(ties_, [&](const Tie& tie) { return tie.by == by; });
  if (known != ties_.end() || ties_.size() == kTiesMax || std::ranges::count_if(terms, has_atoms) < 2) {
    return;
  }
  ties_.push_back({by, {terms, added}, of});
  ++age_;
}

// For a nonnegative dividend, 0 <= dividend - divisor * quotient <= divisor - 1.
void BoundsProver::Scope::KeepQuotient(const Atom& quotient, Wide divisor) {
  const AtomId id(static_cast<uint32_t>(&quotient - prover_.program_.atoms.data()));
  ReducedTerm times;
  times.atoms[times.count++] = id;
  times.factor = -divisor;
  Reduced rest = Reduce(quotient.operands[0]);
  AddTo(&rest, times);
  Keep(&quotient, rest, 0, id);
  for (ReducedTerm& term : rest) {
    term.factor = Product(term.factor, -1);
  }
  Keep(&quotient.operands, rest, divisor - 1, id);
}

// For y = x & mask, 0 <= x - y. When mask + 1 is a power of two s, x - y is the largest multiple of s up to x, or x
// itself when s is 0. As x lies below a common multiple of all possible s, x - y + s is at most that multiple.
void BoundsProver::Scope::KeepMasked(const Atom& masked, const Interval& canonical) {
  ReducedTerm y;
  y.atoms[y.count++] = AtomId(static_cast<uint32_t>(&masked - prover_.program_.atoms.data()));
  for (size_t side = masked.operands.size(); side-- > 0;) {
    const Polynomial& mask = masked.operands[side];
    if (mask.empty() || mask.back().atoms.empty()) {
      continue;  // Many kernels mask with constants, and few subtract the result.
    }
    const Reduced x = Reduce(masked.operands[1 - side]), power = Reduce(mask, 1, ConstantPolynomial(-1));
    const Interval range = Of(x), powers = Of(power);
    if (!range.Within(0, *canonical.hi())) {
      continue;
    }
    y.factor = -1;
    Reduced rest = {y};
    std::ranges::for_each(x, [&](const ReducedTerm& term) { AddTo(&rest, term); });
    Keep(&mask, rest, 0, y.atoms[0]);
    if (!powers.Within(0, *canonical.hi()) || !IsPower(power)) {
      continue;
    }
    const Wide largest = std::max<Wide>((AllOnes(*powers.hi()) + 1) / 2, 1);
    const Wide above = (*range.hi() + largest) / largest * largest;
    std::ranges::for_each(power, [&](const ReducedTerm& term) { AddTo(&rest, term); });
    for (ReducedTerm& term : rest) {
      term.factor = Product(term.factor, -1);
    }
    std::erase_if(rest, [](const ReducedTerm& term) { return term.factor == Exact(0); });
    Keep(mask.data(), rest, above, y.atoms[0]);
  }
}

// Modulo 2^bits a power of two is a power of two or 0.
bool BoundsProver::Scope::IsPower(const Reduced& terms) {
  return terms.empty() || (terms.size() == 1 && terms[0].factor && IsPowerOrZero(*terms[0].factor) &&
                           std::ranges::all_of(terms[0].all(), [&](AtomId atom) { return IsPower(atom); }));
}

bool BoundsProver::Scope::IsPower(AtomId id) {
  if (!prover_.Spend(1)) {
    return false;
  }
  const Atom& atom = prover_.program_.atoms[id.index];
  if (const Exact single = Of(id).single()) {
    return IsPowerOrZero(*single);
  }
  switch (atom.kind) {
    case Atom::Kind::kCarried:
      return prover_.carried_[id.index].is_power;
    case Atom::Kind::kEither:
      return std::ranges::all_of(atom.operands, [&](const Polynomial& p) { return IsPower(Reduce(p)); });
    case Atom::Kind::kOperation:
      return IsPowerOperation(atom);
    default:
      return false;
  }
}

bool BoundsProver::Scope::IsPowerOperation(const Atom& atom) {
  const auto is_power = [&](size_t operand) { return IsPower(Reduce(atom.operands[operand])); };
  const auto has_no_sign = [&](size_t operand) {
    return Of(atom.operands[operand]).Within(0, *Signed(atom.bits).hi());
  };
  switch (atom.code) {
    case Opcode::kShl:
    case Opcode::kShrU:
    case Opcode::kExtendU:
      return is_power(0);
    case Opcode::kShrS:
    case Opcode::kExtendS:
      return has_no_sign(0) && is_power(0);
    case Opcode::kDivU:
    case Opcode::kDivS:
      return has_no_sign(0) && has_no_sign(1) && is_power(0) && is_power(1);
    default:
      return false;
  }
}

void BoundsProver::Scope::Apply(const Constraint& c) {
  const Interval less = Of(c.less), more = Of(c.more);
  if (is_impossible_ || !IsComparable(c, less, more)) {
    return;
  }
  if (*less.lo() < *Canonicals(c).lo()) {
    Tighten(Reduce(c.less), 0);
  }
  const Reduced difference = Reduce(c.more, 1, c.less);
  const Wide added = c.or_equal ? 0 : -1;
  Tighten(difference, added);
  Keep(&c, difference, added);
}

bool BoundsProver::Scope::Split(const Constraint& c, std::vector<NotNegative>* conditions) {
  // A sum that is negative everywhere wraps everywhere.
  const auto wrap = [&](Interval& interval) -> Wide {
    if (c.is_signed || interval.is_empty() || !interval.Within(-Modulus(c.bits), -1)) {
      return 0;
    }
    interval = Sum(interval, Interval::Single(Modulus(c.bits)));
    return Modulus(c.bits);
  };
  Interval less = Of(c.less), more = Of(c.more);
  const Wide wrapped = wrap(more) - wrap(less);
  if (less.is_empty() || more.is_empty() || !IsComparable(c, less, more)) {
    return false;
  }
  if (*less.lo() < *Canonicals(c).lo()) {
    conditions->push_back({Reduce(c.less), 0});
  }
  conditions->push_back({Reduce(c.more, 1, c.less), wrapped - (c.or_equal ? 0 : 1)});
  return true;
}

Truth BoundsProver::Scope::Decide(const NotNegative& condition) {
  const Interval sum = Of(condition.terms);
  if (sum.is_empty()) {
    return Truth::kUnknown;
  }
  const Exact least = Sum(sum.lo(), condition.added), most = Sum(sum.hi(), condition.added);
  return least && *least >= 0 ? Truth::kYes : most && *most < 0 ? Truth::kNo : Truth::kUnknown;
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

// Records rest + added - slope * trip >= 0 in each iteration.
void BoundsProver::TieTrip(const BoundsLoop& loop, const Reduced& rest, Wide added, Wide slope) const {
  Reduced terms = rest;
  ReducedTerm trip;
  trip.factor = -slope;
  trip.atoms[trip.count++] = loop.trip;
  terms.push_back(trip);
  loop_ties_.push_back({&loop, {std::move(terms), added}});
}

// The loop continues after iteration t only while less(t) < more(t); the difference decreases by s each time.
Exact BoundsProver::TripMaxBy(const BoundsLoop& loop, const Constraint& c, bool is_steady) const {
  Scope scope(*this, loop.context);
  const std::optional<Slope> slope = SlopeOf(scope.Reduce(c.more, 1, c.less), loop.trip);
  if (!slope) {
    return {};
  }
  const Wide added = c.or_equal ? 0 : -1;
  const Exact most = Sum(scope.OfTied(slope->rest).hi(), added);
  if (!most) {
    return {};
  }
  const Wide last = std::max<Wide>(FloorDivide(*most, slope->s) + 1, 0);
  // Both sides must be canonical up to there. Then no instance continues: the comparison after `last` would have
  // failed.
  Scope bounded(*this, loop.context);
  bounded.Refine(loop.trip, {0, last});
  const Interval all = Canonicals(c);
  const bool is_canonical =
      bounded.Of(c.less).Within(*all.lo(), *all.hi()) && bounded.Of(c.more).Within(*all.lo(), *all.hi());
  if (!is_canonical) {
    return {};
  }
  // Every iteration except the first follows one in which the difference was large enough. The requirement of the
  // first iteration must hold where the loop begins.
  const Exact least = Sum(scope.OfTied(slope->rest).lo(), added + slope->s);
  if (is_steady && least && *least >= 0) {
    TieTrip(loop, slope->rest, added + slope->s, slope->s);
  }
  return last;
}

// Returns the sum's interval when it certainly is a multiple of the divisor, else all integers.
Interval BoundsProver::MultiplesIn(Scope& scope, const Reduced& rest, Wide divisor) {
  const bool is_power = (divisor & (divisor - 1)) == 0;
  Interval hull = Interval::Empty();
  scope.ForEachChoice(rest, [&](Scope& inner, const Reduced& terms) {
    const bool is_multiple =
        std::ranges::all_of(terms, [&](const ReducedTerm& term) { return term.factor && *term.factor % divisor == 0; });
    const Interval interval = inner.OfTied(terms);
    if ((!is_multiple && !(is_power && inner.Residue(terms, divisor) == 0)) || !interval.is_bounded()) {
      hull = {};
      return;
    }
    const Wide below = FloorDivide(*interval.lo() + divisor - 1, divisor) * divisor;
    hull = Hull(hull, {below, FloorDivide(*interval.hi(), divisor) * divisor});
  });
  return hull.is_empty() ? Interval() : hull;
}

// The loop continues after iteration t only while distance(t) = first - s t is not 0 modulo 2^bits.
Exact BoundsProver::TripMaxBy(const BoundsLoop& loop, const Polynomial& distance, uint8_t bits) const {
  for (const int sign : {1, -1}) {
    Scope scope(*this, loop.context);
    const std::optional<Slope> slope = SlopeOf(scope.Reduce(distance, sign), loop.trip);
    if (!slope) {
      continue;
    }
    // The distance must reach exactly 0, from above, without wrapping.
    const Interval first = MultiplesIn(scope, slope->rest, slope->s);
    if (first.Within(0, Modulus(bits) - 1)) {
      TieTrip(loop, slope->rest, 0, slope->s);
      return *first.hi() / slope->s;
    }
  }
  return {};
}

// Returns the values that back edges pass when the carried value lies in `range`.
Interval BoundsProver::NextIn(const BoundsLoop& loop, size_t carried, const Interval& range) const {
  const AtomId atom = loop.carried[carried].atom;
  const uint8_t bits = program_.atoms[atom.index].bits;
  Interval hull = Interval::Empty();
  for (const LoopEnd& end : loop.ends) {
    Scope scope(*this, loop.context);
    scope.Refine(atom, range);
    scope.Assume(end.goes_on);
    if (!scope.is_impossible()) {
      hull = Hull(hull, Canonical(scope.Of(end.next[carried]), Unsigned(bits), bits));
    }
  }
  return hull;
}

// Proves by induction: a range that contains the first iteration's value, and the next value of each value in it,
// contains all.
Interval BoundsProver::RangeOf(const BoundsLoop& loop, size_t carried) const {
  const uint8_t bits = program_.atoms[loop.carried[carried].atom.index].bits;
  Scope before(*this, loop.context);
  const Interval first = Canonical(before.Of(loop.carried[carried].first), Unsigned(bits), bits);
  if (before.is_impossible() || first.is_empty()) {
    return Unsigned(bits);
  }
  // A halved value stays below its first value. A doubled value stays above it unless it wraps; comparisons exclude
  // that for values whose double stays below the sign bit.
  const Interval guesses[] = {{0, first.hi()}, {first.lo(), Modulus(bits) / 4 - 1}, {first.lo(), Modulus(bits) - 1}};
  for (const Interval& guess : guesses) {
    if (!first.Within(*guess.lo(), *guess.hi())) {
      continue;
    }
    const Interval all = Hull(first, NextIn(loop, carried, guess));
    if (all.Within(*guess.lo(), *guess.hi())) {
      return all;
    }
  }
  return Unsigned(bits);
}

// Proves by induction that the value stays a power of two.
bool BoundsProver::StaysPower(const BoundsLoop& loop, size_t carried) {
  CarriedValue& value = carried_[loop.carried[carried].atom.index];
  value.is_power = true;
  Scope scope(*this, loop.context);
  return scope.IsPower(scope.Reduce(loop.carried[carried].first)) &&
         std::ranges::all_of(loop.ends,
                             [&](const LoopEnd& end) { return scope.IsPower(scope.Reduce(end.next[carried])); });
}

void BoundsProver::FindCarried(const BoundsLoop& loop) {
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    CarriedValue& value = carried_[loop.carried[i].atom.index];
    value.range = RangeOf(loop, i);
    value.is_power = StaysPower(loop, i);
  }
}

Exact BoundsProver::TripMax(size_t index) const {
  const BoundsLoop& loop = program_.loops[index];
  if (loop.ends.empty()) {
    return 0;
  }
  if (loop.ends.size() > 1) {
    return {};  // One edge may carry the loop past the range in which the other edge's condition is understood.
  }
  Interval trips = Interval::AtLeast(0);
  const auto at_most = [&](const Exact& most) { trips = Meet(trips, {Exact(), most}); };
  for (uint32_t constraint : loop.ends[0].goes_on) {
    const bool is_steady = std::ranges::find(loop.ends[0].steady, constraint) != loop.ends[0].steady.end();
    at_most(TripMaxBy(loop, program_.constraints[constraint], is_steady));
  }
  for (const Distance& distance : loop.ends[0].distances) {
    at_most(TripMaxBy(loop, distance.polynomial, distance.bits));
  }
  return trips.hi();
}

}  // namespace hpvm::ir
