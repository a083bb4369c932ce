// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_STATUS_STATUS_H_
#define HPVMD_CLIENT_STATUS_STATUS_H_

#include "base/status.h"
#include "hpvm/diagnostics.h"

namespace grpc {
class Status;
}

namespace hpvm {

// Converts gRPC's statuses to ours; the only place that does. Diagnostics that the message does not contain are
// appended, one per line; the details stay with the status for DetailOf.
Status FromGrpc(const grpc::Status& status);
Status FromProto(const v1::Status& status);
std::optional<v1::ErrorDetail> DetailOf(const v1::Status& status);
// Attaches a list to a failure, for DiagnosticsOf; its message is unchanged. OK stays OK.
Status WithDiagnostics(Status status, const v1::Diagnostics& diagnostics);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_STATUS_STATUS_H_
