// SPDX-License-Identifier: Apache-2.0
// TLS as OpenSSL does it for the front: one context for each state of the files.
#ifndef HPVMD_SERVER_FRONT_TLS_CONTEXT_H_
#define HPVMD_SERVER_FRONT_TLS_CONTEXT_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/front/session.h"
#include "server/front/tls.h"

namespace hpvm::server {

struct FreeSslContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslContext = std::unique_ptr<SSL_CTX, FreeSslContext>;

// TLS 1.2 and 1.3 for HTTP/2 only. `client_certificates`: "none", "optional" or "required", as in [tls]; one that is
// shown is verified, always. Nothing is resumed: who was verified once is verified again.
StatusOr<SslContext> MakeTlsContext(const TlsFiles& files, const std::string& client_certificates);

// For a connection that begins.
SslPtr MakeTlsSession(SSL_CTX* context, int fd);

// Of the certificate that the handshake has verified: its common names, an empty one if it has none. Without a
// certificate none.
std::vector<std::string> CertificateNames(SSL* ssl);

// Whether both sides agreed on HTTP/2.
bool IsHttp2(const SSL* ssl);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_TLS_CONTEXT_H_
