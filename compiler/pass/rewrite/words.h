// SPDX-License-Identifier: Apache-2.0
// The words of the IR that nearly every line of this room uses.
#ifndef HPVMD_COMPILER_PASS_REWRITE_WORDS_H_
#define HPVMD_COMPILER_PASS_REWRITE_WORDS_H_

#include "compiler/ir/ir.h"

namespace hpvm::pass {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Space;
using ir::Type;
using ir::ValueId;

}  // namespace hpvm::pass

#endif  // HPVMD_COMPILER_PASS_REWRITE_WORDS_H_
