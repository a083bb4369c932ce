// SPDX-License-Identifier: Apache-2.0
// Outcome is the result of a call: a status and, when there is more to report, the details that are sent beside it.
#ifndef HPVMD_SERVER_CORE_STATE_OUTCOME_H_
#define HPVMD_SERVER_CORE_STATE_OUTCOME_H_

#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/status.h"
#include "hpvm/v1/common.pb.h"

namespace hpvm::server {

struct Outcome {
  Outcome() = default;
  Outcome(Status s) : status(std::move(s)) {}  // Implicit on purpose: most failures are only a status.
  Outcome(Status s, v1::ErrorDetail d) : status(std::move(s)), detail(std::move(d)) {}
  bool ok() const { return status.ok(); }

  Status status;
  std::optional<v1::ErrorDetail> detail;
};

// Returns a failure after which the same call may succeed, after the given time if it is known.
Outcome Later(Status status, Duration after = Duration{0});
// Applies Later to a kUnavailable outcome without details; returns other outcomes unchanged.
Outcome LaterIfUnavailable(Outcome outcome);

// Returns the failed outcome as google.rpc.Status on the wire, shortened to fit the metadata of a failed call: lines
// of the text and findings are left out from the end, warnings before errors. Returns null when all of it fits.
std::optional<v1::Status> ShortenedForMetadata(const Outcome& outcome);

// Returns kInvalidArgument with a text that lists the errors, up to 3 KiB, and all of them in the detail.
Outcome RejectedBy(const v1::Diagnostics& diagnostics);
// Returns google.rpc.Status on the wire.
v1::Status ToMessage(const Outcome& outcome);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_OUTCOME_H_
