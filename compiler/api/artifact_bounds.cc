// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/artifact_bounds.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/limits.h"

namespace hpvm {
namespace {

using ir::Atom;
using ir::AtomId;
using ir::Polynomial;

constexpr size_t kOpcodes = 0
#define HPVM_OP(name, text, effects, family) +1
#include "compiler/ir/opcodes.def"
#undef HPVM_OP
    ;

bool IsBits(uint8_t bits) { return bits == 32 || bits == 64; }

class Validator {
 public:
  Validator(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params)
      : program_(program), params_(params) {}

  // Returns the reason why the program is refused; empty if it is valid.
  std::string Run() {
    if (program_.atoms.size() > limits::kBoundsAtomsMax || program_.constraints.size() > limits::kBoundsItemsMax ||
        program_.loops.size() > limits::kBoundsItemsMax || program_.accesses.size() > limits::kBoundsItemsMax ||
        program_.by_words.size() > limits::kBoundsItemsMax || program_.others.size() > limits::kBoundsItemsMax) {
      return "has more parts than the limit";
    }
    // Constraints come first, because choices need the reach of each constraint.
    for (const ir::Constraint& constraint : program_.constraints) {
      reach_.push_back(std::max(ReachOf(constraint.less), ReachOf(constraint.more)));
      if (!IsBits(constraint.bits) || reach_.back() > program_.atoms.size()) {
        return "has a malformed constraint (" + std::to_string(reach_.size() - 1) + ")";
      }
    }
    for (size_t i = 0; i < program_.atoms.size(); ++i) {
      if (!IsValid(program_.atoms[i], i)) {
        return "has a malformed atom (" + std::to_string(i) + ")";
      }
    }
    if (!std::ranges::all_of(program_.loops, [&](const auto& loop) { return IsValid(loop); })) {
      return "has a malformed loop";
    }
    const auto is_valid = [&](const ir::BoundsAccess& access) { return IsValid(access); };
    if (!std::ranges::all_of(program_.accesses, is_valid) || !std::ranges::all_of(program_.by_words, is_valid) ||
        !std::ranges::all_of(program_.others, is_valid)) {
      return "has a malformed access";
    }
    return "";
  }

 private:
  // Returns one more than the largest atom index in the polynomial; SIZE_MAX if it has too many terms or powers.
  static size_t ReachOf(const Polynomial& polynomial) {
    size_t reach = polynomial.size() > ir::kTermsMax ? SIZE_MAX : 0;
    for (const ir::Term& term : polynomial) {
      reach = term.atoms.size() > limits::kBoundsDegreeMax ? SIZE_MAX : reach;
      for (AtomId atom : term.atoms) {
        reach = std::max(reach, size_t{atom.index} + 1);
      }
    }
    return reach;
  }
  bool HasAtoms(const Polynomial& polynomial) const { return ReachOf(polynomial) <= program_.atoms.size(); }
  bool AreConstraints(const std::vector<uint32_t>& context) const {
    return context.size() <= limits::kBoundsItemsMax &&
           std::ranges::all_of(context, [&](uint32_t c) { return c < program_.constraints.size(); });
  }

  bool IsValid(const Atom& atom, size_t number) const {
    const auto is_earlier = [&](const Polynomial& operand) { return ReachOf(operand) <= number; };
    if (!IsBits(atom.bits) || !atom.range.is_sound() || static_cast<size_t>(atom.code) >= kOpcodes ||
        !std::ranges::all_of(atom.operands, is_earlier)) {
      return false;
    }
    switch (atom.kind) {
      case Atom::Kind::kInstanceId:
      case Atom::Kind::kGroupId:
      case Atom::Kind::kLocalId:
      case Atom::Kind::kInstanceCount:
      case Atom::Kind::kGroupSize:
        return atom.index < 3;
      case Atom::Kind::kScalar:
        return atom.index < params_.size() && !params_[atom.index].is_buffer;
      case Atom::Kind::kBufferBytes:
        return atom.index < params_.size() && params_[atom.index].is_buffer;
      case Atom::Kind::kWord:
        return atom.index < params_.size() && params_[atom.index].is_buffer && !params_[atom.index].is_writable;
      case Atom::Kind::kTrip:
      case Atom::Kind::kCarried:
        return atom.index < program_.loops.size();
      case Atom::Kind::kRange:
        return true;
      case Atom::Kind::kOperation:
        return atom.operands.size() == 1 || atom.operands.size() == 2;
      case Atom::Kind::kEither:
        return IsChoice(atom, number);
    }
    return false;
  }
  // Evaluation of a constraint that named the choice itself, or a later atom, would not terminate.
  bool IsChoice(const Atom& atom, size_t number) const {
    if (atom.operands.empty() || atom.operands.size() > limits::kBoundsChoicesMax ||
        atom.contexts.size() != atom.operands.size()) {
      return false;
    }
    return std::ranges::all_of(atom.contexts, [&](const std::vector<uint32_t>& context) {
      return AreConstraints(context) && std::ranges::all_of(context, [&](uint32_t c) { return reach_[c] <= number; });
    });
  }
  bool IsValid(const ir::BoundsAccess& access) const {
    const bool has_place = access.param == ir::BoundsAccess::kGroupMemory ||
                           (access.param < params_.size() && params_[access.param].is_buffer);
    return has_place && access.width <= access.reach && HasAtoms(access.offset) && AreConstraints(access.context) &&
           AreConstraints(access.happens_when) && access.loops.size() <= limits::kBoundsItemsMax &&
           std::ranges::all_of(access.loops, [&](uint32_t loop) { return loop < program_.loops.size(); });
  }
  bool IsValid(const ir::BoundsLoop& loop) const {
    return loop.trip.index < program_.atoms.size() && AreConstraints(loop.context) &&
           AreConstraints(loop.goes_on_when) && loop.carried.size() <= limits::kBoundsItemsMax &&
           std::ranges::all_of(loop.carried,
                               [&](const ir::Carried& carried) {
                                 return carried.atom.index < program_.atoms.size() &&
                                        program_.atoms[carried.atom.index].kind == Atom::Kind::kCarried &&
                                        HasAtoms(carried.first);
                               }) &&
           loop.ends.size() <= limits::kBoundsItemsMax && std::ranges::all_of(loop.ends, [&](const ir::LoopEnd& end) {
             return AreConstraints(end.goes_on) && AreConstraints(end.steady) &&
                    end.next.size() == loop.carried.size() &&
                    std::ranges::all_of(end.next, [&](const Polynomial& p) { return HasAtoms(p); }) &&
                    end.distances.size() <= limits::kBoundsItemsMax &&
                    std::ranges::all_of(end.distances, [&](const ir::Distance& distance) {
                      return IsBits(distance.bits) && HasAtoms(distance.polynomial);
                    });
           });
  }

  const ir::BoundsProgram& program_;
  const std::span<const ir::KernelParam> params_;
  std::vector<size_t> reach_;  // Indexed by constraint.
};

bool AreBelow(const std::vector<uint32_t>& indices, size_t count) {
  return indices.size() <= limits::kBoundsItemsMax &&
         std::ranges::all_of(indices, [&](uint32_t index) { return index < count; });
}

// The limit far exceeds the amount in the largest module.
bool IsAmount(double value) { return std::isfinite(value) && value >= 0 && value <= 1e12; }

}  // namespace

Status ValidateBounds(const ir::BoundsProgram& program, std::span<const ir::KernelParam> params) {
  const std::string fault = Validator(program, params).Run();
  if (!fault.empty()) {
    return InvalidArgument("The artifact's bounds program " + fault + ".");
  }
  return absl::OkStatus();
}

Status ValidateWork(const ir::WorkProgram& program, const ir::BoundsProgram& bounds) {
  if (program.blocks.size() > limits::kBoundsItemsMax || program.loops.size() > limits::kBoundsItemsMax) {
    return InvalidArgument("The artifact's work program has more parts than the limit.");
  }
  const auto is_valid = [&](const ir::WorkBlock& block) {
    return IsAmount(block.operations) && IsAmount(block.bytes) && IsAmount(block.share) && block.share <= 1 &&
           AreBelow(block.conditions, bounds.constraints.size()) && AreBelow(block.loops, program.loops.size());
  };
  if (!std::ranges::all_of(program.blocks, is_valid)) {
    return InvalidArgument("The artifact's work program has a malformed block.");
  }
  const auto is_known = [&](const ir::WorkLoop& loop) {
    return loop.bounds_loop == ir::WorkLoop::kUnknown || loop.bounds_loop < bounds.loops.size();
  };
  if (!std::ranges::all_of(program.loops, is_known)) {
    return InvalidArgument("The artifact's work program has a malformed loop.");
  }
  return absl::OkStatus();
}

}  // namespace hpvm
