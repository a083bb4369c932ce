// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_TESTING_STEPS_H_
#define HPVMD_SERVER_TESTING_STEPS_H_

#include "server/core/core.h"

namespace hpvm::server::testing {

// Performs all steps at once.
inline Status Finish(const JobReader::Steps& step) {
  StatusOr<bool> is_done = step();
  while (is_done.ok() && !*is_done) {
    is_done = step();
  }
  return is_done.status();
}

}  // namespace hpvm::server::testing

#endif  // HPVMD_SERVER_TESTING_STEPS_H_
