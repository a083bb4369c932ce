// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line an event on stderr, control characters escaped, so that a tenant's text cannot forge
// lines.
#ifndef HPVMD_SERVER_LOG_H_
#define HPVMD_SERVER_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace hpvm {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Levels below `level` are dropped. "debug", "info", "warning", "error"; others mean "info". Before the first Log.
void StartLog(std::string_view level);
// Any thread. Ids go into the text as "job=job-0123…" so that they can be searched for.
void Log(LogLevel level, std::string_view text);
inline void LogInfo(std::string_view text) { Log(LogLevel::kInfo, text); }
inline void LogWarning(std::string_view text) { Log(LogLevel::kWarning, text); }
inline void LogError(std::string_view text) { Log(LogLevel::kError, text); }

// Control characters and bytes that are not UTF-8 as \n, \xHH; at most `bytes_max` of the input, then "…".
std::string EscapeForLog(std::string_view text, size_t bytes_max = 4096);

}  // namespace hpvm

#endif  // HPVMD_SERVER_LOG_H_
