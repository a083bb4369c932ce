// SPDX-License-Identifier: Apache-2.0
// TLS of the addresses over TCP: [tls] of the configuration.
#ifndef HPVMD_SERVER_TLS_H_
#define HPVMD_SERVER_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/status.h"
#include "server/config.h"
#include "server/observer.h"

namespace hpvm {

// What the files held at one moment.
struct TlsFiles {
  std::string chain, key, client_ca;  // As read; the last is empty where no certificates are asked for.
  std::string subject;                // Of the server's certificate: "CN=hpvmd.example, O=Lab".
  int64_t not_after_unix_s = 0;
};

// Reads the files and adds every fault that keeps them from being served with: one that cannot be read, a key that
// others may read, a certificate that is not valid now or belongs to another key, authorities that are none. tls.key
// may name the file of tls.certificate, which then holds both and is read once. Opens files, and nothing else.
TlsFiles ReadTlsFiles(const Config& config, Diagnostics* faults);

// Without tls.certificate: none. The files are looked at again every few seconds, so that a new certificate needs no
// restart; connections that stand keep theirs. What was loaded last stays in force while the files have a fault. Each
// load, and each refusal, is logged and told to `observer`, which lives longer. The credentials are for one port.
// kInvalidArgument with every fault of the files.
StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Config& config, Observer& observer);

}  // namespace hpvm

#endif  // HPVMD_SERVER_TLS_H_
