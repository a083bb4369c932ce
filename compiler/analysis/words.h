// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_ANALYSIS_WORDS_H_
#define HPVMD_COMPILER_ANALYSIS_WORDS_H_

#include "compiler/ir/words.h"

namespace hpvm::analysis {

using namespace ir::words;

}  // namespace hpvm::analysis

#endif  // HPVMD_COMPILER_ANALYSIS_WORDS_H_
