// SPDX-License-Identifier: Apache-2.0
// Endpoints of servers, and the credentials that go with each call to identify the caller.
#ifndef HPVMD_CLIENT_BEARER_H_
#define HPVMD_CLIENT_BEARER_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/credentials.h"

namespace hpvm {

// Endpoint is the parsed address of a server.
struct Endpoint {
  std::string target;     // Target for gRPC.
  std::string unix_path;  // Empty for TCP.
  std::string host;       // TCP only, without brackets.
  bool tls = false;
  // Returns true when nobody can listen on the connection.
  bool IsPrivate() const;
};
// Parses "unix:/path", "host:port", "https://host:port" or "http://host:port". kInvalidArgument for any other text,
// and when the credentials must not be sent there: a token never leaves this machine in clear text.
StatusOr<Endpoint> ParseEndpoint(std::string_view text, const Credentials& credentials);

// Bearer provides the credentials that go with each call. Thread-safe.
class Bearer {
 public:
  virtual ~Bearer() = default;
  // Returns the current credentials; empty for none. May read a file or ask a socket, which takes at most `within`.
  virtual StatusOr<std::string> Current(Duration within) = 0;
  // Called when the server does not know `used`. Returns true when Current would return other credentials.
  virtual bool Renew(std::string_view used, Duration within) = 0;
  // Describes the credentials, such as "the token of the file \"x\""; empty when there are none.
  virtual std::string Describe() const = 0;
  // Returns a sentence that says what to do when they are refused.
  virtual std::string Advice() const = 0;
};
StatusOr<std::unique_ptr<Bearer>> MakeBearer(const Credentials& credentials, const Endpoint& endpoint);

// Strips a token of the blanks around it in a file. kInvalidArgument says what is wrong with the text, never what it
// holds: the contents of a wrong file are neither shown nor sent.
StatusOr<std::string> ParseToken(std::string_view text);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_BEARER_H_
