// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_IR_TEXT_PARSE_FUNCTION_H_
#define HPVMD_COMPILER_IR_TEXT_PARSE_FUNCTION_H_

#include "base/status.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/text/token_reader.h"

namespace hpvm::ir {

// Reads one function of the text form, from its parameters to the closing brace. The caller reads the name.
Status ParseFunction(TokenReader& reader, Function& function);

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_TEXT_PARSE_FUNCTION_H_
