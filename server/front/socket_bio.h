// SPDX-License-Identifier: Apache-2.0
// A socket as OpenSSL reads and writes it: as its own kind does, but for the signal of a client that has gone, and for
// clients that change keys without an end. OpenSSL reads on and on when nothing else comes; this makes it stop.
#ifndef HPVMD_SERVER_FRONT_SOCKET_BIO_H_
#define HPVMD_SERVER_FRONT_SOCKET_BIO_H_

#include <openssl/bio.h>

namespace hpvm::server {

// Null: there is no memory. Does not close the socket.
BIO* MakeSocketBio(int fd);

// Messages of TLS's own that the other side may send: a few for the handshake, and then new keys, a few times an hour.
inline constexpr size_t kTlsMessagesMax = 100;
// Beyond it nothing is read any more.
void CountTlsMessage(BIO* bio);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_SOCKET_BIO_H_
