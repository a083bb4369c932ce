// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_STATUS_STATUS_H_
#define HPVMD_CLIENT_STATUS_STATUS_H_

#include <optional>

#include "base/status.h"
#include "hpvm/v1/common.pb.h"

namespace grpc {
class Status;
}

namespace hpvm {

// The one place where gRPC's statuses become ours. Diagnostics that the message does not already hold are appended, one
// a line; the details stay with the status for DetailOf.
Status FromGrpc(const grpc::Status& status);
Status FromProto(const v1::Status& status);
// What the server added to a failure: node, job, when to try again. Nothing when it added nothing.
std::optional<v1::ErrorDetail> DetailOf(const Status& status);
std::optional<v1::ErrorDetail> DetailOf(const v1::Status& status);
// "place at byte N: message".
std::string ToText(const v1::Diagnostic& diagnostic);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_STATUS_STATUS_H_
