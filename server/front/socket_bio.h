// SPDX-License-Identifier: Apache-2.0
// A socket BIO for OpenSSL. Unlike OpenSSL's own, it raises no signal when the client has gone, and stops clients
// that change keys without end: OpenSSL keeps reading as long as only such messages come.
#ifndef HPVMD_SERVER_FRONT_SOCKET_BIO_H_
#define HPVMD_SERVER_FRONT_SOCKET_BIO_H_

#include <openssl/bio.h>

namespace hpvm::server {

// Returns null when memory is exhausted. Does not close the socket.
BIO* MakeSocketBio(int fd);

// Maximum number of TLS protocol messages from the other side: a few for the handshake, then new keys a few times an
// hour.
inline constexpr size_t kTlsMessagesMax = 100;
// Beyond the maximum nothing is read any more.
void CountTlsMessage(BIO* bio);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_SOCKET_BIO_H_
