// SPDX-License-Identifier: Apache-2.0
// Arrays of jobs: their elements, and the use of an element's index in its request.
#ifndef HPVMD_SERVER_JOBS_ROWS_ARRAYS_H_
#define HPVMD_SERVER_JOBS_ROWS_ARRAYS_H_

#include <cstdint>

#include "base/status.h"
#include "hpvm/v1/graph.pb.h"
#include "hpvm/v1/job.pb.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

// Returns the number of elements; kInvalidArgument for an empty or overflowing range, kResourceExhausted beyond
// `count_max`.
StatusOr<uint64_t> CountElements(const v1::JobArray& array, uint64_t count_max);
// Returns the index of the element at `position`, which must be below CountElements.
uint64_t IndexOf(const v1::JobArray& array, uint64_t position);

// Returns the index as a scalar. kInvalidArgument when `type` is no integer type or too small for it.
StatusOr<v1::Tensor> IndexTensor(v1::ElementType type, uint64_t index);

// Checks that every `array_index` input is a scalar integer port that holds the last index, and that the symbol is one
// of the graph's that the request leaves open. Requests without an array must have neither.
Status CheckArrayUse(const v1::SubmitRequest& request, const v1::GraphSummary& summary);

// Replaces array_index and the symbol by the element's index; the request is then one job's. `type_of` returns the
// element type of the input at a position.
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

// Turns an array's request into that of one element, as a job of its own.
Status TakeElement(StoredRequest& stored, uint64_t index);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_ROWS_ARRAYS_H_
