// SPDX-License-Identifier: Apache-2.0
#include "server/front/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string_view>

#include "base/limits.h"
#include "server/front/socket_bio.h"

namespace hpvm::server {
namespace {

// The ciphers that gRPC offered before and HTTP/2 allows: with forward secrecy and authentication.
constexpr char kCiphers12[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-RSA-AES256-GCM-SHA384";
constexpr char kCiphers13[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// Limit of a client's certificate chain, which is read before the client is known.
constexpr long kClientChainBytesMax = 32 * limits::kKiB;
constexpr size_t kReadAheadBytes = 64 * limits::kKiB;
constexpr std::string_view kHttp2 = "h2";

struct Free {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;

Bio Over(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

Status Failed(const char* what) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  const Status status =
      InvalidArgument("TLS cannot use " + std::string(what) + " (" + (reason == nullptr ? "no reason" : reason) + ").");
  ERR_clear_error();
  return status;
}

// The client offers a list of length-prefixed names.
int ChooseHttp2(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                unsigned int offered_size, void*) {
  for (unsigned int at = 0; at < offered_size; at += 1 + offered[at]) {
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
    if (name == kHttp2) {
      *chosen = offered + at + 1;
      *size = offered[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// Called for each TLS protocol message.
void OnMessage(int is_sent, int, int content, const void*, size_t, SSL* ssl, void*) {
  if (is_sent == 0 && content == SSL3_RT_HANDSHAKE) {
    CountTlsMessage(SSL_get_rbio(ssl));
  }
}

Status UseChain(SSL_CTX* context, const TlsFiles& files) {
  const Bio chain = Over(files.chain);
  for (bool is_first = true;; is_first = false) {
    Certificate certificate(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) {
      ERR_clear_error();  // The end of the list; the code that read the files has checked for damage.
      break;
    }
    if ((is_first ? SSL_CTX_use_certificate(context, certificate.get())
                  : SSL_CTX_add1_chain_cert(context, certificate.get())) != 1) {
      return Failed("the certificate");
    }
  }
  const Bio text = Over(files.key);
  const std::unique_ptr<EVP_PKEY, Free> key(PEM_read_bio_PrivateKey(text.get(), nullptr, nullptr, nullptr));
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1 ? absl::OkStatus()
                                                                           : Failed("the private key");
}

Status UseAuthorities(SSL_CTX* context, const TlsFiles& files, bool is_required) {
  const Bio text = Over(files.client_ca);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  while (const Certificate authority{PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)}) {
    if (X509_STORE_add_cert(store, authority.get()) != 1 || SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return Failed("the clients' authorities");
    }
  }
  ERR_clear_error();
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (is_required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  return absl::OkStatus();
}

}  // namespace

StatusOr<SslContext> MakeTlsContext(const TlsFiles& files, const std::string& client_certificates) {
  SslContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context.get(), kCiphers12) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), kCiphers13) != 1) {
    return Failed("its ciphers");
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_max_cert_list(context.get(), kClientChainBytesMax);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseHttp2, nullptr);
  HPVMD_RETURN_IF_ERROR(UseChain(context.get(), files));
  if (client_certificates != "none") {
    HPVMD_RETURN_IF_ERROR(UseAuthorities(context.get(), files, client_certificates == "required"));
  }
  return context;
}

SslPtr MakeTlsSession(SSL_CTX* context, int fd) {
  SslPtr ssl(SSL_new(context));
  BIO* bio = ssl == nullptr ? nullptr : MakeSocketBio(fd);
  if (bio == nullptr) {
    ERR_clear_error();
    return nullptr;
  }
  SSL_set_bio(ssl.get(), bio, bio);  // Takes ownership.
  SSL_set_msg_callback(ssl.get(), OnMessage);
  SSL_set_accept_state(ssl.get());
  // Takes effect later: during the handshake nothing is read beyond it, so that the following bytes are still in the
  // socket, where gRPC waits for them.
  SSL_set_default_read_buffer_len(ssl.get(), kReadAheadBytes);
  return ssl;
}

std::vector<std::string> CertificateNames(SSL* ssl) {
  const Certificate certificate(SSL_get1_peer_certificate(ssl));
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) {
    return {};
  }
  std::vector<std::string> names;
  const X509_NAME* subject = X509_get_subject_name(certificate.get());
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    unsigned char* text = nullptr;
    const int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    names.emplace_back(size < 0 ? "" : std::string(reinterpret_cast<char*>(text), static_cast<size_t>(size)));
    OPENSSL_free(text);
  }
  return names.empty() ? std::vector<std::string>{""} : names;
}

bool IsHttp2(const SSL* ssl) {
  const unsigned char* chosen = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl, &chosen, &size);
  return std::string_view(reinterpret_cast<const char*>(chosen), size) == kHttp2;
}

}  // namespace hpvm::server
