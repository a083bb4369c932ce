// SPDX-License-Identifier: Apache-2.0
#include "server/cluster_admin.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace hpvm::server {
namespace {

constexpr std::string_view kVersion = "version:", kAddress = "address:";

v1::HostIntake ToPublic(cluster::HostIntake intake) {
  switch (intake) {
    case cluster::HostIntake::kOpen:
      return v1::HOST_INTAKE_OPEN;
    case cluster::HostIntake::kCordoned:
      return v1::HOST_INTAKE_CORDONED;
    case cluster::HostIntake::kDraining:
      return v1::HOST_INTAKE_DRAINING;
  }
  return v1::HOST_INTAKE_UNSPECIFIED;
}

cluster::HostIntake FromPublic(v1::HostIntake intake) {
  return intake == v1::HOST_INTAKE_CORDONED   ? cluster::HostIntake::kCordoned
         : intake == v1::HOST_INTAKE_DRAINING ? cluster::HostIntake::kDraining
                                              : cluster::HostIntake::kOpen;
}

Status NoSuchHost(const std::string& host) {
  return NotFound("No host \"" + host.substr(0, 80) + "\" ever joined the cluster.");
}

}  // namespace

void ClusterAdmin::Fill(const cluster::HostView& view, v1::Host* host) const {
  host->set_name(view.name);
  host->set_state(view.is_live ? v1::Host::STATE_LIVE : view.has_left ? v1::Host::STATE_LEFT : v1::Host::STATE_LOST);
  host->set_intake(ToPublic(view.intake));
  for (const std::string& word : view.has) {
    if (word.starts_with(kVersion)) {
      host->set_version(word.substr(kVersion.size()));
    } else if (word.starts_with(kAddress)) {
      host->set_address(word.substr(kAddress.size()));
    } else {
      host->add_words(word);
    }
  }
  host->set_jobs(view.running);
  host->set_memory_bytes(view.memory_bytes);
  host->set_memory_used_bytes(view.memory_used_bytes);
  host->set_is_self(view.name == self_);
}

void ClusterAdmin::List(v1::ListHostsResponse* response, Done done) {
  store_.ListHosts([this, response, done = std::move(done)](const StatusOr<std::vector<cluster::HostView>>& hosts) {
    for (const cluster::HostView& view : hosts.value_or(std::vector<cluster::HostView>())) {
      Fill(view, response->add_hosts());
    }
    done(hosts.status());
  });
}

void ClusterAdmin::SetIntake(const std::string& host, v1::HostIntake intake, v1::Host* host_out, Done done) {
  const auto show = [this, host, host_out, done](const StatusOr<std::vector<cluster::HostView>>& hosts) {
    if (!hosts.ok()) {
      done(hosts.status());
      return;
    }
    const auto found = std::find_if(hosts->begin(), hosts->end(), [&](const auto& view) { return view.name == host; });
    if (found == hosts->end()) {
      done(NoSuchHost(host));
      return;
    }
    Fill(*found, host_out);
    done(absl::OkStatus());
  };
  store_.SetIntake(host, FromPublic(intake), [this, host, done, show](const StatusOr<cluster::Nothing>& set) {
    if (!set.ok()) {
      done(absl::IsNotFound(set.status()) || absl::IsInvalidArgument(set.status()) ? NoSuchHost(host) : set.status());
      return;
    }
    store_.ListHosts(show);
  });
}

}  // namespace hpvm::server
