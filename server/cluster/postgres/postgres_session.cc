// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/postgres/postgres_session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/io/fd.h"

#include <postgresql/libpq-fe.h>
#include <pqxx/pqxx>

namespace hpvm::server::cluster {
namespace {

constexpr int kVersionMin = 130000;
constexpr size_t kStatementShownMax = 100;

// Types of columns: the numbers of PostgreSQL's catalogue, which never change (pg_type.dat).
enum Oid : pqxx::oid {
  kBool = 16,
  kBytea = 17,
  kInt8 = 20,
  kInt2 = 21,
  kInt4 = 23,
  kOid = 26,
  kFloat4 = 700,
  kFloat8 = 701,
  kNumeric = 1700,
};

std::string Milliseconds(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// Puts the lines of an error of libpq into one, without the places in the server's sources.
std::string OneLine(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    part.remove_prefix(std::min(part.size(), part.find_first_not_of(" \t^")));
    // libpq ends some errors with a question to its user.
    if (!part.empty() && !part.starts_with("LOCATION:") && !part.ends_with('?')) {
      line += (line.empty() ? "" : "; ") + std::string(part);
    }
  }
  constexpr std::string_view kSeverity = "ERROR:  ";
  return line.starts_with(kSeverity) ? line.substr(kSeverity.size()) : line;
}

void Replace(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// AnswerWatch shuts a connection's socket down when an answer takes too long, so that the call that waits for it fails.
class AnswerWatch {
 public:
  AnswerWatch(int socket, Duration timeout)
      : socket_(fcntl(socket, F_DUPFD_CLOEXEC, 0)), timeout_(timeout), thread_([this] { Watch(); }) {}
  ~AnswerWatch() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void Arm() { began_ = RealClock().Now(); }
  void Disarm() { began_ = kNever; }
  bool has_fired() const { return has_fired_; }
  Duration timeout() const { return timeout_; }

 private:
  // The thread looks once in each timeout. A call that begins meanwhile has time until after the next look, which then
  // waits for the rest of it; so a call wakes nobody when it begins.
  void Watch() {
    std::unique_lock lock(mutex_);
    Duration pause = timeout_;
    while (!wake_.wait_for(lock, pause, [this] { return stops_; })) {
      const Time began = began_;
      const Duration left = began == kNever ? timeout_ : began + timeout_ - RealClock().Now();
      if (left > Duration::zero()) {
        pause = left;
        continue;
      }
      has_fired_ = true;
      shutdown(socket_.get(), SHUT_RDWR);
      pause = timeout_;
    }
  }

  // A copy of the descriptor: libpq closes its own when the connection is lost, and the number may be used again.
  const UniqueFd socket_;
  const Duration timeout_;
  std::atomic<Time> began_ = kNever;  // The time at which the call began that waits for an answer.
  std::atomic<bool> has_fired_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stops_ = false;  // Guarded by mutex_.
  std::thread thread_;  // Last: it uses the others.
};

// A policy of libpqxx that takes a connection which exists already, and never makes another one.
class GivenConnection final : public pqxx::connectionpolicy {
 public:
  explicit GivenConnection(PostgresHandle connection)
      : pqxx::connectionpolicy(std::string()), connection_(std::move(connection)) {}
  handle do_startconnect(handle original) override {
    if (original == nullptr && connection_ == nullptr) {
      throw pqxx::broken_connection("The connection was lost.");
    }
    return original == nullptr ? connection_.release() : original;
  }
  handle do_completeconnect(handle original) override { return original; }

 private:
  PostgresHandle connection_;
};

// A connection of libpqxx. When it is lost, libpqxx 6.4 does not free the last result, of some 2 KiB.
class Connection final : public pqxx::connection_base {
 public:
  explicit Connection(PostgresHandle connection) : connection_base(policy_), policy_(std::move(connection)) {
    init();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    // A new connection would be outside of the transaction, and would lack the settings.
    inhibit_reactivation(true);
#pragma GCC diagnostic pop
  }
  ~Connection() { close(); }

 private:
  GivenConnection policy_;
};

// Settings of a connection, by name.
using Settings = std::map<std::string, std::string>;

StatusOr<Settings> ParseSettings(const std::string& dsn) {
  char* error = nullptr;
  PQconninfoOption* const options = PQconninfoParse(dsn.c_str(), &error);
  PQfreemem(error);  // Not shown, because it may quote the password.
  if (options == nullptr) {
    return FailedPrecondition(
        "The connection string of PostgreSQL has an error; it is not shown, because it may contain a password.");
  }
  Settings settings = {{"target_session_attrs", "read-write"},
                       {"fallback_application_name", "hpvmd"},
                       {"keepalives", "1"},
                       {"keepalives_idle", "5"},
                       {"keepalives_interval", "2"},
                       {"keepalives_count", "3"},
                       {"tcp_user_timeout", "10000"}};
  for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    if (option->val != nullptr) {
      settings[option->keyword] = option->val;
    }
  }
  PQconninfoFree(options);
  settings["client_encoding"] = "UTF8";
  return settings;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char character : text) {
    if (character == ',') {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

// Returns the settings for each host of a list. libpq itself tries a list without limits of time when its caller must
// not block.
std::vector<Settings> SplitHosts(const Settings& settings) {
  std::vector<Settings> hosts(1, settings);
  for (const char* name : {"host", "hostaddr", "port"}) {
    const auto found = settings.find(name);
    const std::vector<std::string> values = SplitAtCommas(found == settings.end() ? "" : found->second);
    if (values.size() == 1) {
      continue;
    }
    hosts.resize(std::max(hosts.size(), values.size()), settings);
    for (size_t host = 0; host < hosts.size(); ++host) {
      hosts[host][name] = host < values.size() ? values[host] : "";
    }
  }
  return hosts;
}

// Finds the state in an error of a connection, which libpq gives only inside a verbose text: "FATAL:  28P01: password".
std::string FindState(std::string_view text) {
  constexpr size_t kSize = 5;
  const auto is_of_state = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = 0; (at = text.find(":  ", at)) != std::string_view::npos; ++at) {
    const std::string_view state = text.substr(at + 3, kSize);
    if (state.size() == kSize && text.substr(at + 3 + kSize, 2) == ": " && std::ranges::all_of(state, is_of_state)) {
      return std::string(state);
    }
  }
  return "";
}

Status ConnectError(PGconn* connection, const Settings& settings) {
  const char* const error = PQerrorMessage(connection);
  std::string text = OneLine(error);
  const std::string state = FindState(error);
  Replace(text, state.empty() ? "" : ":  " + state + ": ", ": ");
  for (const char* name : {"password", "sslpassword"}) {
    const auto found = settings.find(name);
    Replace(text, found == settings.end() ? "" : found->second, "***");
  }
  if (PQconnectionNeedsPassword(connection) != 0) {
    return PostgresError("28P01", "accept the connection", text);
  }
  return PostgresError(state, "accept the connection", text);
}

StatusOr<PostgresHandle> ConnectHost(const Settings& settings, const PostgresOptions& options, int stop_fd) {
  std::vector<const char*> names, values;
  for (const auto& [name, value] : settings) {
    names.push_back(name.c_str());
    values.push_back(value.c_str());
  }
  names.push_back(nullptr);
  values.push_back(nullptr);
  PostgresHandle connection(PQconnectStartParams(names.data(), values.data(), 0));
  if (connection == nullptr) {
    return ResourceExhausted("There is no memory for a connection to PostgreSQL.");
  }
  PQsetErrorVerbosity(connection.get(), PQERRORS_VERBOSE);
  // libpq would write notices to the standard error.
  PQsetNoticeReceiver(
      connection.get(), [](void*, const PGresult*) {}, nullptr);
  const Time deadline = RealClock().Now() + options.connect_timeout;
  PostgresPollingStatusType status = PGRES_POLLING_WRITING;
  while (PQstatus(connection.get()) != CONNECTION_BAD && status != PGRES_POLLING_OK) {
    const int64_t left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - RealClock().Now()).count();
    if (left_ms <= 0) {
      return PostgresError("", "accept the connection",
                           "there is no answer within " + Milliseconds(options.connect_timeout) + " ms");
    }
    const short events = status == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    pollfd fds[] = {{PQsocket(connection.get()), events, 0}, {stop_fd, POLLIN, 0}};
    if (poll(fds, 2, static_cast<int>(left_ms)) > 0) {
      if (fds[1].revents != 0) {
        return Cancelled("The connection to PostgreSQL is no longer wanted.");
      }
      status = PQconnectPoll(connection.get());
    }
    if (status == PGRES_POLLING_FAILED) {
      break;
    }
  }
  if (PQstatus(connection.get()) != CONNECTION_OK) {
    return ConnectError(connection.get(), settings);
  }
  PQsetErrorVerbosity(connection.get(), PQERRORS_DEFAULT);
  return connection;
}

// Parameters as PostgreSQL reads them, where no text means NULL. A BYTEA is text too: libpqxx takes either one type of
// parameters or a number of them that the compiler knows.
class Texts {
 public:
  Status Add(const SqlValue& value) {
    if (const auto* number = std::get_if<int64_t>(&value.value())) {
      texts_.push_back(std::to_string(*number));
    } else if (const auto* real = std::get_if<double>(&value.value())) {
      char digits[32];
      texts_.push_back(std::string(digits, std::to_chars(digits, digits + sizeof(digits), *real).ptr));
    } else if (const auto* blob = std::get_if<SqlBlob>(&value.value())) {
      texts_.push_back(Hex(blob->bytes));
    } else if (const auto* text = std::get_if<std::string>(&value.value())) {
      if (text->find('\0') != std::string::npos) {
        return DataLoss("A text for PostgreSQL has a zero byte, which its type TEXT cannot hold.");
      }
      texts_.push_back(*text);
    } else {
      texts_.push_back(std::nullopt);
    }
    return absl::OkStatus();
  }

  std::vector<const char*> Pointers() const {
    std::vector<const char*> pointers;
    for (const std::optional<std::string>& text : texts_) {
      pointers.push_back(text.has_value() ? text->c_str() : nullptr);
    }
    return pointers;
  }

 private:
  static std::string Hex(const std::string& bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string hex = "\\x";
    hex.reserve(2 + 2 * bytes.size());
    for (const char byte : bytes) {
      hex += kDigits[static_cast<uint8_t>(byte) >> 4];
      hex += kDigits[byte & 15];
    }
    return hex;
  }

  std::vector<std::optional<std::string>> texts_;
};

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<T>(number) : std::nullopt;
}

SqlValue ReadField(const pqxx::field& field, pqxx::oid type) {
  if (field.is_null()) {
    return {};
  }
  const std::string_view text(field.c_str(), field.size());
  switch (type) {
    case kBool:
      return text == "t";
    case kBytea:
      return SqlBlob{pqxx::binarystring(field).str()};
    case kInt2:
    case kInt4:
    case kInt8:
    case kOid:
      return ParseNumber<int64_t>(text).value_or(0);
    case kNumeric:
      if (const std::optional<int64_t> whole = ParseNumber<int64_t>(text); whole.has_value()) {
        return *whole;
      }
      return ParseNumber<double>(text).value_or(0);
    case kFloat4:
    case kFloat8:
      return ParseNumber<double>(text).value_or(0);
    default:
      return std::string(text);
  }
}

SqlRows ReadRows(const pqxx::result& result) {
  std::vector<pqxx::oid> types;
  for (pqxx::row_size_type column = 0; column < result.columns(); ++column) {
    types.push_back(result.column_type(column));
  }
  SqlRows rows;
  rows.reserve(result.size());
  for (const pqxx::row& row : result) {
    std::vector<SqlValue> columns;
    columns.reserve(types.size());
    for (size_t column = 0; column < types.size(); ++column) {
      columns.push_back(ReadField(row[static_cast<pqxx::row_size_type>(column)], types[column]));
    }
    rows.emplace_back(std::move(columns));
  }
  return rows;
}

// Returns what completes "PostgreSQL cannot ..." for a statement.
std::string Running(std::string_view statement) {
  statement.remove_prefix(std::min(statement.size(), statement.find_first_not_of(" \n")));
  const bool is_long = statement.size() > kStatementShownMax;
  return "run \"" + std::string(statement.substr(0, kStatementShownMax)) + (is_long ? " ...\"" : "\"");
}

// States after which the session is useless, although the connection may still exist.
bool BreaksSession(std::string_view state) {
  return state.starts_with("08") || state.starts_with("57P0") || state == "25P03" || state == "25006";
}

}  // namespace

struct PostgresSession::Parts {
  Parts(PostgresHandle handle, Duration answer_timeout)
      : watch(PQsocket(handle.get()), answer_timeout), connection(Noticed(std::move(handle))), work(connection) {}

  PostgresHandle Noticed(PostgresHandle handle) {
    PQsetNoticeReceiver(handle.get(), &OnNotice, this);
    return handle;
  }
  static void OnNotice(void* parts, const PGresult* notice) {
    // The function of the server that raised it; texts depend on the server's language.
    const char* const from = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    static_cast<Parts*>(parts)->has_lost_standby |= from != nullptr && from == std::string_view("SyncRepWaitForLSN");
  }

  bool has_lost_standby = false;  // A COMMIT has ended its wait for a synchronous standby.
  AnswerWatch watch;
  Connection connection;
  // All statements run in it, BEGIN and COMMIT too: the classes of libpqxx for transactions begin one for each object.
  pqxx::nontransaction work;
  std::unordered_map<const char*, std::string> names;  // Prepared statements, by the address of the text.
};

void PostgresHandleEnd::operator()(pg_conn* connection) const { PQfinish(connection); }

std::vector<std::string> PostgresDurability::Warnings() const {
  std::vector<std::string> warnings;
  if (!has_fsync) {
    warnings.emplace_back(
        "PostgreSQL does not wait for its disk (fsync is off): a crash of its machine may destroy the database and all "
        "its jobs.");
  }
  if (!has_full_page_writes) {
    warnings.emplace_back(
        "PostgreSQL does not write full pages to its log (full_page_writes is off): a crash of its machine may damage "
        "tables, unless its file system writes pages as a whole.");
  }
  if (synchronous_commit == "off") {
    warnings.emplace_back(
        "PostgreSQL answers before a transaction is on its disk (synchronous_commit is off): a crash of the server "
        "loses the last transactions. Jobs accepted in them are forgotten, and jobs that began or ended in them run "
        "again, perhaps while they still run.");
  }
  if (synchronous_standby_names.empty()) {
    warnings.emplace_back(
        "PostgreSQL waits for no standby (synchronous_standby_names is empty): a standby that takes over may lack the "
        "last transactions. Jobs accepted in them are forgotten, and jobs that began or ended in them run again, "
        "perhaps while they still run.");
  } else if (synchronous_commit == "off" || synchronous_commit == "local") {
    warnings.emplace_back("PostgreSQL does not wait for its standbys (synchronous_commit is " + synchronous_commit +
                          "), although it has some (synchronous_standby_names is \"" + synchronous_standby_names +
                          "\"): a standby that takes over may lack the last transactions.");
  } else if (synchronous_commit == "remote_write") {
    warnings.emplace_back(
        "PostgreSQL does not wait for its standbys' disks (synchronous_commit is remote_write): a crash of the "
        "server's machine and of the standby's at the same time may lose the last transactions.");
  }
  return warnings;
}

StatusOr<PostgresHandle> ConnectPostgres(const PostgresOptions& options, int stop_fd) {
  HPVMD_ASSIGN_OR_RETURN(const Settings settings, ParseSettings(options.dsn));
  Status error = absl::OkStatus();
  for (const Settings& host : SplitHosts(settings)) {
    StatusOr<PostgresHandle> connection = ConnectHost(host, options, stop_fd);
    if (connection.ok() || absl::IsCancelled(connection.status())) {
      return connection;
    }
    const std::string message = (error.ok() ? "" : Message(error) + " ") + Message(connection.status());
    // A server that cannot be reached now, or is a standby, may become the right one later.
    const bool may_help = absl::IsUnavailable(error) || absl::IsUnavailable(connection.status());
    error = MakeStatus(may_help ? absl::StatusCode::kUnavailable : connection.status().code(), message);
  }
  return error;
}

std::string RewriteParameters(std::string_view statement) {
  std::string rewritten(statement);
  char quote = '\0';
  for (size_t at = 0; at < rewritten.size(); ++at) {
    char& character = rewritten[at];
    if (quote != '\0') {
      quote = character == quote ? '\0' : quote;
    } else if (character == '\'' || character == '"') {
      quote = character;
    } else if (character == '?' && at + 1 < rewritten.size() && rewritten[at + 1] >= '1' && rewritten[at + 1] <= '9') {
      character = '$';
    }
  }
  return rewritten;
}

Status PostgresError(std::string_view state, std::string_view doing, std::string_view text) {
  std::string message = "PostgreSQL cannot " + std::string(doing);
  if (!state.empty()) {
    message += " (error " + std::string(state) + ")";
  }
  message += ": " + OneLine(text);
  message += message.ends_with('.') ? "" : ".";
  const auto is_class = [state](std::string_view prefix) { return state.starts_with(prefix); };
  if (state == "40001" || state == "40P01" || state == "55P03") {
    return Aborted(message);
  }
  if (is_class("23")) {
    return AlreadyExists(message);
  }
  if (state == "53100" || state == "53200" || is_class("54")) {
    return ResourceExhausted(message);
  }
  if (is_class("28") || state == "3D000") {
    return FailedPrecondition(message);
  }
  // Without a state the server did not answer, or libpq lost it.
  if (state.empty() || is_class("08") || state == "53300" || state == "57014" || state == "57P01" || state == "57P02" ||
      state == "57P03" || state == "25P03" || state == "25006" || state == "40003") {
    return Unavailable(message);
  }
  return DataLoss(message);
}

Status CheckPostgresVersion(int version) {
  if (version >= kVersionMin) {
    return absl::OkStatus();
  }
  return FailedPrecondition("The server is PostgreSQL " + std::to_string(version / 10000) + "." +
                            std::to_string(version % 10000) + "; the cluster's store needs version " +
                            std::to_string(kVersionMin / 10000) + " or later.");
}

PostgresSession::PostgresSession(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PostgresSession::~PostgresSession() = default;

StatusOr<std::unique_ptr<PostgresSession>> PostgresSession::Open(const PostgresOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(PostgresHandle handle, ConnectPostgres(options, -1));
  HPVMD_RETURN_IF_ERROR(CheckPostgresVersion(PQserverVersion(handle.get())));
  std::unique_ptr<PostgresSession> session(new PostgresSession(nullptr));
  try {
    session->parts_ = std::make_unique<Parts>(std::move(handle), options.answer_timeout);
  } catch (const std::exception& error) {
    return PostgresError("", "accept the connection", error.what());
  }
  HPVMD_RETURN_IF_ERROR(session->SetUp(options));
  return session;
}

Status PostgresSession::SetUp(const PostgresOptions& options) {
  std::string settings = "SET standard_conforming_strings = on; SET bytea_output = 'hex'; SET extra_float_digits = 1; ";
  settings += "SET default_transaction_isolation = 'read committed'; ";
  settings += "SET statement_timeout = " + Milliseconds(options.statement_timeout) + "; ";
  settings += "SET lock_timeout = " + Milliseconds(options.lock_timeout) + "; ";
  settings += "SET idle_in_transaction_session_timeout = " + Milliseconds(options.idle_timeout) + "; ";
  std::string encoding;
  HPVMD_RETURN_IF_ERROR(Guard("set the session up", [&] {
    if (!options.search_path.empty()) {
      settings += "SELECT set_config('search_path', " + parts_->connection.quote(options.search_path) + ", false)";
    }
    parts_->work.exec(settings);
    const pqxx::result facts = parts_->work.exec(
        "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), "
        "current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding')");
    durability_.synchronous_commit = facts[0][0].c_str();
    durability_.synchronous_standby_names = facts[0][1].c_str();
    durability_.has_fsync = facts[0][2].c_str() == std::string_view("on");
    durability_.has_full_page_writes = facts[0][3].c_str() == std::string_view("on");
    encoding = facts[0][4].c_str();
  }));
  if (encoding != "UTF8") {
    return FailedPrecondition("The database has the encoding " + encoding + "; the cluster's store needs UTF8.");
  }
  return absl::OkStatus();
}

Status PostgresSession::Guard(std::string_view doing, const std::function<void()>& call) {
  if (is_broken_) {
    return Unavailable("PostgreSQL cannot " + std::string(doing) + ": the session was lost; it has to be replaced.");
  }
  Status status = absl::OkStatus();
  parts_->watch.Arm();
  try {
    call();
    // After an error PostgreSQL takes nothing but the end of the transaction, or of the savepoint in which it was.
    has_failed_ = false;
  } catch (...) {
    status = Caught(doing);
  }
  parts_->watch.Disarm();
  return status;
}

Status PostgresSession::Caught(std::string_view doing) {
  std::string state, text;
  has_failed_ = true;
  is_broken_ = !parts_->connection.is_open();
  try {
    throw;
  } catch (const pqxx::broken_connection& error) {
    is_broken_ = true;
    text = error.what();
  } catch (const pqxx::deadlock_detected& error) {
    state = "40P01";
    text = error.what();
  } catch (const pqxx::serialization_failure& error) {
    state = "40001";
    text = error.what();
  } catch (const pqxx::statement_completion_unknown& error) {
    state = "40003";
    text = error.what();
  } catch (const pqxx::sql_error& error) {
    state = error.sqlstate();
    is_broken_ = is_broken_ || state.empty();  // The error is that of libpq: the server has not answered.
    text = error.what();
  } catch (const pqxx::failure& error) {
    is_broken_ = true;  // As above.
    text = error.what();
  } catch (const std::bad_alloc&) {
    is_broken_ = true;  // A part of the answer may still be unread.
    text = "this process has no memory for the answer";
  } catch (const std::exception& error) {
    state = is_broken_ ? "" : "XX000";
    text = error.what();
  }
  is_broken_ = is_broken_ || BreaksSession(state);
  if (is_broken_ && parts_->watch.has_fired()) {
    text = "there is no answer within " + Milliseconds(parts_->watch.timeout()) + " ms";
  }
  return PostgresError(is_broken_ && !BreaksSession(state) ? "" : state, doing, text);
}

Status PostgresSession::Begin() {
  if (is_open_) {
    return Internal("The session with PostgreSQL begins a transaction inside another one.");
  }
  has_failed_ = false;
  HPVMD_RETURN_IF_ERROR(Guard("begin a transaction", [this] { parts_->work.exec("BEGIN"); }));
  is_open_ = true;
  return absl::OkStatus();
}

Status PostgresSession::Commit() {
  if (!is_open_ || has_failed_) {
    // The server would answer COMMIT after an error with ROLLBACK, and without an error.
    Rollback();
    return Internal("The session with PostgreSQL commits a transaction that has failed, or was not begun.");
  }
  is_open_ = false;
  parts_->has_lost_standby = false;
  const Status status = Guard("commit the transaction", [this] { parts_->work.exec("COMMIT"); });
  if (status.ok() && parts_->has_lost_standby) {
    // The server says so with a warning only.
    return Unavailable(
        "PostgreSQL has ended the wait for its synchronous standby, because somebody cancelled it. It is unknown "
        "whether the transaction had an effect that a standby keeps.");
  }
  if (!absl::IsUnavailable(status)) {
    return status;
  }
  is_broken_ = true;
  return Unavailable(Message(status) + " It is unknown whether the transaction had an effect.");
}

void PostgresSession::Rollback() {
  if (std::exchange(is_open_, false) && !is_broken_) {
    is_broken_ = !Guard("undo the transaction", [this] { parts_->work.exec("ROLLBACK"); }).ok();
  }
}

StatusOr<SqlRows> PostgresSession::Run(const SqlStatement& statement, std::initializer_list<SqlValue> parameters) {
  Texts texts;
  for (const SqlValue& parameter : parameters) {
    HPVMD_RETURN_IF_ERROR(texts.Add(parameter));
  }
  SqlRows rows;
  HPVMD_RETURN_IF_ERROR(Guard(Running(statement.text), [&] {
    std::string& name = parts_->names[statement.text];
    if (name.empty()) {
      name = "hpvmd" + std::to_string(parts_->names.size());
      parts_->connection.prepare(name, RewriteParameters(statement.text));
    }
    const std::vector<const char*> pointers = texts.Pointers();
    rows = ReadRows(parts_->work.exec_prepared(name, pqxx::prepare::make_dynamic_params(pointers)));
  }));
  return rows;
}

Status PostgresSession::Execute(const std::string& statements) {
  return Guard(Running(statements), [&] { parts_->work.exec(statements); });
}

namespace {

constexpr SqlStatement kWall{"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"};
constexpr SqlStatement kNotify{"SELECT pg_notify(?1, ?2)"};
constexpr SqlStatement kTryLock{"SELECT pg_try_advisory_xact_lock(?1)"};
// Reads the catalogue's rows: to_regclass would answer from a cache, which inside a transaction may not know tables
// that others have made since it began.
constexpr SqlStatement kHasTable{
    "SELECT EXISTS(SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = ?1 AND n.nspname = ANY(current_schemas(true)))"};

}  // namespace

StatusOr<int64_t> PostgresSession::WallNs() {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kWall));
  return rows[0].Int(0) * 1000;
}

Status PostgresSession::Notify(const std::string& channel, const std::string& payload) {
  return Run(kNotify, {channel, payload}).status();
}

StatusOr<bool> PostgresSession::TryLock(int64_t name) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kTryLock, {name}));
  return rows[0].Int(0) != 0;
}

StatusOr<bool> PostgresSession::HasTable(const std::string& name) {
  HPVMD_ASSIGN_OR_RETURN(const SqlRows rows, Run(kHasTable, {name}));
  return rows[0].Int(0) != 0;
}

}  // namespace hpvm::server::cluster
