// SPDX-License-Identifier: Apache-2.0
#include "scheduler/residency.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "scheduler/residency_segments.h"
#include "scheduler/residency_walk.h"

namespace hpvm::scheduler {
namespace {

constexpr int kLooksMax = 5;

// A plan that is not yet cut into segments.
struct Draft {
  Residency residency;
  uint32_t body_begin = 0, body_end = 0;
  uint64_t restored_bytes = 0;

  // What an iteration moves.
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

// `*natural`: where values were when the body ended; also of a walk that failed at the very end.
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

// Everything carried waits in host memory, which can overflow.
CarryLayout InHostMemory(const ResidencyInput& input, const CarryLayout& natural) {
  CarryLayout layout = natural;
  layout.inputs.clear();
  layout.reserved.clear();
  for (size_t k = 0; k < layout.carried.size(); ++k) {
    const graph::FlatValueId output = input.flat.outputs[input.carries[k].output];
    if (!layout.carried[k].empty()) {
      layout.carried[k] = {{.space = kHostSpace, .ranges = RangeSet({0, input.flat.values[output.index].bytes})}};
    }
  }
  return layout;
}

// Looks at the body with the layout that it leaves behind, until one look leaves what it began with: then nothing need
// be moved between two iterations. The best look counts.
StatusOr<Draft> PlanIterations(const ResidencyInput& input, uint32_t* culprit) {
  CarryLayout natural;
  HPVMD_RETURN_IF_ERROR(Look(input, {}, &natural, culprit).status());
  const CarryLayout first = natural;
  CarryLayout layout = natural;
  std::optional<Draft> best;
  Status failure = absl::OkStatus();
  bool is_in_host_memory = false;
  for (int look = 0; look < kLooksMax; ++look) {
    StatusOr<Draft> draft = Look(input, layout, &natural, culprit);
    if (draft.ok()) {
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
    if (!absl::IsResourceExhausted(failure) || is_in_host_memory) {
      break;
    }
    if (natural.reserved != layout.reserved && !natural.reserved.empty()) {
      layout.reserved = natural.reserved;  // It went through, and what it hands on did not fit beside the rest.
    } else if (!layout.inputs.empty()) {
      layout.inputs.clear();
      layout.reserved.clear();
    } else if (!best) {
      layout = InHostMemory(input, first);
      is_in_host_memory = true;
    } else {
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
