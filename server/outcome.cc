// SPDX-License-Identifier: Apache-2.0
#include "server/outcome.h"

#include <algorithm>
#include <string>

#include "base/limits.h"

namespace hpvm {
namespace {
// Metadata of a gRPC answer is limited to 8 KiB by default; the text travels there too, percent-encoded.
constexpr size_t kListedBytesMax = 3 * 1024;
}  // namespace

v1::Diagnostics ToMessage(const Diagnostics& diagnostics, uint64_t omitted) {
  v1::Diagnostics message;
  const size_t count = std::min<size_t>(diagnostics.size(), limits::kDiagnosticsMax);
  for (size_t i = 0; i < count; ++i) {
    const Diagnostic& from = diagnostics[i];
    v1::Diagnostic& to = *message.add_items();
    to.set_severity(from.severity == Severity::kError ? v1::Diagnostic::SEVERITY_ERROR
                                                      : v1::Diagnostic::SEVERITY_WARNING);
    to.set_place(from.place);
    to.set_message(from.message);
    if (from.offset.has_value()) {
      to.set_offset(*from.offset);
    }
  }
  message.set_omitted(omitted + diagnostics.size() - count);
  return message;
}

Outcome RejectedBy(const Diagnostics& diagnostics, uint64_t omitted) {
  std::string text;
  uint64_t unlisted = omitted;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.severity != Severity::kError) {
      continue;
    }
    const std::string line = ToString(diagnostic);
    if (!text.empty() && text.size() + line.size() > kListedBytesMax) {
      ++unlisted;
      continue;
    }
    text += (text.empty() ? "" : "\n") + line.substr(0, kListedBytesMax);
  }
  if (unlisted > 0) {
    text += "\nAnd " + std::to_string(unlisted) + " more.";
  }
  v1::ErrorDetail detail;
  *detail.mutable_diagnostics() = ToMessage(diagnostics, omitted);
  return {InvalidArgument(text), std::move(detail)};
}

v1::Status ToMessage(const Outcome& outcome) {
  v1::Status message;
  message.set_code(static_cast<int>(outcome.status.code()));
  message.set_message(Message(outcome.status));
  if (outcome.detail.has_value()) {
    message.add_details()->PackFrom(*outcome.detail);
  }
  return message;
}

}  // namespace hpvm
