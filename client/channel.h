// SPDX-License-Identifier: Apache-2.0
// The way to a server: gRPC's channel, with TLS where it is wanted. Only .cc files of this folder include it.
#ifndef HPVMD_CLIENT_CHANNEL_H_
#define HPVMD_CLIENT_CHANNEL_H_

#include <memory>
#include <string>

#include "client/bearer.h"
#include "grpcpp/grpcpp.h"

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

// Connected when it returns. kUnavailable when nobody answers `within`; kUnauthenticated, at once, when one side does
// not believe the other's certificate. Shared because gRPC's interface says so.
StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Endpoint& endpoint, const Credentials& credentials,
                                                     Duration within);

// The contents of TLS's files.
struct TlsFiles {
  std::string authorities, certificate, key;
};
// Reads and checks them: each is what it should be, the key belongs to the certificate, the certificate is of now.
// kInvalidArgument and the like with the file's name, never with its contents.
StatusOr<TlsFiles> ReadTlsFiles(const Credentials& credentials);

// What a failed connection's text from gRPC means to people; empty: it does not tell.
std::string ExplainHandshake(const std::string& failure, const Endpoint& endpoint, const Credentials& credentials);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_CHANNEL_H_
