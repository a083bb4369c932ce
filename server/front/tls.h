// SPDX-License-Identifier: Apache-2.0
// TLS for TCP addresses: [tls] of the configuration.
#ifndef HPVMD_SERVER_FRONT_TLS_H_
#define HPVMD_SERVER_FRONT_TLS_H_

#include <cstdint>
#include <string>

#include "base/diagnostic.h"
#include "server/config/config.h"

namespace hpvm::server {

// Contents of the files at one moment.
struct TlsFiles {
  std::string chain, key, client_ca;  // As read; the last is empty when client certificates are not used.
  std::string subject;                // Subject of the server's certificate: "CN=hpvmd.example, O=Lab".
  int64_t not_after_unix_s = 0;
};

// Reads the files and adds every fault that prevents their use: an unreadable file, a key that others may read, a
// certificate that is not valid now or belongs to another key, invalid authorities. tls.key may name the file of
// tls.certificate, which then holds both and is read once. Only reads files.
TlsFiles ReadTlsFiles(const Config& config, Diagnostics* faults);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_TLS_H_
