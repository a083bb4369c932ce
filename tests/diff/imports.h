// SPDX-License-Identifier: Apache-2.0
// Names and types of the functions of "hpvm" that programs call.
#ifndef HPVMD_TESTS_DIFF_IMPORTS_H_
#define HPVMD_TESTS_DIFF_IMPORTS_H_

#include <string_view>

#include "tests/diff/program.h"

namespace hpvm::diff {

struct ImportFacts {
  std::string_view name;
  Signature type;  // kI32 stands for the address type where `address` is set.
  bool address_param = false, address_result = false;
};

ImportFacts FactsOf(ImportId id);

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_IMPORTS_H_
