// SPDX-License-Identifier: Apache-2.0
// OpenRing, and the runs that come through the ring that it opens. The call ties the ring to its caller: when it
// ends, for whatever reason, the ring has ended. Only .cc files of server/ that need gRPC include this header.
#ifndef HPVMD_SERVER_RPC_RING_CALLS_H_
#define HPVMD_SERVER_RPC_RING_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "hpvm/v1/ring.pb.h"
#include "server/front/client_ring.h"
#include "server/rpc/admission.h"
#include "server/rpc/call_record.h"
#include "server/rpc/gate.h"

namespace hpvm::server {

// RingQuota limits the number of rings. Thread-safe.
class RingQuota : public std::enable_shared_from_this<RingQuota> {
 public:
  static constexpr size_t kOfTenantMax = 32;
  static constexpr size_t kMax = 512;

  // Returns one ring's place, with the turn that it shares; destroying it frees the place. kResourceExhausted when
  // there is none.
  StatusOr<std::shared_ptr<RingTurn>> Take(const std::string& tenant);

 private:
  struct OfTenant {
    std::shared_ptr<RingTurn> turn;
    size_t count = 0;
  };
  void GiveBack(const std::string& tenant);

  std::mutex mutex_;
  std::map<std::string, OfTenant> tenants_;
  size_t count_ = 0;
};

// Objects that OpenRing needs. Borrowed; must outlive every call.
struct RingParts {
  Core& core;
  Admission& admission;
  Gate& gate;
  const CallWitnesses& witnesses;
  LocalCallers local;
  std::shared_ptr<RingQuota> places;  // Shared with rings, which the core may keep a little longer.
  // Age at which a ring is told to end, like a connection, so that its client presents its credentials anew.
  Duration age_max;
  Duration stall_max;  // See ClientRing::Options.
};

grpc::ServerWriteReactor<v1::OpenRingResponse>* StartOpenRing(const RingParts& parts,
                                                              const grpc::CallbackServerContext& context,
                                                              const StatusOr<TenantRef>& tenant,
                                                              const v1::OpenRingRequest& request);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_RING_CALLS_H_
