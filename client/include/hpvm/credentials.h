// SPDX-License-Identifier: Apache-2.0
// Credentials of a client. Secrets never appear in an error: errors name files and positions instead.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_CREDENTIALS_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_CREDENTIALS_H_

#include <string>

namespace hpvm {

// The first of token, token_file and ticket that is set goes with every call. A certificate is presented in addition.
struct Credentials {
  // A bearer token: "hpvm_" and 64 hexadecimal digits.
  std::string token = {};
  // A file that holds one token and nothing else; read again after it has changed.
  std::string token_file = {};
  // TLS. Implied by an endpoint "https://host:port" and by any of the files below (all PEM).
  bool tls = false;
  // Certificate authorities that may vouch for the server; the system's when empty.
  std::string ca_file = {};
  // The client's certificate with its chain, and its private key.
  std::string certificate_file = {}, key_file = {};
  // The name that the server's certificate must contain, when it differs from the endpoint's host.
  std::string server_name = {};
  // Over a Unix socket and without a token: have the server's neighbouring socket ("<path>.auth") identify this
  // process.
  bool ticket = true;

  bool HasCertificate() const { return !certificate_file.empty(); }
  bool WantsTls() const { return tls || !ca_file.empty() || !certificate_file.empty() || !key_file.empty(); }
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_CREDENTIALS_H_
