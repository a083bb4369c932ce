// SPDX-License-Identifier: Apache-2.0
// hpvmctl costs.
#include <stdio.h>

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/report.h"
#include "client/ctl/text/cost_text.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

Status Costs(const Globals& globals, const std::string& handle) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const v1::ListCostsResponse costs, client->ListCosts(handle));
  switch (globals.format) {
    case Format::kJson:
      PrintJson(costs);
      break;
    case Format::kName:
      for (const v1::KernelCost& kernel : costs.kernels()) {
        puts(Printable(kernel.kernel()).c_str());
      }
      break;
    default:
      fputs(Printable(CostText(costs.kernels(), costs.more())).c_str(), stdout);
      if (!costs.transfers().empty()) {
        printf("\n%s", Printable(CostText(costs.transfers())).c_str());
      }
      break;
  }
  if (costs.kernels().empty()) {
    fprintf(stderr, "hpvmctl: nothing is known: your executor holds no graph whose kernels were measured.\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddCosts(Commands commands) {
  CLI::App* command = commands.app.add_subcommand("costs", "How long kernels take, as estimated and as measured");
  const auto handle = std::make_shared<std::string>();
  command->add_option("--handle", *handle, "Only kernels of this prepared graph")
      ->check(CLI::Validator(RefuseEmpty, ""));
  command->footer(
      "One line a kernel, device and size: launches of up to so many instances, and more than half of them. ERROR is "
      "how\n"
      "far predictions were off, on average. ~ marks what was never measured.\n"
      "Examples:\n  hpvmctl costs\n  hpvmctl costs -o json");
  SetWork(commands, *command, [=](const Globals& globals) { return Costs(globals, *handle); });
}

}  // namespace hpvm::ctl
