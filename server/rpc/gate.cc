// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/gate.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "server/front/session_table.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr char kTenantHeader[] = "hpvm-tenant", kAuthorizationHeader[] = "authorization";
constexpr char kRetryAfterPayload[] = "hpvm.retry_after_ns";
// Maximum number of refusals recorded per second, whatever their cause: a flood must not fill the disk.
constexpr uint64_t kRecordsPerSecondMax = 50;

std::vector<std::string_view> ValuesOf(const grpc::CallbackServerContext& context, const char* name) {
  std::vector<std::string_view> values;
  const auto [first, last] = context.client_metadata().equal_range(name);
  for (auto at = first; at != last; ++at) {
    values.emplace_back(at->second.data(), at->second.size());
  }
  return values;
}

// Administrators re-enable disabled tenants, including their own; they inspect what they stopped, and end or hold its
// jobs.
bool ReachesDisabled(const Principal& caller, const MethodFacts& method) {
  return caller.role >= Role::kAdmin &&
         (method.path.starts_with("/hpvm.v1.Admin/") || method.change == Change::kNone ||
          method.path == "/hpvm.v1.Hpvm/CancelJob" || method.path == "/hpvm.v1.Hpvm/SetJobHold");
}

CallFacts FactsOf(const Shown& shown) {
  const auto views = [](const auto& texts) { return std::vector<std::string_view>(texts.begin(), texts.end()); };
  return {.peer = shown.peer,
          .authorization = views(shown.authorization),
          .certificate_names = views(shown.certificate_names),
          .is_encrypted = shown.is_encrypted,
          .wanted_tenants = views(shown.wanted_tenants)};
}

// gRPC only knows the connection by its name there; the front has identified the peer.
StatusOr<std::shared_ptr<Session>> ConnectionOf(const grpc::CallbackServerContext& context) {
  std::shared_ptr<Session> connection = SessionTable::Get().Find(context.peer());
  if (connection == nullptr) {
    return Unauthenticated("The connection that the call came from has ended.");
  }
  if (!connection->is_counted()) {
    return Internal("gRPC read the connection without the code that counts its frames.");
  }
  return connection;
}

Status Denied(std::string_view message) { return MakeStatus(absl::StatusCode::kPermissionDenied, message); }

}  // namespace

void SetRetryAfter(Status* status, Duration wait) {
  status->SetPayload(kRetryAfterPayload, absl::Cord(std::to_string(wait.count())));
}

Duration RetryAfterOf(const Status& status) {
  const auto payload = status.GetPayload(kRetryAfterPayload);
  return Duration(payload.has_value() ? ParseNumber<int64_t>(std::string(*payload)).value_or(0) : 0);
}

bool FailureCounts::Admit(const std::string& host, uint64_t per_second_max, Time now, Duration* wait) {
  constexpr Duration kSecond = std::chrono::seconds(1);
  std::lock_guard lock(mutex_);
  if (now - second_ >= kSecond) {
    second_ = now;
    counts_.clear();
  }
  *wait = second_ + kSecond - now;
  const auto found = counts_.find(host);
  if (found == counts_.end() && counts_.size() >= kAddressesMax) {
    return false;
  }
  uint64_t& count = found == counts_.end() ? counts_[host] : found->second;
  if (count >= per_second_max) {
    return false;
  }
  ++count;
  return true;
}

StatusOr<Caller> Gate::Identify(const grpc::CallbackServerContext& context, const MethodFacts& method) {
  CallFacts facts;
  HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> connection, ConnectionOf(context));
  facts.peer = connection->facts().peer;
  facts.is_encrypted = connection->facts().is_encrypted;
  facts.certificate_names.assign(connection->facts().certificate_names.begin(),
                                 connection->facts().certificate_names.end());
  facts.authorization = ValuesOf(context, kAuthorizationHeader);
  facts.wanted_tenants = ValuesOf(context, kTenantHeader);
  HPVMD_ASSIGN_OR_RETURN(Caller caller, Identify(facts, method));
  connection->MarkKnown();
  if (method.change != Change::kNone) {
    SetCaller(context, caller);
  }
  return caller;
}

StatusOr<Caller> Gate::Identify(const CallFacts& facts, const MethodFacts& method) {
  const std::shared_ptr<const Config> config = core_.config();
  Caller caller;
  if (Status why = Check(facts, method, *config, &caller); !why.ok()) {
    return Refuse(std::move(why), facts, method, caller, *config);
  }
  return caller;
}

StatusOr<Shown> Gate::Look(const grpc::CallbackServerContext& context) {
  HPVMD_ASSIGN_OR_RETURN(const std::shared_ptr<Session> connection, ConnectionOf(context));
  const auto copies = [](const auto& views) { return std::vector<std::string>(views.begin(), views.end()); };
  return Shown{.peer = std::string(connection->facts().peer),
               .authorization = copies(ValuesOf(context, kAuthorizationHeader)),
               .certificate_names = copies(connection->facts().certificate_names),
               .wanted_tenants = copies(ValuesOf(context, kTenantHeader)),
               .is_encrypted = connection->facts().is_encrypted};
}

Status Gate::Check(const CallFacts& facts, const MethodFacts& method, const Config& config, Caller* result) {
  Caller& caller = *result;
  HPVMD_ASSIGN_OR_RETURN(caller.principal, authenticator_.Authenticate(facts, config));
  caller.tenant = caller.principal.tenant;
  if (caller.principal.role < method.role_min) {
    return Denied("This call needs the role " + std::string(NameOf(method.role_min)) + "; the caller (" +
                  caller.principal.who + ") has the role " + std::string(NameOf(caller.principal.role)) + ".");
  }
  HPVMD_ASSIGN_OR_RETURN(caller.tenant, authenticator_.ActsFor(caller.principal, facts, config));
  if (!ReachesDisabled(caller.principal, method)) {
    const TenantRecordRef record = directory_.FindTenant(caller.tenant);
    if (record != nullptr && record->disabled()) {
      return Denied("The tenant \"" + caller.tenant + "\" is disabled" +
                    (record->disabled_reason().empty() ? "." : ": " + record->disabled_reason()));
    }
  }
  return absl::OkStatus();
}

StatusOr<Gate::Entry> Gate::Enter(const grpc::CallbackServerContext& context, const MethodFacts& method,
                                  uint64_t request_bytes) {
  HPVMD_ASSIGN_OR_RETURN(Caller caller, Identify(context, method));
  return Admit(std::move(caller), method, request_bytes);
}

StatusOr<Gate::Entry> Gate::Enter(const Shown& shown, const MethodFacts& method, uint64_t request_bytes) {
  HPVMD_ASSIGN_OR_RETURN(Caller caller, Identify(FactsOf(shown), method));
  return Admit(std::move(caller), method, request_bytes);
}

Status Gate::Recheck(const Shown& shown, const MethodFacts& method) {
  const std::shared_ptr<const Config> config = core_.config();
  Caller caller;
  return Check(FactsOf(shown), method, *config, &caller);
}

StatusOr<Gate::Entry> Gate::Admit(Caller caller, const MethodFacts& method, uint64_t request_bytes) {
  StatusOr<TenantRef> tenant = core_.tenants().FindTenant(caller.tenant, ReachesDisabled(caller.principal, method));
  if (!tenant.ok()) {
    return tenant.status();
  }
  // The call that tells a tenant why it is refused must not be refused for the same reason.
  if (method.path != "/hpvm.v1.Hpvm/ServerInfo") {
    if (Outcome counted = core_.quotas().meter().Begin(**tenant, request_bytes); !counted.ok()) {
      if (counted.detail.has_value() && counted.detail->retry_after_ns() > 0) {
        SetRetryAfter(&counted.status, Duration(static_cast<int64_t>(counted.detail->retry_after_ns())));
      }
      return counted.status;
    }
  }
  return Entry{*std::move(tenant), std::move(caller.principal)};
}

Status Gate::Refuse(Status why, const CallFacts& facts, const MethodFacts& method, const Caller& caller,
                    const Config& config) {
  const Time now = core_.clock().Now();
  Duration wait{0};
  if (why.code() == absl::StatusCode::kUnauthenticated &&
      !failures_.Admit(PeerAddress(facts.peer).host, config.auth_failures_per_second_max, now, &wait)) {
    Status slow =
        ResourceExhausted("Too many credentials from this address were refused within a second; the limit is " +
                          std::to_string(config.auth_failures_per_second_max) + " (auth.failures_per_second_max).");
    SetRetryAfter(&slow, wait);
    return slow;
  }
  if (records_.Admit("", kRecordsPerSecondMax, now, &wait)) {
    WriteDown(why, facts, method, caller);
  }
  return why;
}

void Gate::WriteDown(const Status& why, const CallFacts& facts, const MethodFacts& method, const Caller& caller) {
  const std::string who = caller.principal.who.empty() ? "unknown" : caller.principal.who;
  const std::string verdict(absl::StatusCodeToString(why.code()));
  LogWarning("A call was refused", {{"method", std::string(method.path)},
                                    {"who", who},
                                    {"peer", std::string(facts.peer)},
                                    {"verdict", verdict},
                                    {"error", Message(why)}});
  const std::string detail = Message(why);
  core_.observer().On(
      events::Recorded{who, facts.peer, caller.tenant, method.path, "", verdict, detail, kAuditPayerRefused});
}

}  // namespace hpvm::server
