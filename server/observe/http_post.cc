// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_post.h"

#include <curl/curl.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <mutex>

namespace hpvm::server {
namespace {

constexpr size_t kAnswerBytesMax = 64 * 1024;

struct EasyDelete {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiDelete {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// Header and body are only counted; too many bytes end the transfer.
size_t CountBytes(char*, size_t size, size_t count, void* total) {
  auto& bytes = *static_cast<size_t*>(total);
  bytes += size * count;
  return bytes <= kAnswerBytesMax ? size * count : 0;
}

Status ToStatus(CURLcode code, const char* detail) {
  if (code == CURLE_OK) {
    return absl::OkStatus();
  }
  const std::string text = std::string("The collector does not accept spans: ") + curl_easy_strerror(code) +
                           (*detail == 0 ? "" : std::string(" (") + detail + ")") + ".";
  return code == CURLE_OPERATION_TIMEDOUT ? DeadlineExceeded(text) : Unavailable(text);
}

// Runs the transfer of `easy` to its end.
Status Perform(CURLM* multi, CURL* easy, const char* detail, Time deadline, int stop) {
  while (true) {
    int running = 0;
    if (const CURLMcode code = curl_multi_perform(multi, &running); code != CURLM_OK) {
      return Unavailable(std::string("libcurl fails: ") + curl_multi_strerror(code) + ".");
    }
    if (running == 0) {
      int left = 0;
      const CURLMsg* message = curl_multi_info_read(multi, &left);
      return message == nullptr ? Unavailable("The transfer ended without an outcome.")
                                : ToStatus(message->data.result, detail);
    }
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - RealClock().Now()).count();
    if (ms <= 0) {
      return DeadlineExceeded("The collector does not answer in time.");
    }
    curl_waitfd extra{stop, CURL_WAIT_POLLIN, 0};
    curl_multi_poll(multi, &extra, stop >= 0 ? 1 : 0, static_cast<int>(std::min<int64_t>(ms, 60'000)), nullptr);
    pollfd stopped{stop, POLLIN, 0};
    if (stop >= 0 && poll(&stopped, 1, 0) > 0) {
      return Cancelled("The export was cancelled.");
    }
  }
}

std::string UrlOf(const HttpTarget& target) {
  const bool is_ipv6 = target.host.find(':') != std::string::npos;
  return "http://" + (is_ipv6 ? "[" + target.host + "]" : target.host) + ":" + target.port + target.path;
}

}  // namespace

StatusOr<HttpAnswer> HttpPost(const HttpTarget& target, std::string_view content_type, std::string_view body,
                              Time deadline, int stop) {
  static std::once_flag initialised;
  std::call_once(initialised, [] { curl_global_init(CURL_GLOBAL_NOTHING); });
  const std::unique_ptr<CURLM, MultiDelete> multi(curl_multi_init());
  const std::unique_ptr<CURL, EasyDelete> easy(curl_easy_init());
  curl_slist* fields = curl_slist_append(nullptr, ("Content-Type: " + std::string(content_type)).c_str());
  fields = curl_slist_append(fields, "Expect:");
  const std::unique_ptr<curl_slist, ListDelete> owned(fields);
  if (multi == nullptr || easy == nullptr || fields == nullptr) {
    return ResourceExhausted("There is no memory for a request to the collector.");
  }
  CURL* handle = easy.get();
  char detail[CURL_ERROR_SIZE] = "";
  size_t header_bytes = 0, body_bytes = 0;
  const std::string url = UrlOf(target);
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http");
  curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "hpvmd");
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, fields);
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, CountBytes);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &header_bytes);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, CountBytes);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &body_bytes);
  curl_multi_add_handle(multi.get(), handle);
  const Status status = Perform(multi.get(), handle, detail, deadline, stop);
  HttpAnswer answer;
  if (status.ok()) {
    long code = 0;  // libcurl's type.
    curl_off_t retry_after_s = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &retry_after_s);
    answer.code = static_cast<int>(code);
    answer.retry_after_s = static_cast<int>(std::clamp<curl_off_t>(retry_after_s, 0, 3'600));
  }
  curl_multi_remove_handle(multi.get(), handle);
  if (!status.ok()) {
    return status;
  }
  return answer;
}

}  // namespace hpvm::server
