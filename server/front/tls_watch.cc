// SPDX-License-Identifier: Apache-2.0
#include "server/front/tls_watch.h"

#include <chrono>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Interval after which a renewed certificate is used.
constexpr Duration kEvery = std::chrono::seconds(1);

std::string TimeText(int64_t unix_s) { return UtcText(unix_s * 1'000'000'000, 0); }

std::string ContentsOf(const TlsFiles& files) { return files.chain + '\n' + files.key + '\n' + files.client_ca; }

}  // namespace

TlsWatch::TlsWatch(const Config& config, TlsFiles first, Observer& observer) : config_(config), observer_(observer) {
  Load(std::move(first));
  thread_.emplace(
      [this] {
        Look();
        return kEvery;
      },
      kEvery);
}

std::optional<TlsFiles> TlsWatch::TakeChanged() {
  std::lock_guard lock(mutex_);
  if (std::exchange(is_taken_, true)) {
    return std::nullopt;
  }
  return files_;
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
  observer_.On(events::CertificateLoaded{absl::OkStatus(), files.not_after_unix_s});
  std::lock_guard lock(mutex_);
  files_ = std::move(files);
  is_taken_ = false;
}

// Logs once for each fault and contents of the files, however long they stay.
void TlsWatch::Refuse(const TlsFiles& files, const Diagnostics& faults) {
  const Status status = ToStatus(faults);
  std::string refused = Message(status) + '\n' + ContentsOf(files);
  if (refused == refused_) {
    return;
  }
  refused_ = std::move(refused);
  LogWarning(
      "The TLS files were rejected; the certificate that was loaded before stays in force",
      {{"error", Message(status)}, {"subject", files_.subject}, {"not_after", TimeText(files_.not_after_unix_s)}});
  observer_.On(events::CertificateLoaded{status, files_.not_after_unix_s});
}

StatusOr<std::unique_ptr<TlsWatch>> WatchTls(const Config& config, Observer& observer) {
  if (config.tls_certificate.empty()) {
    return std::unique_ptr<TlsWatch>();
  }
  Diagnostics faults;
  TlsFiles files = ReadTlsFiles(config, &faults);
  HPVMD_RETURN_IF_ERROR(ToStatus(faults));
  return std::make_unique<TlsWatch>(config, std::move(files), observer);
}

}  // namespace hpvm::server
