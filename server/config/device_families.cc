// SPDX-License-Identifier: Apache-2.0
#include "server/config/device_families.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace hpvm::server {
namespace {

constexpr size_t kNameBytesMax = 80;

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
      return InvalidArgument("\"" + name + "\" is neither auto nor one of " + DeviceNameForms() +
                             ", separated by commas.");
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

std::string UuidOf(std::string_view text) {
  if (text.starts_with("GPU-")) {
    text.remove_prefix(4);
  }
  std::string digits;
  for (const char c : text) {
    if (c == '-') {
      continue;
    }
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) {
      return "";
    }
    digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const bool is_any = digits.find_first_not_of('0') != std::string::npos;
  return digits.size() == 32 && is_any ? digits : "";
}

std::string BusOf(std::string_view text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int end = 0;
  const std::string copy(text.substr(0, kNameBytesMax));
  if (std::sscanf(copy.c_str(), "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 ||
      static_cast<size_t>(end) != copy.size()) {
    return "";
  }
  char written[32];
  std::snprintf(written, sizeof(written), "%04x:%02x:%02x.%x", domain, bus, device, function);
  return written;
}

Status CheckDeviceNames(std::string_view list) {
  for (const std::string& name : list.empty() ? std::vector<std::string>() : SplitNames(list)) {
    const std::string_view family = FamilyOf(name);
    const FamilyRow* const row = FindFamilyRow(family);
    const bool is_device = row != nullptr && row->offer == Offer::kDriven &&
                           (name == family || IsIndex(std::string_view(name).substr(family.size() + 1)));
    if (!is_device && UuidOf(name).empty() && BusOf(name).empty()) {
      return InvalidArgument("\"" + name.substr(0, kNameBytesMax) +
                             "\" is neither a device family with drivers (opencl, vulkan) nor an id (vulkan:0), a UUID "
                             "(GPU-5fd4f8a1-...) or a bus address (0000:3b:00.0). The CPU cannot be left out.");
    }
  }
  return absl::OkStatus();
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
