// SPDX-License-Identifier: Apache-2.0
#include "client/status.h"

#include "grpcpp/support/status.h"

#include "base/diagnostic.h"

namespace hpvm {
namespace {

void AppendDetails(const v1::Status& status, std::string* message) {
  for (const google::protobuf::Any& any : status.details()) {
    v1::ErrorDetail detail;
    if (!any.UnpackTo(&detail)) {
      continue;
    }
    for (const v1::Diagnostic& item : detail.diagnostics().items()) {
      if (message->find(item.message()) == std::string::npos) {
        *message += "\n" + ToText(item);
      }
    }
    if (detail.diagnostics().omitted() > 0) {
      *message += "\n... and " + std::to_string(detail.diagnostics().omitted()) + " more.";
    }
  }
}

}  // namespace

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  std::string message = status.error_message();
  v1::Status details;
  if (details.ParseFromString(status.error_details())) {
    AppendDetails(details, &message);
  }
  return MakeStatus(static_cast<absl::StatusCode>(status.error_code()), message);
}

Status FromProto(const v1::Status& status) {
  if (status.code() == 0) {
    return absl::OkStatus();
  }
  std::string message = status.message();
  AppendDetails(status, &message);
  return MakeStatus(static_cast<absl::StatusCode>(status.code()), message);
}

std::string ToText(const v1::Diagnostic& diagnostic) {
  Diagnostic own;
  own.severity = diagnostic.severity() == v1::Diagnostic::SEVERITY_WARNING ? Severity::kWarning : Severity::kError;
  own.place = diagnostic.place();
  if (diagnostic.has_offset()) {
    own.offset = diagnostic.offset();
  }
  own.message = diagnostic.message();
  return ToString(own);
}

}  // namespace hpvm
