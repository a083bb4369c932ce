// SPDX-License-Identifier: Apache-2.0
#include "server/process/log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/time.h"

#include "base/bytes.h"
#include "base/text_marks.h"
#include "server/process/log_limit.h"

namespace hpvm::server {
namespace {

constexpr size_t kLinesWaitingMax = 2'048;
constexpr size_t kTextBytesMax = 4'096, kValueBytesMax = 1'024;

// Returns the length in bytes of the first character of `text`; 0 when it is invalid or not printable. U+0080 to
// U+009F are control characters too.
size_t ShownBytes(std::string_view text) {
  const size_t length = Utf8Bytes(text);
  const bool is_control = length == 2 && text[0] == '\xc2' && static_cast<uint8_t>(text[1]) < 0xa0;
  return is_control || MarkAt(text).bytes != 0 ? 0 : length;
}

// Appends the output of EscapeForLog, which is printable characters and backslashes; in quotes when its borders would
// be ambiguous.
void AppendValue(std::string& line, std::string_view value) {
  const std::string escaped = EscapeForLog(value, kValueBytesMax);
  if (!escaped.empty() && escaped.find_first_of(" \"=\\") == std::string::npos) {
    line += escaped;
    return;
  }
  line += '"';
  for (const char c : escaped) {
    if (c == '"') {
      line += '\\';
    }
    line += c;
  }
  line += '"';
}

constexpr std::string_view kLevelNames[] = {"debug", "info", "warning", "error"};

// Writes to the descriptor and counts; a write may hang its thread, but no other.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  uint64_t written() const { return written_.load(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line(message.payload.data(), message.payload.size());
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {
      const ssize_t count = write(STDERR_FILENO, rest.data(), rest.size());
      if (count < 0 && errno != EINTR) {
        break;  // There is nobody to report it to.
      }
      rest.remove_prefix(count < 0 ? 0 : static_cast<size_t>(count));
    }
    written_.fetch_add(1);
  }
  void flush_() override {}

 private:
  std::atomic<uint64_t> written_{0};
};

class Writer {
 public:
  void Start(std::string_view level, std::string_view format) {
    const auto* found = std::find(std::begin(kLevelNames), std::end(kLevelNames), level);
    level_ = found == std::end(kLevelNames) ? LogLevel::kInfo : static_cast<LogLevel>(found - std::begin(kLevelNames));
    as_json_ = format == "json";
    std::lock_guard lock(mutex_);
    if (pool_ == nullptr) {
      pool_ = std::make_shared<spdlog::details::thread_pool>(kLinesWaitingMax, 1);
      logger_ =
          std::make_shared<spdlog::async_logger>("hpvmd", sink_, pool_, spdlog::async_overflow_policy::overrun_oldest);
      std::atexit([] { FlushLog(std::chrono::seconds(1)); });
    }
  }

  bool Wants(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }

  void Take(LogLevel level, std::string_view text, LogFields fields, const LogPlace& place) {
    {
      std::lock_guard lock(mutex_);
      if (!limit_.Admit({place.file_name(), place.line()}, RealClock().Now())) {
        ++limited_;
        return;
      }
    }
    Put(FormatLogLine(as_json_, RealClock().WallNs(), level, text, fields));
  }

  void Summarise(bool all) {
    std::vector<LogLimit::Summary> summaries;
    {
      std::lock_guard lock(mutex_);
      summaries = limit_.Take(RealClock().Now(), all);
    }
    for (const LogLimit::Summary& summary : summaries) {
      Put(FormatLogLine(
          as_json_, RealClock().WallNs(), LogLevel::kWarning, "Log lines from one place in the code were left out",
          {{"place", summary.file + ":" + std::to_string(summary.line)}, {"count", std::to_string(summary.left_out)}}));
    }
  }

  void Flush(Duration within) {
    Summarise(/*all=*/true);
    const Time end = RealClock().Now() + within;
    while (sink_->written() + Overflown() < lines_.load() && RealClock().Now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  LogCounts Count() {
    const uint64_t overflown = Overflown();
    std::lock_guard lock(mutex_);
    return {lines_.load(), limited_, overflown};
  }

 private:
  void Put(std::string line) {
    std::shared_ptr<spdlog::logger> logger;  // Shared because the first StartLog may come while others log.
    {
      std::lock_guard lock(mutex_);
      logger = logger_;
    }
    lines_.fetch_add(1);
    logger->log(spdlog::level::critical, spdlog::string_view_t(line));
  }
  uint64_t Overflown() {
    std::lock_guard lock(mutex_);
    return pool_ == nullptr ? 0 : pool_->overrun_counter();
  }

  std::atomic<LogLevel> level_{LogLevel::kInfo};
  std::atomic<bool> as_json_{false};
  std::atomic<uint64_t> lines_{0};
  std::mutex mutex_;  // Guards the following members.
  LogLimit limit_;
  uint64_t limited_ = 0;
  // spdlog requires shared ownership.
  const std::shared_ptr<StderrSink> sink_ = std::make_shared<StderrSink>();
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::shared_ptr<spdlog::logger> logger_ = std::make_shared<spdlog::logger>("hpvmd", sink_);
};

// Never destroyed: threads may log while the process ends, and the log's own may hang in a write.
Writer& TheWriter() {
  static auto* writer = new Writer();
  return *writer;
}

}  // namespace

void StartLog(std::string_view level, std::string_view format) { TheWriter().Start(level, format); }

void FlushLog(Duration within) { TheWriter().Flush(within); }

void SummariseLog() { TheWriter().Summarise(/*all=*/false); }

LogCounts CountLog() { return TheWriter().Count(); }

void Log(LogLevel level, std::string_view text, LogFields fields, LogPlace place) {
  if (Writer& writer = TheWriter(); writer.Wants(level)) {
    writer.Take(level, text, fields, place);
  }
}

void AppendJson(std::string& line, std::string_view text, size_t bytes_max) {
  line += '"';
  for (const char c : EscapeForLog(text, bytes_max)) {
    if (c == '"' || c == '\\') {
      line += '\\';
    }
    line += c;
  }
  line += '"';
}

std::string UtcText(int64_t unix_ns, int digits) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E" + std::to_string(digits) + "SZ", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

std::string FormatLogLine(bool as_json, int64_t unix_ns, LogLevel level, std::string_view text, LogFields fields) {
  std::string line = as_json ? "{\"time\":\"" : "";
  line += UtcText(unix_ns, 3);
  line += as_json ? "\",\"level\":\"" : " ";
  line += kLevelNames[static_cast<size_t>(level)];
  if (as_json) {
    line += "\",\"message\":";
    AppendJson(line, text, kTextBytesMax);
  } else {
    line += " " + EscapeForLog(text, kTextBytesMax);
  }
  for (const LogField& field : fields) {
    if (field.value.empty()) {
      continue;
    }
    if (as_json) {
      line += ",";
      AppendJson(line, field.key, kValueBytesMax);
      line += ":";
      AppendJson(line, field.value, kValueBytesMax);
    } else {
      line += " " + std::string(field.key) + "=";
      AppendValue(line, field.value);
    }
  }
  return as_json ? line + "}" : line;
}

std::string EscapeForLog(std::string_view text, size_t bytes_max) {
  const bool cut = text.size() > bytes_max;
  text = text.substr(0, bytes_max);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<uint8_t>(text[0]);
    size_t length = ShownBytes(text);
    if (c == '\n') {
      out += "\\n";
      length = 1;
    } else if (length == 0 || c < 0x20 || c == 0x7f) {
      out += "\\x" + ToHex(std::span(&c, 1));
      length = 1;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return cut ? out + "…" : out;
}

}  // namespace hpvm::server
