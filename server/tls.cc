// SPDX-License-Identifier: Apache-2.0
#include "server/tls.h"

#include <errno.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstdio>
#include <string>

namespace hpvm {
namespace {

// How soon a certificate that was renewed is shown.
constexpr unsigned kRefreshSeconds = 5;

struct Close {
  void operator()(FILE* file) const { std::fclose(file); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using File = std::unique_ptr<FILE, Close>;
using Certificate = std::unique_ptr<X509, Close>;

StatusOr<File> Open(const char* key, const std::string& path) {
  File file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) {
    return FromErrno(errno, std::string("Opening ") + key + " \"" + path + "\"");
  }
  return file;
}

StatusOr<Certificate> ReadCertificate(const char* key, const std::string& path) {
  HPVMD_ASSIGN_OR_RETURN(const File file, Open(key, path));
  Certificate certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return InvalidArgument(std::string("The file of ") + key + " (\"" + path + "\") has no certificate in PEM's form.");
  }
  return certificate;
}

Status CheckKeyMode(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return FromErrno(errno, "Looking at tls.key \"" + path + "\"");
  }
  constexpr mode_t kForbidden = S_IWGRP | S_IRWXO;
  if ((info.st_mode & kForbidden) != 0) {
    return FailedPrecondition("The private key \"" + path +
                              "\" may be read by others or written by its group; its mode should be 0600 or 0640.");
  }
  return absl::OkStatus();
}

// A password would have to be asked for, and here is nobody to ask.
int NoPassword(char*, int, int, void*) { return 0; }

}  // namespace

Status CheckTlsFiles(const Config& config) {
  HPVMD_RETURN_IF_ERROR(CheckKeyMode(config.tls_key));
  HPVMD_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("tls.certificate", config.tls_certificate));
  HPVMD_ASSIGN_OR_RETURN(const File key_file, Open("tls.key", config.tls_key));
  const std::unique_ptr<EVP_PKEY, Close> key(PEM_read_PrivateKey(key_file.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return InvalidArgument("The file of tls.key (\"" + config.tls_key +
                           "\") has no private key in PEM's form without a password.");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return InvalidArgument("The private key \"" + config.tls_key + "\" does not belong to the certificate \"" +
                           config.tls_certificate + "\".");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) <= 0) {
    return FailedPrecondition("The certificate \"" + config.tls_certificate + "\" has expired.");
  }
  if (config.tls_client_certificates != "none") {
    HPVMD_RETURN_IF_ERROR(ReadCertificate("tls.client_ca", config.tls_client_ca).status());
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Config& config) {
  if (config.tls_certificate.empty()) {
    return grpc::InsecureServerCredentials();
  }
  HPVMD_RETURN_IF_ERROR(CheckTlsFiles(config));
  const bool asks = config.tls_client_certificates != "none";
  const auto files = asks ? std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
                                config.tls_key, config.tls_certificate, config.tls_client_ca, kRefreshSeconds)
                          : std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
                                config.tls_key, config.tls_certificate, kRefreshSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (asks) {
    options.watch_root_certs();
  }
  // One that is shown is verified, always.
  options.set_cert_request_type(!asks ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                : config.tls_client_certificates == "required"
                                    ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace hpvm
