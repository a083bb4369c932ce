// SPDX-License-Identifier: Apache-2.0
// The module "spectest", from which the specification's tests import.
#ifndef HPVMD_TESTS_WAST_SPECTEST_H_
#define HPVMD_TESTS_WAST_SPECTEST_H_

#include "base/status.h"
#include "tests/wast/store.h"

namespace hpvm::wast {

// Registers the module: globals of 666 and 666.6, a table of 10 to 20 functions, a memory of 1 to 2 pages and a
// shared one, and functions that print nothing.
Status AddSpectest(Store& store);

}  // namespace hpvm::wast

#endif  // HPVMD_TESTS_WAST_SPECTEST_H_
