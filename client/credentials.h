// SPDX-License-Identifier: Apache-2.0
// By what a client is known to a server. Secrets never stand in an error: files and places are named instead.
#ifndef HPVMD_CLIENT_CREDENTIALS_H_
#define HPVMD_CLIENT_CREDENTIALS_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

// Of token, token_file and a ticket the first that there is goes with every call. A certificate is shown besides.
struct Credentials {
  // A bearer token: "hpvm_" and 64 hexadecimal digits.
  std::string token = {};
  // A file that holds one and nothing else; read again when it has changed.
  std::string token_file = {};
  // TLS. On by itself with an endpoint "https://host:port" or any of the files below (all PEM).
  bool tls = false;
  // Authorities that may vouch for the server; empty: the system's.
  std::string ca_file = {};
  // The client's own, with its chain, and its private key.
  std::string certificate_file = {}, key_file = {};
  // What the server's certificate must name when that is not the endpoint's host.
  std::string server_name = {};
  // Over a Unix socket, without a token: ask the server beside it ("<path>.auth") who this process is.
  bool ticket = true;

  bool HasCertificate() const { return !certificate_file.empty(); }
  bool WantsTls() const { return tls || !ca_file.empty() || !certificate_file.empty() || !key_file.empty(); }
};

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

#endif  // HPVMD_CLIENT_CREDENTIALS_H_
