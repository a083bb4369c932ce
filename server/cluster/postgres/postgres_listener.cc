// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/postgres/postgres_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <postgresql/libpq-fe.h>

namespace hpvm::server::cluster {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(100);
constexpr Duration kPauseMax = std::chrono::seconds(2);
constexpr Duration kForEver{-1};

// Returns the timeout as poll takes it.
int PollTimeout(Duration timeout) {
  return timeout < Duration::zero()
             ? -1
             : static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
}

Status Lost(pg_conn* connection) { return PostgresError("", "be listened to", PQerrorMessage(connection)); }

Status Ending() { return Cancelled("The listener ends."); }

struct ResultEnd {
  void operator()(PGresult* result) const { PQclear(result); }
};

std::string Quoted(pg_conn* connection, const std::string& name) {
  char* const quoted = PQescapeIdentifier(connection, name.data(), name.size());
  std::string text = quoted == nullptr ? "" : quoted;
  PQfreemem(quoted);
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<PostgresListener>> PostgresListener::Start(PostgresOptions options,
                                                                    std::vector<std::string> channels,
                                                                    Callbacks callbacks) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) {
    return ResourceExhausted("The process has no file descriptor left for a listener of PostgreSQL.");
  }
  return std::unique_ptr<PostgresListener>(
      new PostgresListener(std::move(options), std::move(channels), std::move(callbacks), std::move(stop)));
}

PostgresListener::PostgresListener(PostgresOptions options, std::vector<std::string> channels, Callbacks callbacks,
                                   UniqueFd stop)
    : options_(std::move(options)),
      channels_(std::move(channels)),
      callbacks_(std::move(callbacks)),
      stop_(std::move(stop)),
      status_(Unavailable("The listener has not connected to PostgreSQL yet.")),
      thread_([this] { Run(); }) {}

PostgresListener::~PostgresListener() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

Status PostgresListener::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void PostgresListener::SetStatus(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void PostgresListener::Run() {
  Duration pause = kPauseMin;
  while (true) {
    const Status end = ListenOnce();
    if (absl::IsCancelled(end)) {
      return;
    }
    pause = status().ok() ? kPauseMin : pause;  // It has listened in between.
    SetStatus(end);
    pollfd stop = {stop_.get(), POLLIN, 0};
    if (poll(&stop, 1, PollTimeout(pause)) > 0) {
      return;
    }
    pause = std::min(2 * pause, kPauseMax);
  }
}

Status PostgresListener::ListenOnce() {
  HPVMD_ASSIGN_OR_RETURN(const PostgresHandle connection, ConnectPostgres(options_, stop_.get()));
  for (const std::string& channel : channels_) {
    HPVMD_RETURN_IF_ERROR(Ask(connection.get(), "LISTEN " + Quoted(connection.get(), channel)));
  }
  SetStatus(absl::OkStatus());
  callbacks_.on_gap();
  while (true) {
    HPVMD_RETURN_IF_ERROR(Deliver(connection.get()));
    HPVMD_RETURN_IF_ERROR(WaitFor(connection.get(), kForEver));
    if (PQconsumeInput(connection.get()) == 0) {
      return Lost(connection.get());
    }
  }
}

Status PostgresListener::Deliver(pg_conn* connection) {
  while (PGnotify* const notice = PQnotifies(connection)) {
    const std::string channel = notice->relname, payload = notice->extra;
    PQfreemem(notice);
    callbacks_.on_notice(channel, payload);
    HPVMD_RETURN_IF_ERROR(WaitFor(nullptr, Duration::zero()));
  }
  return absl::OkStatus();
}

Status PostgresListener::WaitFor(pg_conn* connection, Duration timeout) {
  pollfd fds[] = {{connection == nullptr ? -1 : PQsocket(connection), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  const int ready = poll(fds, 2, PollTimeout(timeout));
  if (ready > 0 && fds[1].revents != 0) {
    return Ending();
  }
  if (connection != nullptr && ready == 0) {
    return PostgresError("", "be listened to", "it does not answer");
  }
  return absl::OkStatus();
}

Status PostgresListener::Ask(pg_conn* connection, const std::string& statement) {
  if (PQsendQuery(connection, statement.c_str()) == 0) {
    return Lost(connection);
  }
  while (PQisBusy(connection) != 0) {
    HPVMD_RETURN_IF_ERROR(WaitFor(connection, options_.statement_timeout));
    if (PQconsumeInput(connection) == 0) {
      return Lost(connection);
    }
  }
  Status status = absl::OkStatus();
  while (const std::unique_ptr<PGresult, ResultEnd> result{PQgetResult(connection)}) {
    if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) {
      const char* const state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
      status =
          PostgresError(state == nullptr ? "" : state, "run \"" + statement + "\"", PQresultErrorMessage(result.get()));
    }
  }
  return status;
}

}  // namespace hpvm::server::cluster
