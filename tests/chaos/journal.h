// SPDX-License-Identifier: Apache-2.0
// What a client of the chaos test did and saw, a line an event: "op\tname=value\tname=value...". Times are nanoseconds
// of the machine's monotonic clock, which all processes share. The same file is the client's memory: a key is on disk
// before the request that uses it is sent, so that a client that was killed finds out what became of it.
#ifndef HPVMD_TESTS_CHAOS_JOURNAL_H_
#define HPVMD_TESTS_CHAOS_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::chaos {

// Any thread.
class Journal {
 public:
  // Appends to `path`.
  static StatusOr<Journal> Open(const std::string& path);

  // `fields` is "name=value\tname=value" (see Clean). Synced when it returns if `durable`.
  void Write(std::string_view op, std::string_view fields, bool durable = false);

  using Fields = std::map<std::string, std::string>;
  // Every whole line of the file, in order. The last one is cut short when a client was killed while writing it.
  static Status Read(const std::string& path,
                     const std::function<void(const std::string& op, const Fields& fields)>& each);

 private:
  explicit Journal(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// Without tabs and ends of lines.
std::string Clean(std::string_view text);
// Nanoseconds of the monotonic clock.
int64_t NowNs();

}  // namespace hpvm::chaos

#endif  // HPVMD_TESTS_CHAOS_JOURNAL_H_
