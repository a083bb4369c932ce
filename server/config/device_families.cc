// SPDX-License-Identifier: Apache-2.0
#include "server/config/device_families.h"

#include <algorithm>

namespace hpvm::server {
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
  std::vector<std::string> names = backends == "auto" ? std::vector<std::string>() : SplitNames(backends);
  for (const FamilyRow& row : kFamilyRows) {
    if (backends == "auto" && row.offer != Offer::kNone) {
      names.emplace_back(row.name);
    }
  }
  std::vector<std::string> families;
  for (const std::string& name : names) {
    const std::string_view family = FamilyOf(name);
    const FamilyRow* const row = FindFamilyRow(family);
    const std::string_view number = std::string_view(name).substr(std::min(name.size(), family.size() + 1));
    const bool is_named = row != nullptr && row->offer != Offer::kNone;
    if (!is_named || (name != family && (row->offer == Offer::kDriven ? !IsIndex(number) : number != "0"))) {
      return InvalidArgument("\"" + name + "\" is neither auto nor one of " + DeviceNameForms() + ", by commas.");
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

std::string DeviceNameForms() {
  std::string forms;
  for (const FamilyRow& row : kFamilyRows) {
    const std::string name(row.name);
    forms += row.offer == Offer::kNone ? "" : (forms.empty() ? "" : ", ") + name;
    forms += row.offer == Offer::kDriven ? ", " + name + ":N" : "";
  }
  return forms;
}

}  // namespace hpvm::server
