// SPDX-License-Identifier: Apache-2.0
// hpvmctl device pause|resume: stops the server from starting work on a device, or allows it again.
#include <stdio.h>

#include <string>

#include "client/ctl/options.h"
#include "client/ctl/report.h"

#include "hpvm/admin.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string device, reason;
};

Status Set(const Globals& globals, const Options& options, bool paused) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::SetDevicePauseResponse response,
                         Admin(*client).SetDevicePause(options.device, paused, options.reason));
  if (globals.format == Format::kJson) {
    PrintData(response, globals.format);
  } else if (paused) {
    printf(
        "No work is started on %s from now on; work that runs there goes on to its end. `hpvmctl device resume %s` "
        "ends the pause.\n",
        options.device.c_str(), options.device.c_str());
  } else {
    printf("Work is started on %s again.\n", options.device.c_str());
  }
  return absl::OkStatus();
}

Status Pause(const Globals& globals, const Options& options) { return Set(globals, options, true); }
Status Resume(const Globals& globals, const Options& options) { return Set(globals, options, false); }

Options& AddOne(Commands commands, CLI::App& app, Status (*work)(const Globals&, const Options&)) {
  Options& options = SetWork(commands, app, work);
  app.add_option("DEVICE", options.device, "Id of the device, as `hpvmctl devices` lists it")->required();
  return options;
}

}  // namespace

void AddDevice(Commands commands) {
  CLI::App* device =
      commands.app.add_subcommand("device", "Pause and resume devices: whether the server starts work on them");
  device->require_subcommand(1);
  CLI::App& pause = AddCommand(
      *device, "pause",
      "Start no more work on a device: work goes elsewhere or waits, and work that runs there goes on to its end",
      "For administrators. The pause outlasts restarts; `hpvmctl device resume` ends it.\n"
      "Example:\n  hpvmctl device pause cpu:0 --reason \"new fans\"");
  AddWord(pause, "--reason", AddOne(commands, pause, Pause).reason,
          "Reason, which every tenant sees; at most 255 bytes");
  AddOne(commands,
         AddCommand(*device, "resume", "Start work on a device again, after a pause or a fault that fenced it",
                    "For administrators.\nExample:\n  hpvmctl device resume cpu:0"),
         Resume);
}

}  // namespace hpvm::ctl
