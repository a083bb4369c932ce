// SPDX-License-Identifier: Apache-2.0
// Pages of the objects that clients refer to by id. They are in the order of ids, which are random. The page token is
// the last id, so it reveals nothing that its page does not.
#ifndef HPVMD_SERVER_CORE_STATE_HANDLE_PAGE_H_
#define HPVMD_SERVER_CORE_STATE_HANDLE_PAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/limits.h"
#include "base/status.h"
#include "server/config/config.h"

namespace hpvm::server {

inline constexpr uint32_t kPageMax = 1'000, kPageDefault = 100;
// Limit on the bytes of a page, well below a message's limit, because labels may be long.
inline constexpr size_t kPageBytesMax = 2 * limits::kMiB;

inline StatusOr<size_t> PageSize(uint32_t wanted) {
  if (wanted > kPageMax) {
    return InvalidArgument("The page size (" + std::to_string(wanted) + ") is larger than the limit (" +
                           std::to_string(kPageMax) + ").");
  }
  return wanted == 0 ? kPageDefault : wanted;
}

// Returns an error unless `token` is empty or an id of the form of `example`: ids differ only in their random part.
inline Status CheckToken(std::string_view token, std::string_view example) {
  const size_t digits = example.rfind('-') + 1;
  const bool is_id = token.size() == example.size() && token.substr(0, digits) == example.substr(0, digits);
  return token.empty() || is_id
             ? absl::OkStatus()
             : InvalidArgument("The page token is not one that this server gave; begin with the first page.");
}

inline size_t PageBytesMax(const Config& config) {
  return std::min<size_t>(kPageBytesMax, config.limits_message_bytes_max / 2);
}

// Adds `message` to the page. Returns false when the page is full, after setting its token.
template <typename Message, typename Response>
bool AddToPage(Message message, size_t page, size_t bytes_max, size_t* bytes, const std::string& last,
               google::protobuf::RepeatedPtrField<Message>* items, Response* response) {
  *bytes += message.ByteSizeLong();
  if (static_cast<size_t>(items->size()) == page || (*bytes > bytes_max && !items->empty())) {
    response->set_next_page_token(last);
    return false;
  }
  *items->Add() = std::move(message);
  return true;
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_HANDLE_PAGE_H_
