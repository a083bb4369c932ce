// SPDX-License-Identifier: Apache-2.0
// hpvmctl devices.
#include <stdio.h>

#include "client/ctl/options.h"
#include "client/ctl/report.h"

namespace hpvm::ctl {
namespace {

struct Options {
  bool watch = false;
};

// Prints a line for each current device and for each change, until interrupted.
Status WatchDevices(const Globals& globals, Client& client) {
  bool with_heading = true;
  return client.WatchDevices([&](const v1::ListDevicesResponse&, const std::vector<DeviceChange>& changes) {
    for (const DeviceChange& change : changes) {
      PrintDeviceLine(change.device, change.kind == DeviceChange::Kind::kGone, globals.format, with_heading);
      with_heading = false;
    }
    return true;
  });
}

Status Devices(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  if (options.watch) {
    return WatchDevices(globals, *client);
  }
  HPVMD_ASSIGN_OR_RETURN(const v1::ListDevicesResponse response, client->ListDevicesAndSandbox());
  PrintDevices(response, globals.format);
  if (response.devices().empty()) {
    fprintf(stderr, "hpvmctl: the server has no devices yet; it looks for them when it starts.\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddDevices(Commands commands) {
  CLI::App& devices =
      AddCommand(commands.app, "devices", "List the devices that hpvmd runs kernels on",
                 "With -o wide also the sandbox level at which your kernels run, and what that level prevents.\n"
                 "Examples:\n  hpvmctl devices\n  hpvmctl devices -o wide\n  hpvmctl devices --watch");
  devices.add_flag("-w,--watch", SetWork(commands, devices, Devices).watch,
                   "Keep running, and print a line for each device that appears, changes or disappears");
}

}  // namespace hpvm::ctl
