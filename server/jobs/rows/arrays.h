// SPDX-License-Identifier: Apache-2.0
// Arrays of jobs: which elements there are, and what an element's index becomes in its request.
#ifndef HPVMD_SERVER_JOBS_ROWS_ARRAYS_H_
#define HPVMD_SERVER_JOBS_ROWS_ARRAYS_H_

#include <cstdint>

#include "base/status.h"
#include "hpvm/v1/graph.pb.h"
#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

// How many elements; kInvalidArgument for an empty or overflowing range, kResourceExhausted beyond `count_max`.
StatusOr<uint64_t> CountElements(const v1::JobArray& array, uint64_t count_max);
// Of the element at `position`, which is below CountElements.
uint64_t IndexOf(const v1::JobArray& array, uint64_t position);

// The index as a scalar. kInvalidArgument when `type` is no integer type or too small for it.
StatusOr<v1::Tensor> IndexTensor(v1::ElementType type, uint64_t index);

// Whether every `array_index` input is a scalar integer port that holds the last index, and the symbol one of the graph
// that the request leaves open. Requests without an array must have none of these.
Status CheckArrayUse(const v1::SubmitRequest& request, const v1::GraphSummary& summary);

// Puts the element's index in place of array_index and of the symbol; the request is one job's then. `type_of` answers
// the element type of the input at a position.
template <typename TypeOf>
Status FillIndex(v1::SubmitRequest& request, uint64_t index, TypeOf type_of) {
  for (int i = 0; i < request.inputs_size(); ++i) {
    if (request.inputs(i).array_index()) {
      HPVMD_ASSIGN_OR_RETURN(*request.mutable_inputs(i)->mutable_tensor(), IndexTensor(type_of(i), index));
    }
  }
  if (!request.array().symbol().empty()) {
    (*request.mutable_symbols())[request.array().symbol()] = static_cast<int64_t>(index);
  }
  request.clear_array();
  return absl::OkStatus();
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_ARRAYS_H_
