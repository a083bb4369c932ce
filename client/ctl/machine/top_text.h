// SPDX-License-Identifier: Apache-2.0
// Text of a screen that shows what uses the machine.
#ifndef HPVMD_CLIENT_CTL_MACHINE_TOP_TEXT_H_
#define HPVMD_CLIENT_CTL_MACHINE_TOP_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "hpvm/v1/operations.pb.h"

namespace hpvm::ctl {

struct ScreenSize {
  size_t width = 80;  // Number of columns.
  size_t height = 0;  // Number of lines; unlimited when 0.
};

// Returns lines of at most `size.width` columns, at most `size.height` of them. Activity between the two responses is
// shown as rates; without an earlier response, rates since the server started. Columns that do not fit are left out,
// the least important first; lines that do not fit are counted.
std::vector<std::string> TopLines(const v1::GetOverviewResponse* before, const v1::GetOverviewResponse& now,
                                  const ScreenSize& size);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_MACHINE_TOP_TEXT_H_
