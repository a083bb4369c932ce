// SPDX-License-Identifier: Apache-2.0
// Details that a failed status carries besides its message.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_DIAGNOSTICS_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_DIAGNOSTICS_H_

#include <optional>
#include <string>
#include <vector>

#include "hpvm/types.h"
#include "hpvm/v1/common.pb.h"

namespace hpvm {

// Returns every fault of the document, module or graph that the failure is about, errors and warnings, in the order
// found: the place (a JSON pointer such as "/nodes/blur/ports/0", or a module's name) and the message. Empty when the
// failure has no such list. Works on any copy of the status that keeps its payloads.
std::vector<v1::Diagnostic> DiagnosticsOf(const Status& status);

// Returns the details that the server added to a failure: its diagnostics, the node, the job, the retry delay.
// Nothing when it added none.
std::optional<v1::ErrorDetail> DetailOf(const Status& status);

// Formats as "place at byte N: message".
std::string ToText(const v1::Diagnostic& diagnostic);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_DIAGNOSTICS_H_
