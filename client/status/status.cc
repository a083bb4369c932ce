// SPDX-License-Identifier: Apache-2.0
#include "client/status/status.h"

#include "absl/strings/cord.h"
#include "grpcpp/support/status.h"

#include "base/diagnostic.h"

namespace hpvm {
namespace {

constexpr char kDetailUrl[] = "type.googleapis.com/hpvm.v1.ErrorDetail";

Status Make(int code, std::string message, const v1::Status& details) {
  const std::optional<v1::ErrorDetail> detail = DetailOf(details);
  if (detail.has_value()) {
    for (const v1::Diagnostic& item : detail->diagnostics().items()) {
      if (message.find(item.message()) == std::string::npos) {
        message += "\n" + ToText(item);
      }
    }
    if (detail->diagnostics().omitted() > 0) {
      message += "\n... and " + std::to_string(detail->diagnostics().omitted()) + " more.";
    }
  }
  Status made = MakeStatus(static_cast<absl::StatusCode>(code), message);
  if (detail.has_value()) {
    made.SetPayload(kDetailUrl, absl::Cord(detail->SerializeAsString()));
  }
  return made;
}

}  // namespace

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  v1::Status details;
  if (!details.ParseFromString(status.error_details())) {
    details.Clear();
  }
  // gRPC's own response for a method that the server does not have has an empty message.
  const bool is_unknown_method =
      status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty();
  return Make(
      static_cast<int>(status.error_code()),
      is_unknown_method ? "The server does not have this call; it is an older release." : status.error_message(),
      details);
}

Status FromProto(const v1::Status& status) {
  return status.code() == 0 ? absl::OkStatus() : Make(status.code(), status.message(), status);
}

std::optional<v1::ErrorDetail> DetailOf(const Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kDetailUrl);
  v1::ErrorDetail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return detail;
}

std::vector<v1::Diagnostic> DiagnosticsOf(const Status& status) {
  const std::optional<v1::ErrorDetail> detail = DetailOf(status);
  if (!detail.has_value()) {
    return {};
  }
  return {detail->diagnostics().items().begin(), detail->diagnostics().items().end()};
}

std::optional<v1::ErrorDetail> DetailOf(const v1::Status& status) {
  for (const google::protobuf::Any& any : status.details()) {
    v1::ErrorDetail detail;
    if (any.UnpackTo(&detail)) {
      return detail;
    }
  }
  return std::nullopt;
}

Status WithDiagnostics(Status status, const v1::Diagnostics& diagnostics) {
  v1::ErrorDetail detail;
  *detail.mutable_diagnostics() = diagnostics;
  if (!status.ok()) {
    status.SetPayload(kDetailUrl, absl::Cord(detail.SerializeAsString()));
  }
  return status;
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
