// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/work.h"

#include <algorithm>

#include "compiler/ir/bounds_prover.h"

namespace hpvm::ir {
namespace {

constexpr double kCountMax = 1e100;  // Limits counts, so that their products stay finite.
constexpr size_t kStepsMax = 1'000'000;

double Times(double a, double b) { return std::min(a * b, kCountMax); }

// Returns the instance in the middle of the extent, and of its group when groups are smaller than the extent.
InstanceBox MiddleOf(const BoundsFacts& facts) {
  InstanceBox box;
  for (int i = 0; i < 3; ++i) {
    const uint64_t middle = facts.extent[i] / 2;
    const uint64_t in_group = middle / facts.group[i] * facts.group[i] + facts.group[i] / 2;
    box.first[i] = facts.group[i] < facts.extent[i] && in_group < facts.extent[i] ? in_group : middle;
  }
  return box;
}

class Counter {
 public:
  Counter(const WorkProgram& program, const BoundsProgram& bounds, const BoundsFacts& facts)
      : program_(program),
        bounds_(bounds),
        prover_(bounds, facts, MiddleOf(facts)),
        all_(bounds, facts, {{0, 0, 0}, facts.extent}) {
    for (uint64_t extent : facts.extent) {
      instances_ = Times(instances_, static_cast<double>(extent));
    }
  }

  WorkCount Run() {
    count_.is_guess = program_.blocks.empty();
    for (size_t i = 0; i < bounds_.loops.size(); ++i) {
      repeats_.push_back(RepeatsOf(i));
    }
    all_.FindTrips();
    Scopes scopes{{prover_, {}}, {all_, {}}};
    for (const WorkBlock& block : program_.blocks) {
      const double times = Times(instances_, TimesOf(block, scopes));
      count_.operations = std::min(count_.operations + Times(block.operations, times), kCountMax);
      count_.bytes = std::min(count_.bytes + Times(block.bytes, times), kCountMax);
    }
    return count_;
  }

 private:
  struct Repeats {
    double backs = 0;  // Number of times that an iteration is followed by another.
    bool is_guess = false;
  };

  // Guesses when the loop's end depends on memory; a bound that is far too large is useless.
  Repeats RepeatsOf(size_t index) {
    constexpr Wide kBoundMax = Wide{1} << 16;
    const BoundsLoop& loop = bounds_.loops[index];
    const Exact last = prover_.NextTrip().hi();
    if (last && IsExact(loop, *last)) {
      prover_.AddTrip(Interval::Single(*last / 2));
      return {static_cast<double>(*last), false};
    }
    const Wide guess = last && *last <= kBoundMax ? *last / 2 : static_cast<Wide>(kGuessedTrips) - 1;
    prover_.AddTrip(Interval::Single(guess / 2));
    return {static_cast<double>(guess), true};
  }

  bool IsExact(const BoundsLoop& loop, Wide last) const {
    if (!loop.is_exact && !loop.ends.empty()) {
      return false;
    }
    BoundsProver::Scope before(prover_, {});
    before.Refine(loop.trip, {0, std::max<Wide>(last - 1, 0)});
    return last == 0 || std::ranges::all_of(loop.goes_on_when, [&](uint32_t constraint) {
             return before.Decide(bounds_.constraints[constraint]) == Truth::kYes;
           });
  }

  // Scopes of the instance in the middle, and of all instances.
  struct Scopes {
    BoundsProver::Scope middle, all;
  };

  // Returns how often one instance runs the block.
  double TimesOf(const WorkBlock& block, Scopes& scopes) {
    steps_ += (block.loops.size() + 1) * (block.conditions.size() + 1);
    if (steps_ > kStepsMax) {
      count_.is_guess = true;
      return block.share;
    }
    double times = block.share;
    for (uint32_t loop : block.loops) {
      times = Times(times, IterationsOf(program_.loops[loop], block));
    }
    for (uint32_t condition : block.conditions) {
      const Constraint& constraint = bounds_.constraints[condition];
      const Truth truth = scopes.middle.Decide(constraint);
      // A condition that fails in the middle may hold for some instance.
      const bool is_never = truth == Truth::kNo && scopes.all.Decide(constraint) == Truth::kNo;
      times *= is_never ? 0 : truth == Truth::kYes ? 1 : truth == Truth::kNo ? 1 / instances_ : 0.5;
    }
    return times;
  }

  double IterationsOf(const WorkLoop& loop, const WorkBlock& block) {
    if (loop.bounds_loop == WorkLoop::kUnknown) {
      count_.is_guess = true;
      return kGuessedTrips;
    }
    const Repeats& repeats = repeats_[loop.bounds_loop];
    count_.is_guess |= repeats.is_guess;
    // Code after the loop's continuation condition does not run in the last iteration.
    const std::vector<uint32_t>& goes_on = bounds_.loops[loop.bounds_loop].goes_on_when;
    const bool is_behind = std::ranges::any_of(
        block.conditions, [&](uint32_t condition) { return std::ranges::find(goes_on, condition) != goes_on.end(); });
    return repeats.backs + (is_behind ? 0 : 1);
  }

  const WorkProgram& program_;
  const BoundsProgram& bounds_;
  BoundsProver prover_;  // For the instance in the middle.
  BoundsProver all_;
  double instances_ = 1;
  size_t steps_ = 0;
  std::vector<Repeats> repeats_;
  WorkCount count_;
};

}  // namespace

WorkCount CountWork(const WorkProgram& program, const BoundsProgram& bounds, const BoundsFacts& facts) {
  BoundsFacts valid = facts;
  for (int i = 0; i < 3; ++i) {
    if (facts.extent[i] == 0) {
      return {};
    }
    valid.group[i] = std::max<uint64_t>(facts.group[i], 1);
  }
  return Counter(program, bounds, valid).Run();
}

}  // namespace hpvm::ir
