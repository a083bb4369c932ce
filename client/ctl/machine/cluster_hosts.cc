// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/machine/cluster_hosts.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "client/ctl/text/text.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kWordsColumns = 36;

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

bool IsLive(const v1::Host& host) { return host.state() == v1::Host::STATE_LIVE; }

std::string NameOr(const std::string& name, std::string_view prefix, const char* otherwise, int value) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : otherwise + std::to_string(value);
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

// Returns "kind:cpu, device:cpu:0 and 3 more", whose words fit `columns`; the first word is always there.
std::string WordsText(const v1::Host& host, size_t columns) {
  std::string text;
  for (int i = 0; i < host.words_size(); ++i) {
    if (i > 0 && text.size() + host.words(i).size() + 2 > columns) {
      return text + " and " + std::to_string(host.words_size() - i) + " more";
    }
    text += (i == 0 ? "" : ", ") + host.words(i);
  }
  return OrDash(text);
}

std::string MemoryText(uint64_t used_bytes, uint64_t bytes) {
  return bytes == 0 ? "-" : BytesText(used_bytes) + " of " + BytesText(bytes);
}

struct Summary {
  std::map<v1::Host::State, uint64_t> states;
  std::map<v1::HostIntake, uint64_t> intakes;
  std::map<std::string, std::vector<std::string>> versions;  // Names of hosts by version.
  uint64_t jobs = 0, memory_bytes = 0, memory_used_bytes = 0;
  std::string self;
};

Summary SummaryOf(const std::vector<v1::Host>& hosts) {
  Summary summary;
  for (const v1::Host& host : hosts) {
    ++summary.states[host.state()];
    summary.jobs += host.jobs();
    if (host.is_self()) {
      summary.self = host.name();
    }
    if (IsLive(host)) {
      ++summary.intakes[host.intake()];
      summary.versions[host.version()].push_back(host.name());
      summary.memory_bytes += host.memory_bytes();
      summary.memory_used_bytes += host.memory_used_bytes();
    }
  }
  return summary;
}

// Returns "2 LIVE, 1 LOST".
template <typename Value, typename Name>
std::string CountsText(const std::map<Value, uint64_t>& counts, Name name_of) {
  std::vector<std::string> parts;
  for (const auto& [value, count] : counts) {
    parts.push_back(std::to_string(count) + " " + name_of(value));
  }
  return OrDash(Joined(parts));
}

std::vector<std::string> VersionRow(const Summary& summary) {
  if (summary.versions.size() < 2) {
    return {"version", summary.versions.empty() ? "-" : OrDash(summary.versions.begin()->first)};
  }
  std::vector<std::string> parts;
  for (const auto& [version, names] : summary.versions) {
    parts.push_back(OrDash(version) + " (" + Joined(names) + ")");
  }
  return {"versions", "they differ: " + Joined(parts)};
}

}  // namespace

const v1::Host* FindHost(const std::vector<v1::Host>& hosts, std::string_view name) {
  const auto found = std::ranges::find_if(hosts, [&](const v1::Host& host) { return host.name() == name; });
  return found == hosts.end() ? nullptr : &*found;
}

std::string StateText(v1::Host::State state) { return NameOr(v1::Host::State_Name(state), "STATE_", "STATE ", state); }

std::string IntakeText(v1::HostIntake intake) {
  return NameOr(v1::HostIntake_Name(intake), "HOST_INTAKE_", "INTAKE ", intake);
}

std::string JobsText(uint64_t jobs) { return std::to_string(jobs) + (jobs == 1 ? " job" : " jobs"); }

std::vector<std::vector<std::string>> HostRows(const std::vector<v1::Host>& hosts, bool wide) {
  std::vector<std::vector<std::string>> rows = {
      {"", "HOST", "STATE", "INTAKE", "JOBS", "MEMORY", "VERSION", "ADDRESS", "WORDS"}};
  for (const v1::Host& host : hosts) {
    rows.push_back({host.is_self() ? "*" : "", host.name(), StateText(host.state()), IntakeText(host.intake()),
                    std::to_string(host.jobs()), MemoryText(host.memory_used_bytes(), host.memory_bytes()),
                    OrDash(host.version()), OrDash(host.address()), WordsText(host, wide ? SIZE_MAX : kWordsColumns)});
  }
  return rows;
}

std::string SummaryText(const std::vector<v1::Host>& hosts) {
  const Summary summary = SummaryOf(hosts);
  return Table({{"hosts", CountsText(summary.states, [](v1::Host::State state) { return StateText(state); })},
                {"intake", CountsText(summary.intakes, IntakeText)},
                {"jobs", JobsText(summary.jobs) + " claimed"},
                {"memory", MemoryText(summary.memory_used_bytes, summary.memory_bytes)},
                {"answers", OrDash(summary.self)},
                VersionRow(summary)});
}

Json SummaryJson(const std::vector<v1::Host>& hosts) {
  const Summary summary = SummaryOf(hosts);
  Json json = {{"self", summary.self},
               {"hosts", Json::object()},
               {"intake", Json::object()},
               {"jobs", summary.jobs},
               {"memory_bytes", summary.memory_bytes},
               {"memory_used_bytes", summary.memory_used_bytes},
               {"versions", Json::object()}};
  for (const auto& [state, count] : summary.states) {
    json["hosts"][StateText(state)] = count;
  }
  for (const auto& [intake, count] : summary.intakes) {
    json["intake"][IntakeText(intake)] = count;
  }
  for (const auto& [version, names] : summary.versions) {
    json["versions"][version] = names;
  }
  return json;
}

std::string IntakeSentences(const v1::Host& host) {
  const std::string again = " `hpvmctl cluster uncordon " + host.name() + "` opens it again.";
  std::string text = "Host " + host.name();
  switch (host.intake()) {
    case v1::HOST_INTAKE_OPEN:
      text += " takes jobs again.";
      break;
    case v1::HOST_INTAKE_CORDONED:
      text += " takes no more jobs; what it has (" + JobsText(host.jobs()) + ") goes on." + again;
      break;
    case v1::HOST_INTAKE_DRAINING:
      text += " takes no more jobs, and gives back what it has (" + JobsText(host.jobs()) + ")." + again;
      break;
    default:
      text += " has the setting " + IntakeText(host.intake()) + ".";
  }
  return text + (IsLive(host) ? "" : " The host is " + StateText(host.state()) + "; the setting waits for it.");
}

double AverageJobs(const std::vector<v1::Host>& hosts) {
  double jobs = 0, count = 0;
  for (const v1::Host& host : hosts) {
    if (IsLive(host) && host.intake() == v1::HOST_INTAKE_OPEN) {
      jobs += static_cast<double>(host.jobs());
      count += 1;
    }
  }
  return count == 0 ? 0 : jobs / count;
}

bool HoldsTooMany(const v1::Host& host, double average) {
  return IsLive(host) && host.intake() == v1::HOST_INTAKE_OPEN && static_cast<double>(host.jobs()) > average + 1;
}

std::vector<v1::Host> HostsWithTooMany(const std::vector<v1::Host>& hosts) {
  std::vector<v1::Host> found;
  std::ranges::copy_if(hosts, std::back_inserter(found),
                       [average = AverageJobs(hosts)](const v1::Host& host) { return HoldsTooMany(host, average); });
  return found;
}

}  // namespace hpvm::ctl
