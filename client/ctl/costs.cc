// SPDX-License-Identifier: Apache-2.0
// hpvmctl costs.
#include <stdio.h>

#include <memory>
#include <string>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/cost_text.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

Status Costs(const Globals& globals, const std::string& handle) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::ListCostsResponse costs, client->ListCosts(handle));
  if (globals.format == Format::kJson) {
    PrintData(costs, globals.format);
  } else {
    PrintList(costs.kernels(), globals.format, &v1::KernelCost::kernel, [&] {
      return CostText(costs.kernels(), costs.more()) +
             (costs.transfers().empty() ? "" : "\n" + CostText(costs.transfers()));
    });
  }
  if (costs.kernels().empty()) {
    fprintf(stderr, "hpvmctl: there are no costs to show: your executor holds no graph whose kernels were measured.\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddCosts(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "costs", "Show how long kernels take, as estimated and as measured",
                 "One line per kernel, device and size. A size stands for launches of up to that many instances and of "
                 "more than half\n"
                 "as many. ERROR is how far predictions were off, on average. ~ marks what was never measured.\n"
                 "Examples:\n"
                 "  hpvmctl costs\n"
                 "  hpvmctl costs -o json");
  AddWord(command, "--handle", SetWork(commands, command, Costs), "Only kernels of this prepared graph");
}

}  // namespace hpvm::ctl
