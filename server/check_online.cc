// SPDX-License-Identifier: Apache-2.0
#include "server/check_online.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "hpvm/admin.h"
#include "server/config/address.h"
#include "server/config/config_reload.h"
#include "server/front/tls.h"

namespace hpvm::server {
namespace {

constexpr int64_t kDayS = 86'400, kCertificateDaysMin = 14;

void CompareConfigs(const Config& running, const Config& wanted, OnlineCheck* check) {
  const StatusOr<ConfigReload> reload = MergeReload(running, wanted);
  if (!reload.ok()) {
    check->is_ready = false;
    check->lines.push_back("A reload would be refused: " + Message(reload.status()));
    return;
  }
  for (const std::string& key : reload->changed) {
    check->lines.push_back("A reload changes " + DescribeChange(running, wanted, key) + ".");
  }
  for (const std::string& key : reload->kept) {
    check->lines.push_back("A restart changes " + DescribeChange(running, wanted, key) +
                           "; a reload keeps the old value.");
  }
  if (reload->changed.empty() && reload->kept.empty()) {
    check->lines.emplace_back("The daemon runs with this configuration.");
  }
}

void DescribeDaemon(Client& client, OnlineCheck* check) {
  const StatusOr<v1::GetOverviewResponse> overview = Admin(client).GetOverview(0);
  if (!overview.ok()) {
    return;
  }
  size_t ready = 0;
  for (const v1::DeviceLoad& load : overview->devices()) {
    ready += load.device().state() == v1::Device::STATE_READY;
    if (load.device().state() == v1::Device::STATE_BROKEN) {
      check->lines.push_back("Device " + load.device().id() + " is broken: " + load.device().detail());
    }
  }
  check->lines.push_back(std::to_string(ready) + " of " + std::to_string(overview->devices_size()) +
                         " devices are ready.");
  if (overview->intake().closed()) {
    check->lines.push_back("The daemon starts no work until `hpvmctl readmit`: " + overview->intake().reason());
  }
}

// Returns false when nobody answers there.
bool AskDaemon(const ListenAddress& address, const Config& config, OnlineCheck* check) {
  ClientOptions options;
  options.endpoint = (address.is_unix ? "unix:" : "") + address.target;
  options.connect_timeout = std::chrono::seconds(2);
  options.patience = Duration{0};
  const StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
  if (!client.ok()) {
    return false;
  }
  const StatusOr<v1::ServerInfoResponse> info = (*client)->ServerInfo();
  if (absl::IsUnavailable(info.status()) || absl::IsDeadlineExceeded(info.status())) {
    return false;
  }
  const std::string where = "\"" + options.endpoint + "\"";
  if (!info.ok()) {
    check->is_ready = false;
    check->lines.push_back("The server on " + where + " does not accept this user: " + Message(info.status()));
    return true;
  }
  check->lines.push_back("A daemon of version " + info->version() + " serves on " + where +
                         "; this program is " HPVMD_VERSION ".");
  const StatusOr<v1::GetConfigResponse> running = Admin(**client).GetConfig();
  if (!running.ok()) {
    check->is_ready = false;
    check->lines.push_back("The daemon's configuration cannot be read: " + Message(running.status()));
    return true;
  }
  ConfigOutcome parsed = ParseConfig(running->toml());
  if (HasErrors(parsed.diagnostics)) {  // A daemon of another version; the known keys are compared.
    check->lines.push_back("This program does not know every key of the daemon's configuration: " +
                           Message(ToStatus(parsed.diagnostics)));
  }
  CompareConfigs(parsed.config, config, check);
  DescribeDaemon(**client, check);
  return true;
}

// Returns an empty string when the address can be bound.
std::string TryAddress(const HostPort& at) {
  const std::string host = at.host == "localhost" ? "127.0.0.1" : at.host;
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), at.port.c_str(), &hints, &found) != 0) {
    return "its host is not known";
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
  const UniqueFd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0) {
    return Message(FromErrno(errno, "bind"));
  }
  return "";
}

void TryAddresses(const std::vector<ListenAddress>& addresses, const Config& config, OnlineCheck* check) {
  std::vector<std::pair<std::string, HostPort>> all;
  for (const ListenAddress& address : addresses) {
    if (!address.is_unix) {
      all.emplace_back("server.listen (\"" + address.target + "\")", SplitHostPort(address));
    }
  }
  if (const StatusOr<ListenAddress> metrics = ParseMetricsListen(config.metrics_listen);
      !config.metrics_listen.empty() && metrics.ok()) {
    all.emplace_back("metrics.listen (\"" + metrics->target + "\")", SplitHostPort(*metrics));
  }
  for (const auto& [name, at] : all) {
    if (const std::string fault = TryAddress(at); !fault.empty()) {
      check->is_ready = false;
      check->lines.push_back("The address of " + name + " cannot be used: " + fault);
    }
  }
}

void CheckCertificate(const Config& config, OnlineCheck* check) {
  if (config.tls_certificate.empty()) {
    return;
  }
  Diagnostics faults;
  const TlsFiles files = ReadTlsFiles(config, &faults);
  const int64_t days = (files.not_after_unix_s - RealClock().WallNs() / 1'000'000'000) / kDayS;
  if (!HasErrors(faults) && days < kCertificateDaysMin) {
    check->lines.push_back("The certificate of tls.certificate expires in " +
                           std::to_string(std::max<int64_t>(days, 0)) + " days.");
  }
}

}  // namespace

OnlineCheck CheckOnline(const Config& config) {
  OnlineCheck check;
  const std::vector<ListenAddress> addresses = ParseListen(config.server_listen).value_or(std::vector<ListenAddress>{});
  const auto ask = [&](const ListenAddress& address) {
    return !address.is_public && (address.is_unix || config.tls_certificate.empty()) &&
           AskDaemon(address, config, &check);
  };
  if (!std::any_of(addresses.begin(), addresses.end(), ask)) {
    check.lines.emplace_back("No daemon answers on server.listen.");
    TryAddresses(addresses, config, &check);
  }
  CheckCertificate(config, &check);
  return check;
}

}  // namespace hpvm::server
