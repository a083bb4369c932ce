// SPDX-License-Identifier: Apache-2.0
#include "client/ticket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>

#include "base/io/fd.h"

namespace hpvm {
namespace {

constexpr size_t kLineBytesMax = 4096;
constexpr Duration kLifetimeUnsaid = std::chrono::hours(1);

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// Waits until there is something to read. Returns false when time is up.
bool AwaitReadable(int fd, Time until) {
  for (;;) {
    const Duration left = until - RealClock().Now();
    if (left <= Duration::zero()) {
      return false;
    }
    const int64_t wait_ms = std::min<int64_t>(left.count() / 1'000'000 + 1, 60'000);
    pollfd waits{fd, POLLIN, 0};
    if (poll(&waits, 1, static_cast<int>(wait_ms)) > 0) {
      return true;
    }
  }
}

StatusOr<std::string> ReadLine(int fd, const std::string& path, Time until) {
  std::string line;
  while (line.find('\n') == std::string::npos) {
    if (line.size() > kLineBytesMax) {
      return DataLoss("The server's answer at " + Quoted(path) + " is longer than " + std::to_string(kLineBytesMax) +
                      " bytes.");
    }
    if (!AwaitReadable(fd, until)) {
      return Unavailable("The server did not say at " + Quoted(path) + " who this process is.");
    }
    char part[512];
    const ssize_t got = read(fd, part, sizeof(part));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      continue;
    }
    if (got <= 0) {
      return Unavailable("The server closed " + Quoted(path) + " without an answer.");
    }
    line.append(part, static_cast<size_t>(got));
  }
  line.resize(line.find('\n'));
  return line;
}

StatusOr<Ticket> ParseLine(std::string_view line, const std::string& path) {
  if (line.starts_with("error: ")) {
    return MakeStatus(absl::StatusCode::kUnauthenticated, line.substr(7));
  }
  const size_t blank = line.find(' ');
  Ticket ticket{std::string(line.substr(0, blank))};
  const bool is_plain = std::all_of(ticket.text.begin(), ticket.text.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!ticket.text.starts_with("hpvmt_") || !is_plain) {
    return DataLoss("The program that answers at " + Quoted(path) + " does not give tickets; it is not hpvmd.");
  }
  uint32_t seconds = 0;
  if (blank != std::string_view::npos &&
      std::from_chars(line.data() + blank + 1, line.data() + line.size(), seconds).ec == std::errc()) {
    ticket.lifetime = std::chrono::seconds(seconds);
  }
  return ticket;
}

class TicketBearer final : public Bearer {
 public:
  TicketBearer(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}

  StatusOr<std::string> Current(Duration within) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (clock_.Now() < renew_at_) {
      return ticket_;
    }
    const Status status = Fetch(within);
    // An unexpired ticket is used while no other can be fetched.
    if (!status.ok() && clock_.Now() >= ends_at_) {
      return status;
    }
    return ticket_;
  }
  bool Renew(std::string_view used, Duration within) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ticket_ != used) {
      return true;  // Another thread did.
    }
    return Fetch(within).ok() && ticket_ != used;
  }
  std::string Describe() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_known_here_ ? "this machine's user id " + std::to_string(geteuid()) : "";
  }
  std::string Advice() const override {
    if (Describe().empty()) {
      return "Give a token (hpvmctl --token-file FILE, $HPVM_TOKEN_FILE).";
    }
    return "An administrator can add this user id to a tenant (hpvmctl tenant set TENANT --add-uid " +
           std::to_string(geteuid()) + "); a token works from any user id (--token-file).";
  }

 private:
  Status Fetch(Duration within) {
    const StatusOr<Ticket> answer = FetchTicket(path_, within);
    is_known_here_ = answer.status().code() == absl::StatusCode::kUnauthenticated ||
                     (answer.ok() ? !answer->text.empty() : is_known_here_);
    HPVMD_ASSIGN_OR_RETURN(const Ticket fetched, answer);
    ticket_ = fetched.text;
    const Duration lifetime = fetched.lifetime == Duration::zero() ? kLifetimeUnsaid : fetched.lifetime;
    ends_at_ = clock_.Now() + lifetime;
    renew_at_ = ticket_.empty() ? kNever : ends_at_ - lifetime / 4;
    return absl::OkStatus();
  }

  const std::string path_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::string ticket_;          // This and the other members are guarded by mutex_.
  bool is_known_here_ = false;  // The server checks user ids, whether it accepts this one or not.
  Time renew_at_ = Time::min(), ends_at_ = Time::min();
};

}  // namespace

StatusOr<Ticket> FetchTicket(const std::string& path, Duration within) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Ticket{};  // No server can listen there.
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return FromErrno(errno, "Making a socket");
  }
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT) {
      return Ticket{};
    }
    if (errno == EACCES || errno == EPERM) {
      return MakeStatus(absl::StatusCode::kUnauthenticated,
                        "This process may not ask at " + Quoted(path) + " who it is: " + std::strerror(errno) + ".");
    }
    return Unavailable("No server answers at " + Quoted(path) + " to identify this process: " + std::strerror(errno) +
                       ".");
  }
  const Duration capped = std::min<Duration>(within, std::chrono::minutes(1));
  HPVMD_ASSIGN_OR_RETURN(const std::string line, ReadLine(fd.get(), path, RealClock().Now() + capped));
  return ParseLine(line, path);
}

std::unique_ptr<Bearer> MakeTicketBearer(std::string path, const Clock& clock) {
  return std::make_unique<TicketBearer>(std::move(path), clock);
}

}  // namespace hpvm
