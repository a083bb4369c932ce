// SPDX-License-Identifier: Apache-2.0
// A screen of what uses the machine.
#ifndef HPVMD_CLIENT_CTL_MACHINE_TOP_TEXT_H_
#define HPVMD_CLIENT_CTL_MACHINE_TOP_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "hpvm/v1/operations.pb.h"

namespace hpvm::ctl {

struct ScreenSize {
  size_t width = 80;  // Columns.
  size_t height = 0;  // Lines; 0: as many as there are.
};

// Lines of at most `size.width` columns and at most `size.height` lines. What happened between the two answers is shown
// as rates; without an earlier one, since the server started. Columns that do not fit are left out, the least important
// first; lines that do not fit are counted.
std::vector<std::string> TopLines(const v1::GetOverviewResponse* before, const v1::GetOverviewResponse& now,
                                  const ScreenSize& size);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_MACHINE_TOP_TEXT_H_
