// SPDX-License-Identifier: Apache-2.0
// Faults in a tenant's input, collected so that one pass reports all of them.
#ifndef HPVMD_BASE_DIAGNOSTIC_H_
#define HPVMD_BASE_DIAGNOSTIC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm {

enum class Severity : uint8_t { kError, kWarning };

struct Diagnostic {
  Severity severity = Severity::kError;
  // Place of the fault: a JSON pointer for documents ("/nodes/blur/ports/0"), a name for modules ("module \"blur\"").
  std::string place;
  // Byte offset in the file, when known.
  std::optional<uint64_t> offset;
  // A full sentence that states the fault, the value and the limit.
  std::string message;
};

using Diagnostics = std::vector<Diagnostic>;

// "place: message" or "place at byte N: message".
std::string ToString(const Diagnostic& diagnostic);
// One diagnostic per line, errors and warnings in the order found.
std::string ToString(const Diagnostics& diagnostics);
bool HasErrors(const Diagnostics& diagnostics);
// Combines errors into one kInvalidArgument; returns OK when there is none.
Status ToStatus(const Diagnostics& diagnostics);

}  // namespace hpvm

#endif  // HPVMD_BASE_DIAGNOSTIC_H_
