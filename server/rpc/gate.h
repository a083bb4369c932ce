// SPDX-License-Identifier: Apache-2.0
// Gate is the only entrance: it authenticates and authorises every call, resolves its tenant, and records it.
//
// A refused credential costs a hash and a look-up in memory, so right ones are accepted however many wrong ones come
// from the same address: nobody can lock out others behind that address. Beyond [auth].failures_per_second_max,
// callers with wrong credentials are told to wait, and are neither logged nor recorded.
#ifndef HPVMD_SERVER_RPC_GATE_H_
#define HPVMD_SERVER_RPC_GATE_H_

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/audit/audit_log.h"
#include "server/core/core.h"
#include "server/identity/authenticator.h"
#include "server/identity/methods.h"
#include "server/rpc/call_scope.h"

namespace hpvm::server {

// FailureCounts counts the failures of each address in the present second. Thread-safe; holds at most kAddressesMax
// addresses.
class FailureCounts {
 public:
  static constexpr size_t kAddressesMax = 4'096;
  // Counts one failure. Returns false when the address has reached its limit; `*wait` is then the rest of the second.
  bool Admit(const std::string& host, uint64_t per_second_max, Time now, Duration* wait);

 private:
  std::mutex mutex_;
  Time second_{0};
  std::unordered_map<std::string, uint64_t> counts_;
};

// The credentials of a call, for requests that come later through a channel that the call has opened.
struct Shown {
  std::string peer;
  std::vector<std::string> authorization, certificate_names, wanted_tenants;
  bool is_encrypted = false;
};

// Thread-safe.
class Gate {
 public:
  // Borrows all arguments.
  Gate(Core& core, const Authenticator& authenticator, const Directory& directory, AuditLog& audit)
      : core_(core), authenticator_(authenticator), directory_(directory), audit_(audit) {}

  // For administration calls, also about disabled tenants.
  StatusOr<Caller> Identify(const grpc::CallbackServerContext& context, const MethodFacts& method);

  struct Entry {
    TenantRef tenant;
    Principal principal;
  };
  // `request_bytes` is the size of a unary call's request, for the tenant's rates; 0 for streams, whose messages
  // count as they come.
  StatusOr<Entry> Enter(const grpc::CallbackServerContext& context, const MethodFacts& method, uint64_t request_bytes);

  // Look returns the call's credentials; Enter then admits a request with the same credentials. The caller and its
  // rights are checked anew.
  static StatusOr<Shown> Look(const grpc::CallbackServerContext& context);
  StatusOr<Entry> Enter(const Shown& shown, const MethodFacts& method, uint64_t request_bytes);
  // Returns what Enter would, without counting or recording anything.
  Status Recheck(const Shown& shown, const MethodFacts& method);

  AuditLog& audit() { return audit_; }
  const Directory& directory() const { return directory_; }

 private:
  StatusOr<Caller> Identify(const CallFacts& facts, const MethodFacts& method);
  StatusOr<Entry> Admit(Caller caller, const MethodFacts& method, uint64_t request_bytes);
  // Fills `caller` as far as it is known.
  Status Check(const CallFacts& facts, const MethodFacts& method, const Config& config, Caller* caller);
  Status Refuse(Status why, const CallFacts& facts, const MethodFacts& method, const Caller& caller,
                const Config& config);
  void WriteDown(const Status& why, const CallFacts& facts, const MethodFacts& method, const Caller& caller);

  Core& core_;
  const Authenticator& authenticator_;
  const Directory& directory_;
  AuditLog& audit_;
  FailureCounts failures_;
  FailureCounts records_;  // Records of all addresses together.
};

// Sets the retry delay of a status, which ToGrpc passes to the client.
void SetRetryAfter(Status* status, Duration wait);
Duration RetryAfterOf(const Status& status);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_GATE_H_
