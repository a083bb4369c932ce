// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/outcome.h"

#include <algorithm>
#include <string>

#include "base/diagnostic_list.h"
#include "base/limits.h"
#include "proto/internal/protocol.h"

namespace hpvm::server {
namespace {
// Limit on the list of findings in the text of a status, which people read.
constexpr size_t kListedBytesMax = 3 * 1024;

// gRPC's libraries accept 8 KiB of metadata by default, counted with names and some bytes per entry. The text is
// percent-encoded, the details (which repeat the text) base64-encoded.
constexpr size_t kMetadataBytesMax = 6'656;
// Limits on the two parts when both together exceed kMetadataBytesMax.
constexpr size_t kEncodedTextBytesMax = 1536;
constexpr size_t kDetailsBytesMax = 3584;
constexpr char kShortened[] = "\nThe rest is too long for a failed call; set RequestOptions.errors_in_body to get it.";

size_t EncodedBytes(char c) { return c < 0x20 || c > 0x7e || c == '%' ? 3 : 1; }

// Cuts the text after a complete line where one fits, else after a complete character.
std::string CutText(const std::string& text, size_t encoded_max) {
  size_t bytes = 0, encoded = 0, line = 0;
  for (; bytes < text.size() && encoded + EncodedBytes(text[bytes]) <= encoded_max; ++bytes) {
    encoded += EncodedBytes(text[bytes]);
    line = text[bytes] == '\n' ? bytes : line;
  }
  if (bytes == text.size()) {
    return text;
  }
  while (bytes > 0 && (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80) {
    --bytes;
  }
  return line != 0 ? text.substr(0, line) : text.substr(0, bytes) + "...";
}

// Removes findings until the rest takes at most `bytes_max`; the first error stays, shortened.
void CutFindings(v1::ErrorDetail& detail, size_t bytes_max) {
  auto& items = *detail.mutable_diagnostics()->mutable_items();
  const auto drop = [&](v1::Diagnostic::Severity severity, int keep) {
    for (int i = items.size() - 1; i >= keep && detail.ByteSizeLong() > bytes_max; --i) {
      if (items[i].severity() == severity) {
        items.DeleteSubrange(i, 1);
        detail.mutable_diagnostics()->set_omitted(detail.diagnostics().omitted() + 1);
      }
    }
  };
  drop(v1::Diagnostic::SEVERITY_WARNING, 0);
  drop(v1::Diagnostic::SEVERITY_ERROR, 1);
  if (!items.empty() && detail.ByteSizeLong() > bytes_max) {
    for (std::string* text : {items[0].mutable_place(), items[0].mutable_message()}) {
      *text = CutText(*text, bytes_max / 4);
    }
  }
}
}  // namespace

Outcome Later(Status status, Duration after) {
  v1::ErrorDetail detail;
  detail.set_retryable(true);
  if (after > Duration{0}) {
    detail.set_retry_after_ns(static_cast<uint64_t>(after.count()));
  }
  return {std::move(status), std::move(detail)};
}

Outcome LaterIfUnavailable(Outcome outcome) {
  return absl::IsUnavailable(outcome.status) && !outcome.detail.has_value() ? Later(std::move(outcome.status))
                                                                            : outcome;
}

Outcome RejectedBy(const v1::Diagnostics& diagnostics) {
  std::string text;
  uint64_t unlisted = diagnostics.omitted();
  for (const Diagnostic& diagnostic : GetDiagnostics(diagnostics)) {
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
  *detail.mutable_diagnostics() = diagnostics;
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

std::optional<v1::Status> ShortenedForMetadata(const Outcome& outcome) {
  v1::Status message = ToMessage(outcome);
  size_t bytes = outcome.detail.has_value() ? (message.ByteSizeLong() + 2) / 3 * 4 : 0;
  for (const char c : message.message()) {
    bytes += EncodedBytes(c);
  }
  if (bytes <= kMetadataBytesMax) {
    return std::nullopt;
  }
  message.set_message(CutText(message.message(), kEncodedTextBytesMax) + kShortened);
  if (outcome.detail.has_value()) {
    v1::ErrorDetail detail = *outcome.detail;
    CutFindings(detail, kDetailsBytesMax - message.message().size() - 64);
    message.clear_details();
    message.add_details()->PackFrom(detail);
  }
  return message;
}

}  // namespace hpvm::server
