// SPDX-License-Identifier: Apache-2.0
#include "server/front/socket_bio.h"

#include <errno.h>
#include <sys/socket.h>

#include <cstdint>

namespace hpvm::server {
namespace {

int Write(BIO* bio, const char* bytes, size_t size, size_t* written) {
  int fd = -1;
  BIO_get_fd(bio, &fd);
  BIO_clear_retry_flags(bio);
  const ssize_t count = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count <= 0) {
    if (errno == EAGAIN || errno == EINTR) {
      BIO_set_retry_write(bio);
    }
    return 0;
  }
  *written = static_cast<size_t>(count);
  return 1;
}

// The BIO's data is the number of messages.
size_t TlsMessages(BIO* bio) { return reinterpret_cast<uintptr_t>(BIO_get_data(bio)); }

int Read(BIO* bio, char* bytes, size_t size, size_t* got) {
  int fd = -1;
  BIO_get_fd(bio, &fd);
  BIO_clear_retry_flags(bio);
  if (TlsMessages(bio) > kTlsMessagesMax) {
    errno = ECONNRESET;
    return 0;
  }
  const ssize_t count = recv(fd, bytes, size, MSG_DONTWAIT);
  if (count <= 0) {
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      BIO_set_retry_read(bio);
    }
    return 0;
  }
  *got = static_cast<size_t>(count);
  return 1;
}

BIO_METHOD* MakeMethod() {
  const BIO_METHOD* socket = BIO_s_socket();
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "hpvmd socket");
  if (method != nullptr) {
    BIO_meth_set_write_ex(method, Write);
    BIO_meth_set_read_ex(method, Read);
    BIO_meth_set_ctrl(method, BIO_meth_get_ctrl(socket));
    BIO_meth_set_create(method, BIO_meth_get_create(socket));
    BIO_meth_set_destroy(method, BIO_meth_get_destroy(socket));
  }
  return method;
}

}  // namespace

BIO* MakeSocketBio(int fd) {
  static const BIO_METHOD* const method = MakeMethod();
  BIO* bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio != nullptr) {
    BIO_set_fd(bio, fd, BIO_NOCLOSE);
  }
  return bio;
}

void CountTlsMessage(BIO* bio) { BIO_set_data(bio, reinterpret_cast<void*>(uintptr_t{TlsMessages(bio) + 1})); }

}  // namespace hpvm::server
