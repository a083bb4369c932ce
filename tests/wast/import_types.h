// SPDX-License-Identifier: Apache-2.0
// Matching of external types: whether an object may be used for an import.
#ifndef HPVMD_TESTS_WAST_IMPORT_TYPES_H_
#define HPVMD_TESTS_WAST_IMPORT_TYPES_H_

#include "compiler/front/wasm/testing/link.h"

namespace hpvm::wast {

// The initial size in `actual` must be its present size.
bool MatchesImport(const wasm::ExternType& actual, const wasm::ExternType& import);

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_IMPORT_TYPES_H_
