// SPDX-License-Identifier: Apache-2.0
// The hosts of a cluster: texts about them, and which of them hold too many jobs. Pure.
#ifndef HPVMD_CLIENT_CTL_MACHINE_CLUSTER_HOSTS_H_
#define HPVMD_CLIENT_CTL_MACHINE_CLUSTER_HOSTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "hpvm/v1/operations.pb.h"

namespace hpvm::ctl {

// Returns null when no host has the name.
const v1::Host* FindHost(const std::vector<v1::Host>& hosts, std::string_view name);

// Returns "LIVE" for STATE_LIVE and "DRAINING" for HOST_INTAKE_DRAINING; "STATE 7" and "INTAKE 7" for unknown values.
std::string StateText(v1::Host::State state);
std::string IntakeText(v1::HostIntake intake);
// Returns "1 job" or "3 jobs".
std::string JobsText(uint64_t jobs);

// Returns rows for Table(). A "*" marks the host that answered. The narrow ones count words that do not fit.
std::vector<std::vector<std::string>> HostRows(const std::vector<v1::Host>& hosts, bool wide);

// A summary of a cluster. Intake, memory and versions are those of live hosts.
std::string SummaryText(const std::vector<v1::Host>& hosts);
nlohmann::ordered_json SummaryJson(const std::vector<v1::Host>& hosts);

// Returns what a setting means for the host, as one or two sentences.
std::string IntakeSentences(const v1::Host& host);

// Returns the average number of jobs of live hosts that take jobs; 0 when there is no such host.
double AverageJobs(const std::vector<v1::Host>& hosts);
// Returns true for a live host that takes jobs and holds over one more than that average.
bool HoldsTooMany(const v1::Host& host, double average);
// Returns the hosts that hold too many, by name.
std::vector<v1::Host> HostsWithTooMany(const std::vector<v1::Host>& hosts);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_MACHINE_CLUSTER_HOSTS_H_
