// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace hpvm {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  // Never destroyed: threads may log while the process ends.
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("hpvmd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

// Bytes of the UTF-8 character at `text`'s start; 0 when it is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t length = byte(0) < 0x80                      ? 1
                        : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                        : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                        : byte(0) >= 0xc2 && byte(0) < 0xe0 ? 2
                                                            : 0;
  if (length == 0 || length > text.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  // U+0080 to U+009F are control characters too.
  return length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : length;
}

}  // namespace

void StartLog(std::string_view level) {
  Logger().set_level(level == "debug"     ? spdlog::level::debug
                     : level == "warning" ? spdlog::level::warn
                     : level == "error"   ? spdlog::level::err
                                          : spdlog::level::info);
}

void Log(LogLevel level, std::string_view text) {
  spdlog::logger& logger = Logger();
  if (logger.should_log(ToSpdlog(level))) {
    logger.log(ToSpdlog(level), "{}", EscapeForLog(text));
  }
}

std::string EscapeForLog(std::string_view text, size_t bytes_max) {
  constexpr char kDigits[] = "0123456789abcdef";
  const bool cut = text.size() > bytes_max;
  text = text.substr(0, bytes_max);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<uint8_t>(text[0]);
    size_t length = Utf8Length(text);
    if (c == '\n') {
      out += "\\n";
      length = 1;
    } else if (length == 0 || c < 0x20 || c == 0x7f) {
      out += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
      length = 1;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return cut ? out + "…" : out;
}

}  // namespace hpvm
