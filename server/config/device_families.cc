// SPDX-License-Identifier: Apache-2.0
#include "server/config/device_families.h"

#include <algorithm>

namespace hpvm {
namespace {

bool IsIndex(std::string_view text) {
  return !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::vector<std::string> SplitNames(std::string_view list) {
  std::vector<std::string> names;
  while (true) {
    const size_t comma = list.find(',');
    std::string_view name = list.substr(0, comma);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    names.emplace_back(name);
    if (comma == std::string_view::npos) {
      return names;
    }
    list.remove_prefix(comma + 1);
  }
}

StatusOr<std::vector<std::string>> FamiliesOf(std::string_view backends) {
  const std::vector<std::string> names = backends == "auto"
                                             ? std::vector<std::string>(kDeviceFamilies.begin(), kDeviceFamilies.end())
                                             : SplitNames(backends);
  std::vector<std::string> families;
  for (const std::string& name : names) {
    const std::string_view family = FamilyOf(name);
    const bool is_known = std::find(kDeviceFamilies.begin(), kDeviceFamilies.end(), family) != kDeviceFamilies.end();
    const bool is_whole = name == family || name == "cpu:0";
    if (!is_known || (!is_whole && (family == "cpu" || !IsIndex(name.substr(family.size() + 1))))) {
      return InvalidArgument("\"" + name +
                             "\" is neither auto nor one of cpu, opencl, opencl:N, vulkan, vulkan:N, by commas.");
    }
    if (std::find(families.begin(), families.end(), family) == families.end()) {
      families.emplace_back(family);
    }
  }
  if (families.empty() || families.front() != "cpu") {
    return InvalidArgument("The list (\"" + std::string(backends) +
                           "\") does not begin with cpu, which prepares and moves every graph's data.");
  }
  return families;
}

}  // namespace hpvm
