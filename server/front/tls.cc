// SPDX-License-Identifier: Apache-2.0
#include "server/front/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/io/fd.h"
#include "base/limits.h"
#include "base/status.h"

namespace hpvm::server {
namespace {

constexpr size_t kFileBytesMax = 4 * limits::kMiB;

struct Free {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

void Report(Diagnostics* faults, const char* place, std::string message) {
  faults->push_back({Severity::kError, place, std::nullopt, std::move(message)});
}

// Returns OpenSSL's last error message.
std::string OpenSslError() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "no reason is given" : reason;
}

// Mode and contents come from the same file, even if it is renamed meanwhile.
StatusOr<std::string> ReadFile(const std::string& path, mode_t* mode) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return FromErrno(errno, "Opening \"" + path + "\"");
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("\"" + path + "\" is not a file.");
  }
  *mode = info.st_mode;
  std::string text(kFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno != EINTR) {
      return FromErrno(errno, "Reading \"" + path + "\"");
    }
    if (count == 0) {
      break;
    }
    size += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  if (size > kFileBytesMax) {
    return InvalidArgument("\"" + path + "\" is larger than the limit (" + std::to_string(kFileBytesMax) + " bytes).");
  }
  text.resize(size);
  return text;
}

Bio Over(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// Returns the certificates in the order of the file; skips other blocks, including keys. Returns none and adds a
// fault when there is none or one is damaged.
std::vector<Certificate> ParseCertificates(const char* place, const std::string& path, const std::string& text,
                                           Diagnostics* faults) {
  std::vector<Certificate> certificates;
  const Bio bio = Over(text);
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(next);
  }
  const bool is_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string error = OpenSslError();
  if (certificates.empty()) {
    Report(faults, place, "The file \"" + path + "\" has no certificate in PEM format.");
  } else if (!is_end) {
    Report(faults, place,
           "Certificate " + std::to_string(certificates.size() + 1) + " of the file \"" + path + "\" is damaged (" +
               error + ").");
    certificates.clear();
  }
  return certificates;
}

void CheckKeyMode(const std::string& path, mode_t mode, Diagnostics* faults) {
  constexpr mode_t kForbidden = S_IWGRP | S_IRWXO;
  if ((mode & kForbidden) != 0) {
    char text[8];
    snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode & 07777));
    Report(faults, "tls.key",
           "The private key \"" + path + "\" may be read by others or written by its group (mode " + text +
               "); its mode should be 0600 or 0640.");
  }
}

// Encrypted keys are refused, because nobody can be asked for a password.
int NoPassword(char*, int, int, void*) { return 0; }

Key ParseKey(const std::string& path, const std::string& text, Diagnostics* faults) {
  const Bio bio = Over(text);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    Report(faults, "tls.key", "The file \"" + path + "\" has no private key in PEM format without a password.");
  }
  return key;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

std::string SubjectOf(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_ONELINE & ~XN_FLAG_SPC_EQ);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// Loads the files as a server does for each connection: OpenSSL refuses keys that are too weak for it, too.
Status TryOut(const std::vector<Certificate>& chain, EVP_PKEY* key) {
  const std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_server_method()));
  bool is_fit = context != nullptr && SSL_CTX_use_certificate(context.get(), chain[0].get()) == 1 &&
                SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  for (size_t i = 1; is_fit && i < chain.size(); ++i) {
    is_fit = SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  const std::string error = OpenSslError();
  return is_fit ? absl::OkStatus() : InvalidArgument(error);
}

void CheckPair(const Config& config, const std::vector<Certificate>& chain, EVP_PKEY* key, Diagnostics* faults) {
  X509* certificate = chain[0].get();
  const std::string named = "The certificate \"" + config.tls_certificate + "\" ";
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) {
    Report(faults, "tls.certificate", named + "has expired.");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    Report(faults, "tls.certificate", named + "is not valid yet.");
  }
  if (key == nullptr) {
    return;
  }
  if (X509_check_private_key(certificate, key) != 1) {
    ERR_clear_error();
    Report(faults, "tls.key",
           "The private key \"" + config.tls_key + "\" does not belong to the certificate \"" + config.tls_certificate +
               "\".");
  } else if (const Status tried = TryOut(chain, key); !tried.ok()) {
    Report(faults, "tls.certificate", named + "and its key cannot be used: " + Message(tried) + ".");
  }
}

}  // namespace

TlsFiles ReadTlsFiles(const Config& config, Diagnostics* faults) {
  TlsFiles files;
  const auto read = [&](const char* place, const std::string& path, std::string* text, mode_t* mode) {
    StatusOr<std::string> got = ReadFile(path, mode);
    if (!got.ok()) {
      Report(faults, place, Message(got.status()));
      return false;
    }
    *text = *std::move(got);
    return true;
  };
  mode_t mode = 0;
  std::vector<Certificate> chain;
  const bool has_chain = read("tls.certificate", config.tls_certificate, &files.chain, &mode);
  if (has_chain) {
    chain = ParseCertificates("tls.certificate", config.tls_certificate, files.chain, faults);
  }
  Key key;
  const bool is_one_file = config.tls_key == config.tls_certificate;
  if (is_one_file) {
    files.key = files.chain;
  }
  if (is_one_file ? has_chain : read("tls.key", config.tls_key, &files.key, &mode)) {
    CheckKeyMode(config.tls_key, mode, faults);
    key = ParseKey(config.tls_key, files.key, faults);
  }
  if (!chain.empty()) {
    files.subject = SubjectOf(chain[0].get());
    files.not_after_unix_s = UnixSeconds(X509_get0_notAfter(chain[0].get()));
    CheckPair(config, chain, key.get(), faults);
  }
  if (config.tls_client_certificates != "none" &&
      read("tls.client_ca", config.tls_client_ca, &files.client_ca, &mode)) {
    ParseCertificates("tls.client_ca", config.tls_client_ca, files.client_ca, faults);
  }
  return files;
}

}  // namespace hpvm::server
