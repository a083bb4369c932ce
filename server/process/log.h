// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line an event on stderr, for people or as JSON.
//
//   LogInfo("Job ended", {{"tenant", tenant.name}, {"job", id}, {"state", "SUCCEEDED"}});
//
//   2026-01-02T03:04:05.678Z info Job ended tenant=local job=job-0123 state=SUCCEEDED
//   {"time":"2026-01-02T03:04:05.678Z","level":"info","message":"Job ended","tenant":"local","job":"job-0123",…}
//
// The text is the same for every event of its kind; what differs goes into fields, whose values cannot be mistaken for
// other fields: control characters are escaped, values with blanks or quotes are quoted, long ones are cut. What a
// request carries beyond names and ids (its bytes, keys, metadata) is never logged.
//
// After StartLog a line is written by a thread of its own. When stderr takes nothing, 2,048 lines wait and then the
// oldest are dropped; of more than 100 lines a second from one place the rest is left out, and their number is logged.
#ifndef HPVMD_SERVER_PROCESS_LOG_H_
#define HPVMD_SERVER_PROCESS_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm::server {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Both are borrowed during the call. Keys are ours: lower case, e.g. "tenant", "job", "node", "device", "trace",
// "error".
struct LogField {
  std::string_view key, value;
};
using LogFields = std::initializer_list<LogField>;
using LogPlace = std::source_location;

// Levels below `level` are dropped ("debug", "info", "warning", "error"; others mean "info"); `format` is "text" or
// "json". Starts the writing thread; a later call changes level and format. Before it, lines are written at once.
void StartLog(std::string_view level, std::string_view format = "text");
// Waits up to `within` for what was logged to be written. Called by exit(), with a second.
void FlushLog(Duration within);

// Any thread; never blocks once StartLog was called.
void Log(LogLevel level, std::string_view text, LogFields fields = {}, LogPlace place = LogPlace::current());
inline void LogDebug(std::string_view text, LogFields fields = {}, LogPlace place = LogPlace::current()) {
  Log(LogLevel::kDebug, text, fields, place);
}
inline void LogInfo(std::string_view text, LogFields fields = {}, LogPlace place = LogPlace::current()) {
  Log(LogLevel::kInfo, text, fields, place);
}
inline void LogWarning(std::string_view text, LogFields fields = {}, LogPlace place = LogPlace::current()) {
  Log(LogLevel::kWarning, text, fields, place);
}
inline void LogError(std::string_view text, LogFields fields = {}, LogPlace place = LogPlace::current()) {
  Log(LogLevel::kError, text, fields, place);
}

// Logs how many lines of a place were left out, once its second is over. Called now and then.
void SummariseLog();

struct LogCounts {
  uint64_t lines = 0;      // Logged.
  uint64_t limited = 0;    // Left out: too many from one place.
  uint64_t overflown = 0;  // Dropped: stderr did not take them.
};
LogCounts CountLog();

// Control characters and bytes that are not UTF-8 as \n, \xHH; at most `bytes_max` of the input, then "…".
std::string EscapeForLog(std::string_view text, size_t bytes_max = 4096);

// The same between quotes, as a string of JSON.
void AppendJson(std::string& line, std::string_view text, size_t bytes_max);
// "2026-11-26T18:16:49.123Z" with so many digits behind the second.
std::string UtcText(int64_t unix_ns, int digits);

// One line without its end; `unix_ns` is the time.
std::string FormatLogLine(bool as_json, int64_t unix_ns, LogLevel level, std::string_view text, LogFields fields);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_LOG_H_
