// SPDX-License-Identifier: Apache-2.0
// hpvmctl doctor: reports what keeps work from running, or from running well, each with the next step to take.
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
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
  std::string what, next;  // The next step is empty where all is well.
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

// Checks features of this machine's kernel; they matter when the server runs on it.
void LookAtKernel(Findings& findings) {
  if (LineOf("/proc/sys/user/max_user_namespaces") == "0" ||
      LineOf("/proc/sys/kernel/unprivileged_userns_clone") == "0") {
    findings.Warn(
        "Users without privileges cannot create namespaces here: executors of a server without root get a weaker "
        "sandbox.",
        "Set kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0 (sysctl), or run hpvmd "
        "as root with "
        "executor.uid_first.");
  } else {
    findings.Good("Users without privileges can create namespaces.");
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

// Checks for device nodes of GPUs that the caller may not open: the usual reason for missing devices.
void LookAtDeviceNodes(Findings& findings) {
  for (const char* folder : {"/dev/dri", "/dev"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      const bool is_gpu = name.starts_with("renderD") ||
                          (name.starts_with("nvidia") && name.size() > 6 && name[6] >= '0' && name[6] <= '9');
      if (is_gpu && access(entry.path().c_str(), R_OK | W_OK) != 0) {
        findings.Warn(
            "You may not open " + entry.path().string() + "; a server that runs as your user could not open it either.",
            "Add the server's user to the node's group: usermod -aG video,render USER.");
      }
    }
  }
}

void LookAtVersions(const v1::ServerInfoResponse& info, Findings& findings) {
  if (info.version() != HPVMD_VERSION) {
    findings.Warn("The server is version " + info.version() + ", hpvmctl is " HPVMD_VERSION ".",
                  "If something does not work, use the same version of both.");
  } else {
    findings.Good("The server answers; version " + info.version() + ", tenant " + info.tenant() + ", role " +
                  info.role() + ".");
  }
  if (info.state() == v1::ServerInfoResponse::STATE_DRAINING) {
    findings.Fault("The server is stopping.", "Wait until it is back.");
  }
}

void LookAtHealth(const v1::Device& device, Findings& findings) {
  const v1::DeviceHealth& health = device.health();
  if (health.throttled()) {
    findings.Warn(device.id() + " is slowed down by heat or power.",
                  "Look at its cooling and its power limit; `hpvmctl devices -o wide` shows what it draws.");
  }
  if (!health.has_last_xid() || !health.fence().empty()) {
    return;
  }
  const std::string xid = "Xid " + std::to_string(health.last_xid());
  constexpr uint64_t kOfApplications[] = {13, 31, 43, 45};
  if (std::find(std::begin(kOfApplications), std::end(kOfApplications), health.last_xid()) !=
      std::end(kOfApplications)) {
    // The server's own probe for driver defects causes one at each start.
    findings.Good("The driver stopped an application on " + device.id() + " (" + xid +
                  "); the device is not affected.");
  } else {
    findings.Warn("The driver reported a fault of " + device.id() + ": " + xid + ".",
                  "NVIDIA's document \"XID Errors\" explains it.");
  }
}

void LookAtDevices(const v1::ListDevicesResponse& devices, Findings& findings) {
  bool is_any_ready = false;
  for (const v1::Device& device : devices.devices()) {
    const std::string named = device.id() + " (" + device.name() + ")";
    if (device.has_paused()) {
      findings.Warn(named + " is paused" +
                        (device.paused().reason().empty() ? std::string(".") : ": " + device.paused().reason() + "."),
                    "An administrator ends the pause: hpvmctl device resume " + device.id() + ".");
    } else if (!device.health().fence().empty()) {
      findings.Fault(named + " is fenced: " + device.health().fence(),
                     "Reset or replace it, then `hpvmctl device resume " + device.id() +
                         "`; a fence for heat ends by itself (docs/OPERATIONS.md, \"Devices out of service\").");
    } else if (device.state() == v1::Device::STATE_LEFT_OUT) {
      findings.Good(named + " is left out. " + device.detail());
    } else if (device.state() == v1::Device::STATE_READY) {
      is_any_ready = true;
      findings.Good(named + " is ready.");
    } else if (device.state() == v1::Device::STATE_PROBING) {
      findings.Warn(named + " failed during a run and is being tested: " + device.detail(),
                    "Wait; `hpvmctl devices --watch` shows when it works again.");
    } else {
      findings.Fault(
          named + " is broken: " + device.detail(),
          "Repair its driver or permissions, then let the server look again: systemctl reload hpvmd (SIGHUP).");
    }
    LookAtHealth(device, findings);
    for (const v1::DriverDefect& defect : device.defects()) {
      findings.Warn(device.id() + "'s driver computes wrong results: " + defect.reason(),
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
    findings.Good("The sandbox level is not known until the first kernel has run.");
  } else if (sandbox.level() < sandbox.level_min()) {
    findings.Fault("Your kernels run at sandbox level " + std::to_string(sandbox.level()) + ", and " +
                       std::to_string(sandbox.level_min()) + " is required: nothing runs. " + sandbox.detail(),
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
      findings.Fault("The tenant's quota of " + resource.resource() + " is used up.",
                     is_spent ? "Wait: it is earned again in time (`hpvmctl quota`); or an administrator raises it: "
                                "hpvmctl tenant quota."
                              : "Release something (`hpvmctl quota` shows what is held), or an administrator raises "
                                "it: hpvmctl tenant quota.");
    } else if (resource.refused() > 0) {
      findings.Warn("The tenant's quota of " + resource.resource() + " has refused " +
                        std::to_string(resource.refused()) + " requests.",
                    "`hpvmctl quota` shows what is used and allowed.");
    }
  }
}

void LookAtOverview(const v1::GetOverviewResponse& now, Findings& findings) {
  if (now.intake().closed()) {
    findings.Fault(
        "The server starts no work" + (now.intake().reason().empty() ? std::string(".") : ": " + now.intake().reason()),
        "An administrator opens it again: hpvmctl readmit.");
  }
  constexpr int64_t kLongNs = 600'000'000'000;
  for (const v1::TenantLoad& tenant : now.tenants()) {
    if (tenant.disabled()) {
      findings.Warn("Tenant " + tenant.name() + " is disabled: its calls are refused and its jobs wait.",
                    "An administrator enables it again: hpvmctl tenant enable " + tenant.name() + ".");
    } else if (tenant.oldest_queued_unix_ns() != 0 && now.time_unix_ns() - tenant.oldest_queued_unix_ns() > kLongNs) {
      findings.Warn(
          "A job of tenant " + tenant.name() + " has waited since " + TimeText(tenant.oldest_queued_unix_ns()) + ".",
          "`hpvmctl list --state live -o wide` shows why (WHY); `hpvmctl top` shows who uses the devices.");
    }
  }
}

// Examines one response, or reports why it is not available.
template <typename Answer>
void Look(const StatusOr<Answer>& answer, const char* what, void (*look)(const Answer&, Findings&),
          Findings& findings) {
  if (answer.ok()) {
    look(*answer, findings);
  } else if (answer.status().code() == absl::StatusCode::kUnimplemented) {
    findings.Warn(std::string("The server is too old to report ") + what + ".", "Upgrade the server.");
  } else {
    findings.Fault(
        std::string("The server does not report ") + what + ": " + Message(answer.status()),
        "`hpvmctl whoami` shows the tenant and role that the server gives you, and the server's log what went wrong.");
  }
}

void LookAtServer(const Globals& globals, Findings& findings) {
  const StatusOr<std::unique_ptr<Client>> client = globals.Connect();
  if (!client.ok()) {
    findings.Fault(Message(client.status()),
                   "Start a server (systemctl start hpvmd, or hpvmd --dev), or name one with --server, a profile or "
                   "$HPVM_SERVER.");
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
      AddCommand(commands.app, "doctor",
                 "Find what keeps work from running, or from running well, and say what to do about it",
                 "Looks at the server, its devices and drivers, the sandbox, the tenant's quotas, and this machine's "
                 "kernel and\n"
                 "permissions. Exit code 1 when something is a fault.\n"
                 "Examples:\n  hpvmctl doctor\n  hpvmctl doctor -o json"),
      Doctor);
}

}  // namespace hpvm::ctl
