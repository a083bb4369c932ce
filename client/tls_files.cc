// SPDX-License-Identifier: Apache-2.0
// Checks the files of TLS before gRPC gets them: gRPC would only report that no connection was made.
#include <unistd.h>

#include <memory>

#include "client/channel.h"
#include "client/files/input_file.h"

#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/x509.h"

namespace hpvm {
namespace {

constexpr size_t kPemBytesMax = 1 << 20;
constexpr const char* kSystemAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                              "/etc/ssl/cert.pem"};

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

Owned<X509> FirstCertificate(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Owned<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Owned<EVP_PKEY> KeyOf(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // Without this OpenSSL would ask the terminal for a passphrase.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

StatusOr<std::string> ReadCertificates(const std::string& path, const char* what) {
  HPVMD_ASSIGN_OR_RETURN(std::string pem, ReadInputText(path, kPemBytesMax));
  if (FirstCertificate(pem) == nullptr) {
    const bool is_key = pem.find("PRIVATE KEY-----") != std::string::npos;
    return InvalidArgument("The file of the " + std::string(what) + " (" + Quoted(path) + ") holds " +
                           (is_key ? "a private key" : "no certificate in PEM") + ".");
  }
  return pem;
}

Status CheckTime(const X509* certificate, const std::string& path) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return InvalidArgument("The client's certificate (" + Quoted(path) + ") has expired.");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return InvalidArgument("The client's certificate (" + Quoted(path) + ") is not valid yet.");
  }
  return absl::OkStatus();
}

StatusOr<std::string> ReadKey(const std::string& path, const X509* certificate, const std::string& certificate_path) {
  HPVMD_ASSIGN_OR_RETURN(std::string pem, ReadInputText(path, kPemBytesMax));
  const Owned<EVP_PKEY> key = KeyOf(pem);
  if (key == nullptr) {
    const bool is_locked = pem.find("ENCRYPTED") != std::string::npos;
    return InvalidArgument("The file of the private key (" + Quoted(path) + ") holds " +
                           (is_locked
                                ? "an encrypted key, which nobody can unlock here; give a key without a passphrase"
                                : "no private key in PEM") +
                           ".");
  }
  const bool belongs = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (!belongs) {
    return InvalidArgument("The private key (" + Quoted(path) + ") does not belong to the certificate (" +
                           Quoted(certificate_path) + ").");
  }
  return pem;
}

}  // namespace

StatusOr<TlsFiles> ReadTlsFiles(const Credentials& credentials) {
  TlsFiles files;
  if (!credentials.ca_file.empty()) {
    HPVMD_ASSIGN_OR_RETURN(files.authorities, ReadCertificates(credentials.ca_file, "authorities"));
  } else {
    for (const char* path : kSystemAuthorities) {
      if (access(path, R_OK) == 0) {
        HPVMD_ASSIGN_OR_RETURN(files.authorities, ReadCertificates(path, "system's authorities"));
        break;
      }
    }
  }
  if (!credentials.HasCertificate()) {
    return files;
  }
  HPVMD_ASSIGN_OR_RETURN(files.certificate, ReadCertificates(credentials.certificate_file, "client's certificate"));
  const Owned<X509> certificate = FirstCertificate(files.certificate);
  HPVMD_RETURN_IF_ERROR(CheckTime(certificate.get(), credentials.certificate_file));
  HPVMD_ASSIGN_OR_RETURN(files.key, ReadKey(credentials.key_file, certificate.get(), credentials.certificate_file));
  return files;
}

}  // namespace hpvm
