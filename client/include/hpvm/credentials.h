// SPDX-License-Identifier: Apache-2.0
// By what a client is known to a server. Secrets never stand in an error: files and places are named instead.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_CREDENTIALS_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_CREDENTIALS_H_

#include <string>

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

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_CREDENTIALS_H_
