// SPDX-License-Identifier: Apache-2.0
// Numbers on the command line that stand for inputs of rank 0.
#ifndef HPVMD_CLIENT_CTL_TEXT_SCALAR_WORD_H_
#define HPVMD_CLIENT_CTL_TEXT_SCALAR_WORD_H_

#include <string>

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm::ctl {

// Returns true for "2.5", "-3", "1e-3" or "true". A file of such a name is written "./2.5".
bool IsScalarWord(const std::string& text);

// Makes a tensor of rank 0. kInvalidArgument when the type cannot hold the number, or (f16, bf16) cannot be given as
// a number.
StatusOr<Tensor> ScalarTensor(ElementType type, const std::string& text);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_SCALAR_WORD_H_
