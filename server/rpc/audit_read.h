// SPDX-License-Identifier: Apache-2.0
// ReadAudit: streams the audit's lines from files, which a thread of the call reads.
#ifndef HPVMD_SERVER_RPC_AUDIT_READ_H_
#define HPVMD_SERVER_RPC_AUDIT_READ_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "hpvm/v1/admin.grpc.pb.h"
#include "server/audit/audit_log.h"

namespace hpvm::server {

struct AuditQuery {
  uint64_t from_sequence = 0, records_max = 0;  // 0 for the first and for all.
  std::string tenant;                           // All when empty.
};

// Maximum number of calls whose threads read at a time; the next is refused with kResourceExhausted.
inline constexpr int kAuditReadersMax = 4;

// `status` says why the call is refused. Borrows the log, which must outlive the call.
grpc::ServerWriteReactor<v1::ReadAuditResponse>* StartReadAudit(AuditLog& audit, AuditQuery query,
                                                                const Status& status);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_AUDIT_READ_H_
