// SPDX-License-Identifier: Apache-2.0
// Certificates for tests of TLS, made on the spot: no key lies in the tree.
#ifndef HPVMD_SERVER_TESTING_TEST_CERTIFICATES_H_
#define HPVMD_SERVER_TESTING_TEST_CERTIFICATES_H_

#include <memory>
#include <optional>
#include <string>

namespace hpvm::server {

struct CertifiedKey {
  std::string certificate, key;  // PEM.
};

struct CertificateWish {
  std::optional<std::string> common_name;  // None: the subject has an organisation only.
  long begins_s = -3'600, ends_s = 3'600;  // From now.
  std::string host = "";                   // Of servers: "localhost" or an address.
};

// An authority, which signs what it is told to. Aborts when OpenSSL does not do as it should.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();
  const std::string& certificate() const;  // PEM.
  CertifiedKey Issue(const CertificateWish& wish);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_TESTING_TEST_CERTIFICATES_H_
