// SPDX-License-Identifier: Apache-2.0
// Whether something may stand for an import: the matching of external types.
#ifndef HPVMD_TESTS_WAST_IMPORT_TYPES_H_
#define HPVMD_TESTS_WAST_IMPORT_TYPES_H_

#include "compiler/front/wasm/testing/link.h"

namespace hpvm::wast {

// `actual` has its present size as the initial one.
bool MatchesImport(const wasm::ExternType& actual, const wasm::ExternType& import);

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_IMPORT_TYPES_H_
