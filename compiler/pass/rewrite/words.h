// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_PASS_REWRITE_WORDS_H_
#define HPVMD_COMPILER_PASS_REWRITE_WORDS_H_

#include "compiler/ir/words.h"

namespace hpvm::pass {

using namespace ir::words;

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REWRITE_WORDS_H_
