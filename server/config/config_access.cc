// SPDX-License-Identifier: Apache-2.0
#include "server/config/config_access.h"

#include <optional>
#include <string>
#include <utility>

namespace hpvm::server {
namespace {

void Report(Diagnostics* out, std::string place, std::string message) {
  out->push_back({Severity::kError, std::move(place), std::nullopt, std::move(message)});
}

}  // namespace

void CheckAccess(const Config& config, const std::vector<ListenAddress>& addresses, Diagnostics* out) {
  const bool has_tls = !config.tls_certificate.empty();
  const bool asks_certificates = config.tls_client_certificates != "none";
  for (const ListenAddress& address : addresses) {
    if (address.is_public && !(has_tls && (config.auth_tokens || config.auth_certificates))) {
      Report(out, "server.listen",
             "The listen address (\"" + address.target +
                 "\") is reachable from other machines, which needs TLS (tls.certificate, tls.key) and credentials "
                 "(auth.tokens or auth.certificates). Or use a Unix socket or a loopback address (127.0.0.1, [::1], "
                 "localhost).");
    }
  }
  if (!config.metrics_listen.empty()) {
    const StatusOr<ListenAddress> metrics = ParseMetricsListen(config.metrics_listen);
    if (!metrics.ok()) {
      Report(out, "metrics.listen", Message(metrics.status()));
    } else if (metrics->is_public && !(has_tls && (config.auth_tokens || !config.metrics_token_file.empty()))) {
      Report(out, "metrics.listen",
             "The address (\"" + metrics->target +
                 "\") is reachable from other machines, which needs TLS (tls.certificate, tls.key) and credentials "
                 "(metrics.token_file, or auth.tokens). Or use a loopback address (127.0.0.1, [::1], localhost).");
    }
  }
  if (has_tls != !config.tls_key.empty()) {
    Report(out, has_tls ? "tls.key" : "tls.certificate", "A certificate and its key must be given together.");
  }
  if (asks_certificates && (!has_tls || config.tls_client_ca.empty())) {
    Report(out, "tls.client_certificates",
           "Clients' certificates are requested, which needs tls.certificate and the authorities in tls.client_ca.");
  }
  if (config.auth_certificates && !asks_certificates) {
    Report(out, "auth.certificates",
           "Clients' certificates are accepted as credentials, but tls.client_certificates (\"none\") requests none.");
  }
}

}  // namespace hpvm::server
