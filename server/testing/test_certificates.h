// SPDX-License-Identifier: Apache-2.0
// Certificates for TLS tests, made at run time: the source tree contains no keys.
#ifndef HPVMD_SERVER_TESTING_TEST_CERTIFICATES_H_
#define HPVMD_SERVER_TESTING_TEST_CERTIFICATES_H_

#include <memory>
#include <optional>
#include <string>

namespace hpvm::server {

struct CertifiedKey {
  std::string certificate, key;  // PEM.
};

struct CertificateSpec {
  std::optional<std::string> common_name;  // Without it the subject has an organisation only.
  long begins_s = -3'600, ends_s = 3'600;  // Relative to now.
  std::string host = "";                   // For servers: "localhost" or an address.
};

// TestAuthority is a certificate authority, which signs on request. Aborts when OpenSSL fails.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();
  const std::string& certificate() const;  // PEM.
  CertifiedKey Issue(const CertificateSpec& spec);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_TESTING_TEST_CERTIFICATES_H_
