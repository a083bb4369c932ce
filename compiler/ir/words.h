// SPDX-License-Identifier: Apache-2.0
// The words of the IR that nearly every line of a room that reads or writes it uses; such a room's own headers make
// them its words, too (`using namespace ir::words`).
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
