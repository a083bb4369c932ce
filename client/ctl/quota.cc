// SPDX-License-Identifier: Apache-2.0
// hpvmctl quota and hpvmctl whoami: the caller's identity, and the resources that it may use.

#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"

#include "base/status.h"
#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

Status Quota(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::GetUsageResponse usage, Admin(*client).GetUsage(globals.tenant));
  PrintUsage(usage, globals.format);
  return absl::OkStatus();
}

Status WhoAmI(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, client->ServerInfo());
  HPVMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse devices, client->ListDevicesAndSandbox());
  PrintCaller(info, devices.sandbox(), globals.format);
  return absl::OkStatus();
}

}  // namespace

void AddQuota(Commands commands) {
  SetWork(commands,
          AddCommand(
              commands.app, "quota", "Show what your tenant uses and may use",
              "What is held (device-bytes, ..., modules) is free again when it is released; what is spent "
              "(device-seconds,\n"
              "compile-seconds, requests, request-bytes) is earned again in time: AVAILABLE is what may be spent now.\n"
              "Examples:\n"
              "  hpvmctl quota\n"
              "  hpvmctl quota --tenant blur -o json"),
          Quota);
  SetWork(commands,
          AddCommand(commands.app, "whoami",
                     "Show the tenant and role that the server gives you, and the sandbox of your kernels",
                     "Example:\n  hpvmctl whoami"),
          WhoAmI);
}

}  // namespace hpvm::ctl
