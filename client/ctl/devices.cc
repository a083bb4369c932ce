// SPDX-License-Identifier: Apache-2.0
// hpvmctl devices.
#include <stdio.h>

#include "client/ctl/options.h"
#include "client/ctl/report.h"

namespace hpvm::ctl {
namespace {

Status Devices(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response, client->ListDevicesAndSandbox());
  PrintDevices(response, globals.format);
  if (response.devices().empty()) {
    fprintf(stderr, "hpvmctl: the server has no devices yet; it looks for them when it starts.\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddDevices(Commands commands) {
  SetWork(commands,
          AddCommand(commands.app, "devices", "The devices that hpvmd runs kernels on",
                     "With -o wide also the sandbox level at which your kernels run, and what it keeps them from.\n"
                     "Examples:\n  hpvmctl devices\n  hpvmctl devices -o wide"),
          Devices);
}

}  // namespace hpvm::ctl
