// SPDX-License-Identifier: Apache-2.0
// Names of the IR that folders use in nearly every line; the headers of such a folder import them (`using namespace
// ir::words`).
#ifndef HPVMD_COMPILER_IR_WORDS_H_
#define HPVMD_COMPILER_IR_WORDS_H_

#include "compiler/ir/ir.h"

namespace hpvm::ir::words {

using ir::Op;
using ir::Opcode;
using ir::OpId;
using ir::RegionId;
using ir::Space;
using ir::TrapCode;
using ir::Type;
using ir::ValueId;

}  // namespace hpvm::ir::words

#endif  // HPVMD_COMPILER_IR_WORDS_H_
