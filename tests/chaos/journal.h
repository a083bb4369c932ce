// SPDX-License-Identifier: Apache-2.0
// Journal records what a client of the chaos test did and saw, one line per event: "op\tname=value\tname=value...".
// Times are nanoseconds of the machine's monotonic clock, which all processes share. The file is also the client's
// memory: a key is on disk before the request that uses it is sent, so that a restarted client finds out the outcome.
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

// Thread-safe.
class Journal {
 public:
  // Appends to `path`.
  static StatusOr<Journal> Open(const std::string& path);

  // `fields` is "name=value\tname=value" (see Clean). With `durable` it is synced on return.
  void Write(std::string_view op, std::string_view fields, bool durable = false);

  using Fields = std::map<std::string, std::string>;
  // Passes every whole line of the file, in order. The last line is partial when a client was killed while writing
  // it.
  static Status Read(const std::string& path,
                     const std::function<void(const std::string& op, const Fields& fields)>& each);

 private:
  explicit Journal(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

// Removes tabs and newlines.
std::string Clean(std::string_view text);
// Returns nanoseconds of the monotonic clock.
int64_t NowNs();

}  // namespace hpvm::chaos

#endif  // HPVMD_TESTS_CHAOS_JOURNAL_H_
