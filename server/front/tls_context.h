// SPDX-License-Identifier: Apache-2.0
// OpenSSL contexts for the front: one per version of the files.
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

// TLS 1.2 and 1.3, HTTP/2 only. `client_certificates` is "none", "optional" or "required", as in [tls]; a certificate
// that is presented is always verified. Sessions are not resumed: each connection is verified anew.
StatusOr<SslContext> MakeTlsContext(const TlsFiles& files, const std::string& client_certificates);

// Makes the TLS state of a new connection.
SslPtr MakeTlsSession(SSL_CTX* context, int fd);

// Returns the common names of the certificate that the handshake verified, one empty name if it has none; nothing
// without a certificate.
std::vector<std::string> CertificateNames(SSL* ssl);

// Returns true when both sides agreed on HTTP/2.
bool IsHttp2(const SSL* ssl);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_TLS_CONTEXT_H_
