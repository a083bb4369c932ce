// SPDX-License-Identifier: Apache-2.0
// TLS of the addresses over TCP: [tls] of the configuration.
#ifndef HPVMD_SERVER_TLS_H_
#define HPVMD_SERVER_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "base/status.h"
#include "server/config.h"

namespace hpvm {

// The files hold what they should: a certificate that is valid now, the key that belongs to it, authorities. The key is
// readable by its owner, and perhaps a group, only. A sentence that names the file otherwise.
Status CheckTlsFiles(const Config& config);

// Without tls.certificate: none. The files are looked at again every few seconds, so that a new certificate needs no
// restart; connections that stand keep theirs. Checks the files first.
StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Config& config);

}  // namespace hpvm

#endif  // HPVMD_SERVER_TLS_H_
