// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "base/clock.h"

namespace hpvm::chaos {

StatusOr<Journal> Journal::Open(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FromErrno(errno, "Opening the journal \"" + path + "\"");
  }
  // Ends a line that a killed client left unfinished, so that it does not merge with the next one.
  HPVMD_CHECK(write(file.get(), "\n", 1) == 1);
  return Journal(std::move(file));
}

void Journal::Write(std::string_view op, std::string_view fields, bool durable) {
  std::string line;
  line.reserve(op.size() + fields.size() + 2);
  line.append(op).append("\t").append(fields).append("\n");
  // One write call per line: appending is atomic between threads.
  HPVMD_CHECK(write(file_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  if (durable) {
    HPVMD_CHECK(fdatasync(file_.get()) == 0);
  }
}

Status Journal::Read(const std::string& path,
                     const std::function<void(const std::string& op, const Fields& fields)>& each) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    Fields fields;
    size_t at = line.find('\t');
    const std::string op = line.substr(0, at);
    while (at != std::string::npos) {
      const size_t end = line.find('\t', at + 1);
      const std::string field = line.substr(at + 1, end == std::string::npos ? end : end - at - 1);
      const size_t equals = field.find('=');
      if (equals != std::string::npos) {
        fields[field.substr(0, equals)] = field.substr(equals + 1);
      }
      at = end;
    }
    if (!op.empty()) {
      each(op, fields);
    }
  }
  return absl::OkStatus();
}

std::string Clean(std::string_view text) {
  std::string clean(text.substr(0, 300));
  for (char& c : clean) {
    c = c == '\t' || c == '\n' || c == '\r' ? ' ' : c;
  }
  return clean;
}

int64_t NowNs() { return RealClock().Now().count(); }

}  // namespace hpvm::chaos
