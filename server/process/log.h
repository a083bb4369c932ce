// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line per event on stderr, for people or as JSON.
//
//   LogInfo("Job ended", {{"tenant", tenant.name}, {"job", id}, {"state", "SUCCEEDED"}});
//
//   2026-01-02T03:04:05.678Z info Job ended tenant=local job=job-0123 state=SUCCEEDED
//   {"time":"2026-01-02T03:04:05.678Z","level":"info","message":"Job ended","tenant":"local","job":"job-0123",…}
//
// The text is the same for every event of its kind; details are fields, whose values cannot be mistaken for other
// fields: control characters are escaped, values with blanks or quotes are quoted, long ones are cut. Contents of a
// request other than names and ids (its bytes, keys, metadata) are never logged.
//
// After StartLog a thread of the log writes the lines. When stderr accepts nothing, up to 2,048 lines wait and then
// the oldest are dropped. More than 100 lines a second from one call site are suppressed, and their number is logged.
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

// Both are borrowed during the call. Keys are ours, in lower case, such as "tenant", "job", "node", "device",
// "trace", "error".
struct LogField {
  std::string_view key, value;
};
using LogFields = std::initializer_list<LogField>;
using LogPlace = std::source_location;

// Drops levels below `level` ("debug", "info", "warning", "error"; others mean "info"); `format` is "text" or "json".
// Starts the writing thread; a later call changes level and format. Before the first call, lines are written at once.
void StartLog(std::string_view level, std::string_view format = "text");
// Waits up to `within` for the logged lines to be written. Called by exit(), with a second.
void FlushLog(Duration within);

// Thread-safe; never blocks once StartLog was called.
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

// Logs how many lines of a call site were suppressed, once its second is over. Called periodically.
void SummariseLog();

struct LogCounts {
  uint64_t lines = 0;      // Logged.
  uint64_t limited = 0;    // Suppressed: too many from one call site.
  uint64_t overflown = 0;  // Dropped: stderr did not accept them.
};
LogCounts CountLog();

// Escapes control characters and bytes that are not UTF-8 as
// , \xHH; at most `bytes_max` of the input, then "…".
std::string EscapeForLog(std::string_view text, size_t bytes_max = 4096);

// Appends the same in quotes, as a JSON string.
void AppendJson(std::string& line, std::string_view text, size_t bytes_max);
// Formats "2026-11-26T18:16:49.123Z" with `digits` digits after the second.
std::string UtcText(int64_t unix_ns, int digits);

// Formats one line without its newline; `unix_ns` is the time.
std::string FormatLogLine(bool as_json, int64_t unix_ns, LogLevel level, std::string_view text, LogFields fields);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_LOG_H_
