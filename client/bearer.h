// SPDX-License-Identifier: Apache-2.0
// Where an endpoint leads, and what goes with each call so that the server knows the caller.
#ifndef HPVMD_CLIENT_BEARER_H_
#define HPVMD_CLIENT_BEARER_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/credentials.h"

namespace hpvm {

// Where an endpoint leads.
struct Endpoint {
  std::string target;     // For gRPC.
  std::string unix_path;  // Empty: TCP.
  std::string host;       // Of TCP, without brackets.
  bool tls = false;
  // Whether nobody between here and there can listen.
  bool IsPrivate() const;
};
// "unix:/path", "host:port", "https://host:port", "http://host:port". kInvalidArgument when it is none of them, or the
// credentials cannot go there: a token never travels in clear beyond this machine.
StatusOr<Endpoint> ParseEndpoint(std::string_view text, const Credentials& credentials);

// What goes with each call. Any thread.
class Bearer {
 public:
  virtual ~Bearer() = default;
  // Empty: nothing. May read a file or, `within` at most, ask a socket.
  virtual StatusOr<std::string> Current(Duration within) = 0;
  // The server does not know `used`. Whether Current would answer another.
  virtual bool Renew(std::string_view used, Duration within) = 0;
  // "the token of the file \"x\""; empty: there is nothing.
  virtual std::string Describe() const = 0;
  // What to do when it is refused; a sentence.
  virtual std::string Advice() const = 0;
};
StatusOr<std::unique_ptr<Bearer>> MakeBearer(const Credentials& credentials, const Endpoint& endpoint);

// A token without what stands around it in a file. kInvalidArgument says what is wrong about it, never what it holds:
// a wrong file's contents are neither shown nor sent.
StatusOr<std::string> ParseToken(std::string_view text);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_BEARER_H_
