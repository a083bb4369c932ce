// SPDX-License-Identifier: Apache-2.0
// How a call ended: a status and, when there is more to say, the details that travel beside it.
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
  Outcome(Status s) : status(std::move(s)) {}  // Implicit on purpose: most failures are a status alone.
  Outcome(Status s, v1::ErrorDetail d) : status(std::move(s)), detail(std::move(d)) {}
  bool ok() const { return status.ok(); }

  Status status;
  std::optional<v1::ErrorDetail> detail;
};

// A failure after which the same call may succeed; after so long, if that is known.
Outcome Later(Status status, Duration after = Duration{0});
// The same of what is kUnavailable and says nothing of it yet; others as they are.
Outcome LaterIfUnavailable(Outcome outcome);

// One that failed as google.rpc.Status on the wire, as far as it fits the metadata of a failed call: lines of the text
// and findings are left out from the end, warnings before errors. Null when all of it fits.
std::optional<v1::Status> ShortenedForMetadata(const Outcome& outcome);

// kInvalidArgument whose text lists the errors up to 3 KiB, with all of them in the detail.
Outcome RejectedBy(const v1::Diagnostics& diagnostics);
// google.rpc.Status on the wire.
v1::Status ToMessage(const Outcome& outcome);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_OUTCOME_H_
