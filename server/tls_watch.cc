// SPDX-License-Identifier: Apache-2.0
#include "server/tls_watch.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <time.h>

#include <chrono>
#include <utility>

#include "server/log.h"

namespace hpvm {
namespace {

// How soon a certificate that was renewed is shown.
constexpr auto kEvery = std::chrono::seconds(1);

std::string TimeText(int64_t unix_s) {
  const time_t seconds = unix_s;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// All that the files held, as one text.
std::string ContentsOf(const TlsFiles& files) { return files.chain + '\n' + files.key + '\n' + files.client_ca; }

grpc_ssl_client_certificate_request_type RequestOf(const Config& config) {
  // One that is shown is verified, always.
  return config.tls_client_certificates == "required"   ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
         : config.tls_client_certificates == "optional" ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                                        : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
}

// By gRPC, before each handshake.
grpc_ssl_certificate_config_reload_status Fetch(void* watch, grpc_ssl_server_certificate_config** config) {
  const std::optional<TlsFiles> files = static_cast<TlsWatch*>(watch)->TakeChanged();
  if (!files.has_value()) {
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  const grpc_ssl_pem_key_cert_pair pair{files->key.c_str(), files->chain.c_str()};
  // gRPC ends the process where there are no authorities, also when it asks no client for a certificate, as is so then
  // (server/config_access.h): it gets the server's own chain, and verifies nobody by it.
  const std::string& authorities = files->client_ca.empty() ? files->chain : files->client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

class Credentials final : public grpc::ServerCredentials {
 public:
  Credentials(const Config& config, TlsFiles first, Observer& observer)
      : watch_(config, std::move(first), observer),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(RequestOf(config), Fetch, &watch_))) {}
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  // The gate looks at calls; nothing is processed here.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  TlsWatch watch_;  // Outlives the server, which keeps these credentials.
  grpc_server_credentials* const credentials_;
};

}  // namespace

TlsWatch::TlsWatch(const Config& config, TlsFiles first, Observer& observer) : config_(config), observer_(observer) {
  Load(std::move(first));
  thread_ = std::thread([this] { Loop(); });
}

TlsWatch::~TlsWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

std::optional<TlsFiles> TlsWatch::TakeChanged() {
  std::lock_guard lock(mutex_);
  if (std::exchange(is_taken_, true)) {
    return std::nullopt;
  }
  return files_;
}

void TlsWatch::Loop() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kEvery, [this] { return stop_; })) {
    lock.unlock();
    Look();
    lock.lock();
  }
}

void TlsWatch::Look() {
  Diagnostics faults;
  TlsFiles files = ReadTlsFiles(config_, &faults);
  if (HasErrors(faults)) {
    Refuse(files, faults);
  } else if (ContentsOf(files) != ContentsOf(files_) || !refused_.empty()) {
    refused_.clear();
    Load(std::move(files));
  }
}

void TlsWatch::Load(TlsFiles files) {
  LogInfo(
      "A TLS certificate was loaded",
      {{"subject", files.subject}, {"not_after", TimeText(files.not_after_unix_s)}, {"file", config_.tls_certificate}});
  observer_.OnCertificate(absl::OkStatus(), files.not_after_unix_s);
  std::lock_guard lock(mutex_);
  files_ = std::move(files);
  is_taken_ = false;
}

// Once for each fault and each contents of the files, however long they stay.
void TlsWatch::Refuse(const TlsFiles& files, const Diagnostics& faults) {
  const Status status = ToStatus(faults);
  std::string refused = Message(status) + '\n' + ContentsOf(files);
  if (refused == refused_) {
    return;
  }
  refused_ = std::move(refused);
  LogWarning(
      "The TLS files were not taken; the certificate that was loaded before stays in force",
      {{"error", Message(status)}, {"subject", files_.subject}, {"not_after", TimeText(files_.not_after_unix_s)}});
  observer_.OnCertificate(status, files_.not_after_unix_s);
}

std::shared_ptr<grpc::ServerCredentials> WatchedCredentials(const Config& config, TlsFiles first, Observer& observer) {
  return std::make_shared<Credentials>(config, std::move(first), observer);
}

}  // namespace hpvm
