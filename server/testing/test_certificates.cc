// SPDX-License-Identifier: Apache-2.0
#include "server/testing/test_certificates.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <utility>

#include "base/status.h"

namespace hpvm::server {
namespace {

struct Free {
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

template <typename Write>
std::string PemOf(Write write) {
  const std::unique_ptr<BIO, Free> bio(BIO_new(BIO_s_mem()));
  HPVMD_CHECK(write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

void AddExtension(X509* certificate, int nid, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
  HPVMD_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

Certificate MakeCertificate(const CertificateSpec& spec, EVP_PKEY* key, long serial) {
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), spec.begins_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), spec.ends_s);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const std::string text = spec.common_name.value_or("somebody");
  X509_NAME_add_entry_by_txt(subject, spec.common_name.has_value() ? "CN" : "O", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()), -1, 0);
  if (!spec.host.empty()) {
    in_addr address;
    const bool is_address = inet_pton(AF_INET, spec.host.c_str(), &address) == 1;
    AddExtension(certificate.get(), NID_subject_alt_name, (is_address ? "IP:" : "DNS:") + spec.host);
  }
  return certificate;
}

}  // namespace

struct TestAuthority::Parts {
  Key key;
  Certificate certificate;
  std::string pem;
  long next_serial = 2;
};

TestAuthority::TestAuthority(const std::string& name) : parts_(std::make_unique<Parts>()) {
  parts_->key.reset(EVP_EC_gen("P-256"));
  HPVMD_CHECK(parts_->key != nullptr);
  CertificateSpec spec;
  spec.common_name = name;
  parts_->certificate = MakeCertificate(spec, parts_->key.get(), 1);
  X509* certificate = parts_->certificate.get();
  AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate, NID_key_usage, "critical,keyCertSign");
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  HPVMD_CHECK(X509_sign(certificate, parts_->key.get(), EVP_sha256()) > 0);
  parts_->pem = PemOf([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

TestAuthority::~TestAuthority() = default;

const std::string& TestAuthority::certificate() const { return parts_->pem; }

CertifiedKey TestAuthority::Issue(const CertificateSpec& spec) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = MakeCertificate(spec, key.get(), parts_->next_serial++);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(parts_->certificate.get()));
  HPVMD_CHECK(X509_sign(certificate.get(), parts_->key.get(), EVP_sha256()) > 0);
  return {PemOf([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); }), PemOf([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace hpvm::server
