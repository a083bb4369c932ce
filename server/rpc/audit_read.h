// SPDX-License-Identifier: Apache-2.0
// ReadAudit: the record's lines, from files that a thread of the call's own reads.
#ifndef HPVMD_SERVER_RPC_AUDIT_READ_H_
#define HPVMD_SERVER_RPC_AUDIT_READ_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "hpvm/v1/admin.grpc.pb.h"
#include "server/audit/audit_log.h"

namespace hpvm::server {

struct AuditQuery {
  uint64_t from_sequence = 0, records_max = 0;  // 0: from the first, all.
  std::string tenant;                           // Empty: all.
};

// Of how many calls threads may read at a time; the next is kResourceExhausted.
inline constexpr int kAuditReadersMax = 4;

// `status`: why the call is refused. Borrows the log, which outlives the call.
grpc::ServerWriteReactor<v1::ReadAuditResponse>* StartReadAudit(AuditLog& audit, AuditQuery query,
                                                                const Status& status);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_AUDIT_READ_H_
