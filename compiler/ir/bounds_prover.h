// SPDX-License-Identifier: Apache-2.0
// Computes intervals of the atoms and polynomials of a bounds program, for a box of a launch's instances. Internal to
// bounds.cc, access.cc and work.cc, the only files that include it.
#ifndef HPVMD_COMPILER_IR_BOUNDS_PROVER_H_
#define HPVMD_COMPILER_IR_BOUNDS_PROVER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/access.h"
#include "compiler/ir/bounds.h"

namespace hpvm::ir {

// A polynomial after substitution of atoms that have a single value; at least as precise as the polynomial.
struct ReducedTerm {
  Exact factor = 0;  // When the factor is unknown, so is the sum.
  std::array<AtomId, kDegreeMax> atoms;
  uint32_t count = 0;  // Number of atoms.

  std::span<const AtomId> all() const { return {atoms.data(), count}; }
  bool Has(AtomId atom) const { return std::find(atoms.begin(), atoms.begin() + count, atom) != atoms.begin() + count; }
  bool IsLike(const ReducedTerm& other) const {
    return count == other.count && std::equal(atoms.begin(), atoms.begin() + count, other.atoms.begin());
  }
};
using Reduced = std::vector<ReducedTerm>;

// terms + added >= 0
struct NotNegative {
  Reduced terms;
  Wide added = 0;
};
enum class Truth : uint8_t { kYes, kNo, kUnknown };  // kYes: holds everywhere in the scope; kNo: holds nowhere.

inline Wide Modulus(uint8_t bits) { return Wide{1} << bits; }
// Returns the range of canonical values of that width.
inline Interval CanonicalRange(bool is_signed, uint8_t bits) {
  return is_signed ? Interval{-Modulus(bits) / 2, Modulus(bits) / 2 - 1} : Interval{0, Modulus(bits) - 1};
}

// Not thread-safe, together with its scopes. Borrows the program and the facts.
class BoundsProver {
 public:
  // No extent, group size or box count is 0, and the box lies within the extent.
  BoundsProver(const BoundsProgram& program, const BoundsFacts& facts, const InstanceBox& box)
      : program_(program), facts_(facts), box_(box), carried_(program.atoms.size()) {}

  // Called once per loop, from the first on: returns the interval of the loop's trip, which scopes use after AddTrip.
  // Scopes use the loop's carried values immediately.
  Interval NextTrip() {
    FindCarried(program_.loops[trips_.size()]);
    return {Exact(0), TripMax(trips_.size())};
  }
  void AddTrip(const Interval& trip) { trips_.push_back(trip); }
  void FindTrips() {
    while (trips_.size() < program_.loops.size()) {
      AddTrip(NextTrip());
    }
  }
  const std::vector<Interval>& trips() const { return trips_; }

  // Intervals of the atoms under some constraints.
  class Scope {
   public:
    Scope(const BoundsProver& prover, std::span<const uint32_t> context)
        : prover_(prover), atoms_(prover.program_.atoms.size()) {
      prover_.Spend(atoms_.size() / 8);
      for (const LoopTie& tie : prover_.loop_ties_) {
        Keep(tie.loop, tie.holds.terms, tie.holds.added, tie.loop->trip);
      }
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
    // Also uses constraints on the polynomial as a whole, where they tie several atoms together.
    Interval Of(const Polynomial& polynomial);
    Interval Of(const Reduced& terms, const ReducedTerm* except = nullptr);
    Interval OfTied(const Reduced& terms);
    // Returns the remainder of the sum modulo `divisor`, a power of two; nothing when it is not known.
    std::optional<Wide> Residue(const Reduced& terms, Wide divisor);
    // Calls visit(scope, terms) for each value of the first kEither atom in the sum, or once when there is none.
    template <typename Visit>
    void ForEachChoice(const Reduced& terms, Visit visit);
    // Reduces polynomial * sign - minus.
    Reduced Reduce(const Polynomial& polynomial, int sign = 1, const Polynomial& minus = {});
    void Refine(AtomId atom, const Interval& interval);
    // Turns a constraint into at most two conditions that together are equivalent to it in the whole scope; returns
    // false when too little is known about the forms of its values.
    bool Split(const Constraint& constraint, std::vector<NotNegative>* conditions);
    Truth Decide(const NotNegative& condition);
    Truth Decide(const Constraint& constraint);
    // Both return true when the sum, or the atom's value, certainly is 0 or a power of two.
    bool IsPower(const Reduced& terms);
    bool IsPower(AtomId atom);
    // Returns the interval that constraints and Refine give.
    Interval Refined(AtomId atom) const { return atoms_[atom.index].refined; }
    // Returns true when no instance reaches code where the constraints hold.
    bool is_impossible() const { return is_impossible_; }

   private:
    static constexpr int kPasses = 2;
    static constexpr size_t kTiesMax = 16;
    // A fact about several atoms, none of which it bounds alone.
    struct Tie {
      const void* by;  // The constraint, or the atom's operands, that the fact stems from; only compared.
      NotNegative holds;
      // When valid, the fact concerns that atom's value: it holds where the atom has a value, which is certain only
      // for sums that contain the atom. Code that an instance does not run implies nothing about the instance.
      AtomId of{};
    };

    Interval Evaluate(const Atom& atom);
    Interval Word(const Atom& atom) const;
    Interval Operation(const Atom& atom);
    Interval Either(const Atom& atom);
    void Apply(const Constraint& constraint);
    void Tighten(const Reduced& terms, Wide added);
    void Keep(const void* by, const Reduced& terms, Wide added, AtomId of = AtomId());
    void KeepQuotient(const Atom& quotient, Wide divisor);
    void KeepMasked(const Atom& masked, const Interval& canonical);
    bool IsPowerOperation(const Atom& atom);
    Interval By(const NotNegative& holds, const Reduced& terms);
    static void AddTo(Reduced* sum, const ReducedTerm& term);
    void AddTerms(const Polynomial& polynomial, Wide sign, Reduced* sum);

    struct Known {
      Interval interval;  // The interval evaluated at `age`.
      Interval refined;   // The interval from constraints.
      uint32_t age = 0;
      bool is_open = false;  // The atom is being evaluated, in this scope or an enclosing one.
    };
    const BoundsProver& prover_;
    std::vector<Known> atoms_;
    std::vector<Tie> ties_;
    uint32_t age_ = 1;
    bool is_impossible_ = false;
  };

  // Returns false when one use of the program has spent its steps: then nothing is known any more.
  bool Spend(size_t steps) const {
    steps_left_ -= static_cast<int64_t>(steps);
    return steps_left_ > 0;
  }

 private:
  // Counts evaluated atoms and terms. Without a limit, nested merges would take time exponential in their depth.
  static constexpr int64_t kStepsMax = 20'000;

  // A fact that holds in each iteration of a loop: the progress made, in terms of the step.
  struct LoopTie {
    const BoundsLoop* loop;
    NotNegative holds;
  };

  // The values of a kCarried atom in all iterations of its loop.
  struct CarriedValue {
    Interval range;
    bool is_power = false;  // 0 or a power of two.
  };

  void FindCarried(const BoundsLoop& loop);
  Interval RangeOf(const BoundsLoop& loop, size_t carried) const;
  Interval NextIn(const BoundsLoop& loop, size_t carried, const Interval& range) const;
  bool StaysPower(const BoundsLoop& loop, size_t carried);
  Exact TripMax(size_t loop) const;
  Exact TripMaxBy(const BoundsLoop& loop, const Constraint& goes_on, bool is_steady) const;
  void TieTrip(const BoundsLoop& loop, const Reduced& rest, Wide added, Wide slope) const;
  Exact TripMaxBy(const BoundsLoop& loop, const Polynomial& distance, uint8_t bits) const;
  static Interval MultiplesIn(Scope& scope, const Reduced& rest, Wide divisor);

  const BoundsProgram& program_;
  const BoundsFacts& facts_;
  const InstanceBox box_;
  std::vector<Interval> trips_;        // One for each loop so far.
  std::vector<CarriedValue> carried_;  // Indexed by AtomId.
  mutable std::vector<LoopTie> loop_ties_;
  mutable int64_t steps_left_ = kStepsMax;
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_BOUNDS_PROVER_H_
