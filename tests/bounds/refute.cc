// SPDX-License-Identifier: Apache-2.0
#include "tests/bounds/refute.h"

#include <algorithm>

namespace hpvm::bounds {
namespace {

constexpr uint64_t kStepsMax = 1'500;

std::string Text(__int128 value) {
  const bool is_negative = value < 0;
  std::string digits;
  for (auto left = static_cast<unsigned __int128>(is_negative ? -value : value); left > 0 || digits.empty();
       left /= 10) {
    digits += static_cast<char>('0' + static_cast<int>(left % 10));
  }
  std::reverse(digits.begin(), digits.end());
  return (is_negative ? "-" : "") + digits;
}

std::string Text(const Claim& claim) {
  if (claim.is_never) {
    return "that no instance gets there";
  }
  return "offsets in [" + (claim.lo ? Text(*claim.lo) : "?") + ", " + (claim.hi ? Text(*claim.hi) : "?") + "]" +
         (claim.is_inside ? ", inside" : "");
}

// Returns true when some number equal to `offset` modulo `modulus` lies in the interval.
bool Contains(const Claim& claim, uint64_t offset, unsigned __int128 modulus) {
  if (!claim.lo || !claim.hi) {
    return true;  // Going up or down far enough always meets it.
  }
  const auto size = static_cast<__int128>(modulus);
  __int128 above = (static_cast<__int128>(offset) - *claim.lo) % size;
  above += above < 0 ? size : 0;
  return *claim.lo + above <= *claim.hi;
}

}  // namespace

Refuter::Refuter(const ir::Module& module, uint64_t seed) : module_(module), evaluator_(module), random_(seed) {
  for (const ir::Op& op : module.function(module.entry).ops) {
    if (op.code == ir::Opcode::kConst) {
      constants_.push_back(op.imm);
    }
  }
}

// Returns a number in [0, below), adversarial ones as often as others.
uint64_t Refuter::Number(uint64_t below) {
  const uint64_t power = uint64_t{1} << (random_() % 64);
  const uint64_t numbers[] = {0, below - 1, below / 2, power - 1, power, power + 1, random_(), random_()};
  const uint64_t number = numbers[random_() % 8];
  return number < below ? number : number % below;
}

std::array<uint64_t, 3> Refuter::Pick(const Situation& situation, uint32_t number) {
  std::array<uint64_t, 3> instance{};
  for (int d = 0; d < 3; ++d) {
    const uint64_t extent = situation.extent[d], last_group = (extent - 1) / situation.group[d] * situation.group[d];
    // The corners of the launch, then those of its groups.
    instance[d] = number < 2    ? (number == 0 ? 0 : extent - 1)
                  : number < 10 ? ((number - 2) >> d & 1 ? extent - 1 : 0)
                  : number < 12 ? (number == 10     ? last_group
                                   : last_group > 0 ? last_group - 1
                                                    : 0)
                                : Number(extent);
  }
  return instance;
}

uint64_t Refuter::Word() {
  const uint64_t power = uint64_t{1} << (random_() % 64);
  const auto near = [&](uint64_t value) { return value + random_() % 3 - 1; };
  switch (random_() % 8) {
    case 0:
      return near(0);
    case 1:
      return near(power);
    case 2:
      return near(uint64_t{0} - power);
    case 3:
      return constants_.empty() ? random_() : near(constants_[random_() % constants_.size()]);
    case 4:
      return situation_->params.empty() ? random_() : near(situation_->params[random_() % situation_->params.size()]);
    default:
      return random_() >> (random_() % 2 * (random_() % 64));
  }
}

std::optional<std::string> Refuter::Compare(const Reached& reached, const Claim& claim) const {
  const unsigned __int128 modulus = static_cast<unsigned __int128>(1) << (module_.is_memory64 ? 64 : 32);
  const bool is_right =
      !claim.is_never && (!claim.is_inside || reached.is_inside) && Contains(claim, reached.offset, modulus);
  if (is_right) {
    return std::nullopt;
  }
  return "operation " + std::to_string(claim.op.index) + " reaches offset " + std::to_string(reached.offset) + " of " +
         std::to_string(reached.bytes) + " bytes; claimed were " + Text(claim);
}

std::optional<std::string> Refuter::Refute(const Situation& situation, const std::vector<Claim>& claims,
                                           uint32_t instances) {
  situation_ = &situation;
  by_op_.assign(module_.function(module_.entry).ops.size(), nullptr);
  for (const Claim& claim : claims) {
    by_op_[claim.op.index] = &claim;
  }
  std::optional<std::string> refuted;
  const Evaluator::Oracle oracle = [&] { return Word(); };
  const Evaluator::Visitor visitor = [&](const Reached& reached) {
    const Claim* claim = by_op_[reached.op.index];
    if (claim != nullptr && !refuted) {
      ++accesses_;
      refuted = Compare(reached, *claim);
    }
  };
  for (uint32_t i = 0; i < instances && !refuted; ++i) {
    const std::array<uint64_t, 3> instance = Pick(situation, i);
    evaluator_.Run(situation, instance, kStepsMax, oracle, visitor);
    if (refuted) {
      *refuted = "Instance (" + std::to_string(instance[0]) + ", " + std::to_string(instance[1]) + ", " +
                 std::to_string(instance[2]) + "): " + *refuted;
    }
  }
  return refuted;
}

}  // namespace hpvm::bounds
