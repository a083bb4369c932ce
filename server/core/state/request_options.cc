// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/request_options.h"

#include <algorithm>
#include <string>

namespace hpvm::server {
namespace {

constexpr int32_t kPriorityMax = 100;
constexpr int kLabelsMax = 32;
constexpr size_t kLabelKeyBytesMax = 63, kTextBytesMax = 255;

bool IsLabelKey(const std::string& key) {
  return !key.empty() && key.size() <= kLabelKeyBytesMax && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '/' || c == '-';
  });
}

}  // namespace

Status CheckRequestOptions(const v1::RequestOptions& options, bool key_honoured) {
  const std::string& key = options.idempotency_key();
  if (!key.empty()) {
    if (!key_honoured) {
      return Unimplemented("This method does not take an idempotency key yet; Submit does.");
    }
    const bool printable = std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; });
    if (key.size() > kTextBytesMax || !printable) {
      return InvalidArgument("The idempotency key (" + std::to_string(key.size()) +
                             " bytes) is not 1 to 255 bytes of printable ASCII without spaces.");
    }
  }
  if (options.priority() < -kPriorityMax || options.priority() > kPriorityMax) {
    return InvalidArgument("The priority (" + std::to_string(options.priority()) + ") is not from -100 to 100.");
  }
  if (options.labels_size() > kLabelsMax) {
    return InvalidArgument("The request has " + std::to_string(options.labels_size()) + " labels; the limit is 32.");
  }
  for (const auto& [name, value] : options.labels()) {
    if (!IsLabelKey(name)) {
      return InvalidArgument("The label key \"" + name.substr(0, 80) + "\" is not 1 to 63 bytes of [A-Za-z0-9._/-].");
    }
    if (value.size() > kTextBytesMax) {
      return InvalidArgument("The label \"" + name + "\" has a value of " + std::to_string(value.size()) +
                             " bytes; the limit is 255.");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
