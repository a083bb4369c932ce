// SPDX-License-Identifier: Apache-2.0
// Tells whether this run of a test program audits proofs (compiler/api/audit.h): with HPVMD_TEST_AUDIT=1 in its
// environment, or in a build that always does. For test programs only.
#ifndef HPVMD_TESTS_AUDIT_H_
#define HPVMD_TESTS_AUDIT_H_

#include <cstdlib>
#include <string_view>

#include "compiler/api/audit.h"

namespace hpvm {

inline bool TestsAuditProofs() {
  const char* asked = std::getenv("HPVMD_TEST_AUDIT");
  return kAuditsProofs || (asked != nullptr && std::string_view(asked) == "1");
}

}  // namespace hpvm

#endif  // HPVMD_TESTS_AUDIT_H_
