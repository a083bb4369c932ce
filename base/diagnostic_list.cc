// SPDX-License-Identifier: Apache-2.0
#include "base/diagnostic_list.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace hpvm {

Diagnostics Shortened(const Diagnostics& diagnostics, size_t count_max, uint64_t* omitted) {
  std::map<std::tuple<Severity, std::string_view, std::optional<uint64_t>, std::string_view>, uint64_t> times;
  size_t errors = 0;
  for (const Diagnostic& found : diagnostics) {
    const bool is_new = ++times[{found.severity, found.place, found.offset, found.message}] == 1;
    errors += is_new && found.severity == Severity::kError ? 1 : 0;
  }
  size_t errors_left = std::min(errors, count_max), warnings_left = count_max - errors_left;
  Diagnostics listed;
  for (const Diagnostic& found : diagnostics) {
    const uint64_t count = std::exchange(times[{found.severity, found.place, found.offset, found.message}], 0);
    if (count == 0) {
      continue;
    }
    size_t& left = found.severity == Severity::kError ? errors_left : warnings_left;
    if (left == 0) {
      *omitted += count;
      continue;
    }
    --left;
    listed.push_back(found);
    if (count > 1) {
      listed.back().message += " (Found " + std::to_string(count) + " times.)";
    }
  }
  return listed;
}

}  // namespace hpvm
