// SPDX-License-Identifier: Apache-2.0
// Channels: gRPC connections to a server, with TLS where requested. Only .cc files of this folder include this
// header.
#ifndef HPVMD_CLIENT_CHANNEL_H_
#define HPVMD_CLIENT_CHANNEL_H_

#include <memory>
#include <string>

#include "client/bearer.h"
#include "grpcpp/grpcpp.h"

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

// Returns a connected channel. kUnavailable when nobody answers `within`; kUnauthenticated, at once, when one side
// does not trust the other's certificate. Shared because gRPC's interface requires it.
StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Endpoint& endpoint, const Credentials& credentials,
                                                     Duration within);

// Contents of the files that TLS uses.
struct TlsFiles {
  std::string authorities, certificate, key;
};
// Reads and checks the files: their formats, that the key belongs to the certificate, and that the certificate is
// valid now. kInvalidArgument and similar codes name the file, never its contents.
StatusOr<TlsFiles> ReadTlsFiles(const Credentials& credentials);

// Explains gRPC's text about a failed connection; empty when the text is not specific.
std::string ExplainHandshake(const std::string& failure, const Endpoint& endpoint, const Credentials& credentials);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_CHANNEL_H_
