// SPDX-License-Identifier: Apache-2.0
// What a failure holds besides its text.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_DIAGNOSTICS_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_DIAGNOSTICS_H_

#include <optional>
#include <string>
#include <vector>

#include "hpvm/types.h"
#include "hpvm/v1/common.pb.h"

namespace hpvm {

// Every fault of a document, module or graph that the failure is about, errors and warnings, in the order found: where
// (a JSON pointer such as "/nodes/blur/ports/0", or a module's name) and what. Empty when the failure has no such list.
// The status may have gone through any number of hands that keep its payloads.
std::vector<v1::Diagnostic> DiagnosticsOf(const Status& status);

// What the server added to a failure: its diagnostics, the node, the job, when to try again. Nothing when it added
// nothing.
std::optional<v1::ErrorDetail> DetailOf(const Status& status);

// "place at byte N: message".
std::string ToText(const v1::Diagnostic& diagnostic);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_DIAGNOSTICS_H_
