// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency/residency.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/residency/residency_segments.h"
#include "scheduler/residency/residency_walk.h"

namespace hpvm::scheduler {
namespace {

// Limits of how often the body of an iteration is planned: in total, and successfully.
constexpr int kLooksMax = 16;
constexpr int kFitsMax = 4;

// A plan before it is cut into segments.
struct Draft {
  Residency residency;
  uint32_t body_begin = 0, body_end = 0;
  uint64_t restored_bytes = 0;

  // Bytes moved by an iteration.
  uint64_t Traffic() const {
    return std::accumulate(residency.moved_bytes.begin(), residency.moved_bytes.end(), restored_bytes);
  }
};

Residency Cut(const ResidencyInput& input, Draft draft) {
  Residency residency = std::move(draft.residency);
  const auto steps = static_cast<uint32_t>(residency.steps.size());
  residency.prologue = CutSegments(input, 0, draft.body_begin, residency);
  residency.body = CutSegments(input, draft.body_begin, draft.body_end - draft.body_begin, residency);
  residency.epilogue = CutSegments(input, draft.body_end, steps - draft.body_end, residency);
  return residency;
}

// `*natural` receives the locations of values at the end of the body, also when the walk failed at the very end.
StatusOr<Draft> Look(const ResidencyInput& input, const CarryLayout& layout, CarryLayout* natural, uint32_t* culprit) {
  ResidencyWalk walk(input, layout);
  StatusOr<Residency> residency = walk.Run(culprit);
  *natural = walk.natural_layout();
  HPVMD_RETURN_IF_ERROR(residency.status());
  return Draft{.residency = *std::move(residency),
               .body_begin = walk.body_begin(),
               .body_end = walk.body_end(),
               .restored_bytes = walk.restored_bytes()};
}

// Moves the larger half of the values carried elsewhere to host memory; returns false when all are there already.
bool MoveToHost(const ResidencyInput& input, CarryLayout& layout) {
  std::vector<std::pair<uint64_t, size_t>> elsewhere;  // Bytes and carry.
  uint64_t total = 0;
  for (size_t k = 0; k < layout.carried.size(); ++k) {
    const std::vector<CarryLayout::Piece>& pieces = layout.carried[k];
    const uint64_t bytes = input.flat.values[input.flat.outputs[input.carries[k].output].index].bytes;
    if (std::any_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.space != kHostSpace; })) {
      elsewhere.push_back({bytes, k});
      total += bytes;
    }
  }
  std::sort(elsewhere.rbegin(), elsewhere.rend());
  uint64_t moved = 0;
  for (const auto& [bytes, k] : elsewhere) {
    if (moved > 0 && moved >= total / 2) {
      break;
    }
    layout.carried[k] = {{.space = kHostSpace, .ranges = RangeSet({0, bytes})}};
    moved += std::max<uint64_t>(bytes, 1);
  }
  return !elsewhere.empty();
}

// Plans the body repeatedly with the layout that the previous plan left behind, until a plan ends with the layout it
// began with: then nothing need be moved between iterations. Returns the best of these plans.
StatusOr<Draft> PlanIterations(const ResidencyInput& input, uint32_t* culprit) {
  CarryLayout natural;
  HPVMD_RETURN_IF_ERROR(Look(input, {}, &natural, culprit).status());
  CarryLayout layout = natural;
  std::optional<Draft> best;
  Status failure = absl::OkStatus();
  int fits = 0;
  for (int look = 0; look < kLooksMax && fits < kFitsMax; ++look) {
    StatusOr<Draft> draft = Look(input, layout, &natural, culprit);
    if (draft.ok()) {
      ++fits;
      const bool is_settled = draft->restored_bytes == 0;
      const bool is_crowded = draft->residency.evictions > 0 && !layout.inputs.empty();
      if (!best || draft->Traffic() < best->Traffic()) {
        best = *std::move(draft);
      }
      if (is_settled && !is_crowded) {
        break;
      }
      natural.inputs = is_crowded ? std::vector<CarryLayout::Resident>() : layout.inputs;
      layout = natural;
      continue;
    }
    failure = draft.status();
    if (!absl::IsResourceExhausted(failure) || best) {
      break;
    }
    if (natural.reserved != layout.reserved && !natural.reserved.empty()) {
      // The plan succeeded, but the values that it hands on did not fit beside the rest.
      layout.reserved = natural.reserved;
      continue;
    }
    // Drop inputs first, because they can be transferred again.
    const bool has_inputs = !layout.inputs.empty();
    layout.inputs.clear();
    layout.reserved.clear();
    if (!has_inputs && !MoveToHost(input, layout)) {
      break;
    }
  }
  if (!best) {
    return failure;
  }
  return *std::move(best);
}

}  // namespace

StatusOr<Residency> PlanResidency(const ResidencyInput& input, uint32_t* culprit) {
  if (!input.carries.empty()) {
    HPVMD_ASSIGN_OR_RETURN(Draft draft, PlanIterations(input, culprit));
    return Cut(input, std::move(draft));
  }
  CarryLayout natural;
  HPVMD_ASSIGN_OR_RETURN(Draft draft, Look(input, {}, &natural, culprit));
  return Cut(input, std::move(draft));
}

}  // namespace hpvm::scheduler
