// SPDX-License-Identifier: Apache-2.0
// hpvmctl doctor: what keeps work from running, or from running well, each with the next step to take.
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include "client/status/status.h"
#include <nlohmann/json.hpp>

#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

enum class Grade : uint8_t { kGood, kWarning, kFault };

struct Finding {
  Grade grade = Grade::kGood;
  std::string what, next;  // The next step; empty where all is well.
};

class Findings {
 public:
  void Good(std::string what) { all_.push_back({Grade::kGood, std::move(what), ""}); }
  void Warn(std::string what, std::string next) { all_.push_back({Grade::kWarning, std::move(what), std::move(next)}); }
  void Fault(std::string what, std::string next) { all_.push_back({Grade::kFault, std::move(what), std::move(next)}); }
  const std::vector<Finding>& all() const { return all_; }

 private:
  std::vector<Finding> all_;
};

std::string LineOf(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Features of this machine's kernel; they matter where the server is on it.
void LookAtKernel(Findings& findings) {
  if (LineOf("/proc/sys/user/max_user_namespaces") == "0" ||
      LineOf("/proc/sys/kernel/unprivileged_userns_clone") == "0") {
    findings.Warn("Users may make no namespaces here: executors of a server without root get a weaker sandbox.",
                  "Set kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0 (sysctl), or run hpvmd "
                  "as root with "
                  "executor.uid_first.");
  } else {
    findings.Good("Users may make namespaces.");
  }
  constexpr unsigned kAskVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION.
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion);
  if (version < 1) {
    findings.Warn("The kernel has no Landlock: executors are kept from files by namespaces alone.",
                  "Start the kernel with landlock in its lsm= list (Linux 5.13 and later).");
  } else {
    findings.Good("Landlock " + std::to_string(version) + ".");
  }
}

// Nodes of graphics devices that are there and that the caller may not open: the usual reason for missing devices.
void LookAtDeviceNodes(Findings& findings) {
  for (const char* folder : {"/dev/dri", "/dev"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      const bool is_gpu = name.starts_with("renderD") ||
                          (name.starts_with("nvidia") && name.size() > 6 && name[6] >= '0' && name[6] <= '9');
      if (is_gpu && access(entry.path().c_str(), R_OK | W_OK) != 0) {
        findings.Warn("You may not open " + entry.path().string() + ", and a server under your user could not either.",
                      "Add the server's user to the node's group: usermod -aG video,render USER.");
      }
    }
  }
}

void LookAtVersions(const v1::ServerInfoResponse& info, Findings& findings) {
  if (info.version() != HPVMD_VERSION) {
    findings.Warn("The server is version " + info.version() + ", hpvmctl is " HPVMD_VERSION ".",
                  "Use the same version of both where something is missing.");
  } else {
    findings.Good("The server answers; version " + info.version() + ", tenant " + info.tenant() + ", role " +
                  info.role() + ".");
  }
  if (info.state() == v1::ServerInfoResponse::STATE_DRAINING) {
    findings.Fault("The server is stopping.", "Wait until it is back.");
  }
}

void LookAtDevices(const v1::ListDevicesResponse& devices, Findings& findings) {
  bool is_any_ready = false;
  for (const v1::Device& device : devices.devices()) {
    const std::string named = device.id() + " (" + device.name() + ")";
    if (device.state() == v1::Device::STATE_READY) {
      is_any_ready = true;
      findings.Good(named + " is ready.");
    } else if (device.state() == v1::Device::STATE_PROBING) {
      findings.Warn(named + " was lost by a run and is being tried out: " + device.detail(),
                    "Wait; `hpvmctl devices --watch` shows when it works again.");
    } else {
      findings.Fault(
          named + " is broken: " + device.detail(),
          "Mend its driver or permissions, then let the server look again: systemctl reload hpvmd (SIGHUP).");
    }
    for (const v1::DriverDefect& defect : device.defects()) {
      findings.Warn(device.id() + "'s driver computes wrongly: " + defect.reason(),
                    defect.in_generated_code()
                        ? "hpvmd generates no code for it; install another version of the driver."
                        : "Modules written for the device may be wrong there; install another version of the driver.");
    }
  }
  if (!is_any_ready) {
    findings.Fault("No device can be used.",
                   "Look at `hpvmctl devices`, and at devices.backends of the server's configuration.");
  }
  const v1::Sandbox& sandbox = devices.sandbox();
  if (!sandbox.known()) {
    findings.Good("The sandbox is known when the first kernel has run.");
  } else if (sandbox.level() < sandbox.level_min()) {
    findings.Fault("Your kernels run at sandbox level " + std::to_string(sandbox.level()) + ", and " +
                       std::to_string(sandbox.level_min()) + " is demanded: nothing runs. " + sandbox.detail(),
                   "docs/OPERATIONS.md, \"Sandbox\", says what each level needs.");
  } else if (sandbox.level() < 4) {
    findings.Warn("Your kernels run at sandbox level " + std::to_string(sandbox.level()) + " of 4: " + sandbox.detail(),
                  "docs/OPERATIONS.md, \"Sandbox\", says what each level needs.");
  } else {
    findings.Good("Your kernels run at sandbox level 4 of 4.");
  }
}

void LookAtUse(const v1::GetUsageResponse& usage, Findings& findings) {
  for (const v1::ResourceUsage& resource : usage.resources()) {
    const bool is_spent = resource.period_ns() > 0;
    const bool is_out =
        resource.limit() > 0 && (is_spent ? resource.available() == 0 : resource.used() >= resource.limit());
    if (is_out) {
      findings.Fault(
          "The tenant's quota of " + resource.resource() + " is used up.",
          is_spent ? "More is earned with time (`hpvmctl quota`), or an administrator raises it: hpvmctl tenant update."
                   : "Give something back (`hpvmctl quota` says what is held), or an administrator raises it: hpvmctl "
                     "tenant update.");
    } else if (resource.refused() > 0) {
      findings.Warn("The tenant's quota of " + resource.resource() + " refused something " +
                        std::to_string(resource.refused()) + " times.",
                    "`hpvmctl quota` says what is used and allowed.");
    }
  }
}

void LookAtOverview(const v1::GetOverviewResponse& now, Findings& findings) {
  if (now.intake().closed()) {
    findings.Fault(
        "The server starts nothing" + (now.intake().reason().empty() ? std::string(".") : ": " + now.intake().reason()),
        "An administrator opens it again: hpvmctl readmit.");
  }
  constexpr int64_t kLongNs = 600'000'000'000;
  for (const v1::TenantLoad& tenant : now.tenants()) {
    if (tenant.disabled()) {
      findings.Warn("Tenant " + tenant.name() + " is disabled: its calls are refused and its jobs wait.",
                    "An administrator enables it again: hpvmctl tenant enable " + tenant.name() + ".");
    } else if (tenant.oldest_queued_unix_ns() != 0 && now.time_unix_ns() - tenant.oldest_queued_unix_ns() > kLongNs) {
      findings.Warn(
          "A job of tenant " + tenant.name() + " waits since " + TimeText(tenant.oldest_queued_unix_ns()) + ".",
          "`hpvmctl list --state live -o wide` says why (WHY); `hpvmctl top` shows who has the devices.");
    }
  }
}

// Asks for one part, and says why where it cannot be had.
template <typename Answer>
void Look(const StatusOr<Answer>& answer, const char* what, void (*look)(const Answer&, Findings&),
          Findings& findings) {
  if (answer.ok()) {
    look(*answer, findings);
  } else if (answer.status().code() == absl::StatusCode::kUnimplemented) {
    findings.Warn(std::string("The server is too old to say ") + what + ".", "Upgrade the server.");
  } else {
    findings.Fault(std::string("The server does not say ") + what + ": " + Message(answer.status()),
                   "`hpvmctl whoami` says as whom the server knows you, and its log what went wrong.");
  }
}

void LookAtServer(const Globals& globals, Findings& findings) {
  const StatusOr<std::unique_ptr<Client>> client = globals.Connect();
  if (!client.ok()) {
    findings.Fault(
        Message(client.status()),
        "Start one (systemctl start hpvmd, or hpvmd --dev), or name one with --server, a profile or $HPVM_SERVER.");
    return;
  }
  Admin admin(**client);
  Look((*client)->ServerInfo(), "which version it is", LookAtVersions, findings);
  Look((*client)->ListDevicesAndSandbox(), "which devices it has", LookAtDevices, findings);
  Look(admin.GetUsage(globals.tenant), "what the tenant uses", LookAtUse, findings);
  Look(admin.GetOverview(0), "whether it takes work", LookAtOverview, findings);
}

void PrintFindings(const Globals& globals, const Findings& findings) {
  static constexpr const char* kNames[] = {"good", "warning", "fault"};
  if (globals.format == Format::kJson) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& finding : findings.all()) {
      list.push_back(
          {{"grade", kNames[static_cast<size_t>(finding.grade)]}, {"finding", finding.what}, {"next", finding.next}});
    }
    PrintData(list, globals.format);
    return;
  }
  for (const Finding& finding : findings.all()) {
    printf("%-8s %s\n", kNames[static_cast<size_t>(finding.grade)], Printable(finding.what).c_str());
    if (!finding.next.empty()) {
      printf("         -> %s\n", finding.next.c_str());
    }
  }
}

Status Doctor(const Globals& globals, ExitCode* code) {
  Findings findings;
  LookAtServer(globals, findings);
  LookAtKernel(findings);
  LookAtDeviceNodes(findings);
  PrintFindings(globals, findings);
  for (const Finding& finding : findings.all()) {
    *code = finding.grade == Grade::kFault ? kFailed : *code;
  }
  return absl::OkStatus();
}

}  // namespace

void AddDoctor(Commands commands) {
  SetWork(
      commands,
      AddCommand(commands.app, "doctor", "What keeps work from running, or from running well, and what to do about it",
                 "Looks at the server, its devices and drivers, the sandbox, the tenant's quotas, and this machine's "
                 "kernel and\n"
                 "permissions. Exit code 1 when something is a fault.\n"
                 "Examples:\n  hpvmctl doctor\n  hpvmctl doctor -o json"),
      Doctor);
}

}  // namespace hpvm::ctl
