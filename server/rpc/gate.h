// SPDX-License-Identifier: Apache-2.0
// The one way in: every call is authenticated, authorised, given its tenant, and written down.
//
// A refused credential costs a hash and a look-up in memory, so right ones are let in however many wrong ones come from
// the same address: nobody locks a neighbour behind the same address out. Beyond [auth].failures_per_second_max the
// wrong ones are told to wait, and neither logged nor recorded.
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

// How many failures each address has had in the present second. Any thread; holds at most kAddressesMax addresses.
class FailureCounts {
 public:
  static constexpr size_t kAddressesMax = 4'096;
  // Counts one more. False: the address has had its share; `*wait` is the rest of the second.
  bool Admit(const std::string& host, uint64_t per_second_max, Time now, Duration* wait);

 private:
  std::mutex mutex_;
  Time second_{0};
  std::unordered_map<std::string, uint64_t> counts_;
};

// What a call shows of who makes it, for calls that come later by a way which that call has opened.
struct Shown {
  std::string peer;
  std::vector<std::string> authorization, certificate_names, wanted_tenants;
  bool is_encrypted = false;
};

// Any thread.
class Gate {
 public:
  // Borrows all of them.
  Gate(Core& core, const Authenticator& authenticator, const Directory& directory, AuditLog& audit)
      : core_(core), authenticator_(authenticator), directory_(directory), audit_(audit) {}

  // For calls about administration, also of tenants that are disabled.
  StatusOr<Caller> Identify(const grpc::CallbackServerContext& context, const MethodFacts& method);

  struct Entry {
    TenantRef tenant;
    Principal principal;
  };
  // `request_bytes`: of a unary call's request, for the tenant's rates; 0 for streams, which count as they come.
  StatusOr<Entry> Enter(const grpc::CallbackServerContext& context, const MethodFacts& method, uint64_t request_bytes);

  // What the call shows; then Enter for a call that shows the same. Whether its caller is known, and may, is found out
  // anew.
  static StatusOr<Shown> Look(const grpc::CallbackServerContext& context);
  StatusOr<Entry> Enter(const Shown& shown, const MethodFacts& method, uint64_t request_bytes);
  // Whether Enter would let it in, without counting or writing down anything.
  Status Recheck(const Shown& shown, const MethodFacts& method);

  AuditLog& audit() { return audit_; }
  const Directory& directory() const { return directory_; }

 private:
  StatusOr<Caller> Identify(const CallFacts& facts, const MethodFacts& method);
  StatusOr<Entry> Admit(Caller caller, const MethodFacts& method, uint64_t request_bytes);
  // Fills as much of `caller` as is known.
  Status Check(const CallFacts& facts, const MethodFacts& method, const Config& config, Caller* caller);
  Status Refuse(Status why, const CallFacts& facts, const MethodFacts& method, const Caller& caller,
                const Config& config);
  void WriteDown(const Status& why, const CallFacts& facts, const MethodFacts& method, const Caller& caller);

  Core& core_;
  const Authenticator& authenticator_;
  const Directory& directory_;
  AuditLog& audit_;
  FailureCounts failures_;
  FailureCounts records_;  // Of all addresses together.
};

// How long to wait, on a status: ToGrpc tells the client.
void SetRetryAfter(Status* status, Duration wait);
Duration RetryAfterOf(const Status& status);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_GATE_H_
