// SPDX-License-Identifier: Apache-2.0
#include "base/diagnostic.h"

namespace hpvm {

std::string ToString(const Diagnostic& diagnostic) {
  std::string text = diagnostic.place;
  if (diagnostic.offset.has_value()) {
    text += (text.empty() ? "at byte " : " at byte ") + std::to_string(*diagnostic.offset);
  }
  if (!text.empty()) {
    text += ": ";
  }
  if (diagnostic.severity == Severity::kWarning) {
    text += "warning: ";
  }
  return text + diagnostic.message;
}

std::string ToString(const Diagnostics& diagnostics) {
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (!text.empty()) {
      text += '\n';
    }
    text += ToString(diagnostic);
  }
  return text;
}

bool HasErrors(const Diagnostics& diagnostics) {
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.severity == Severity::kError) {
      return true;
    }
  }
  return false;
}

Status ToStatus(const Diagnostics& diagnostics) {
  return HasErrors(diagnostics) ? InvalidArgument(ToString(diagnostics)) : absl::OkStatus();
}

}  // namespace hpvm
