// SPDX-License-Identifier: Apache-2.0
// hpvmctl module put.
#include <stdio.h>

#include <memory>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/document_files.h"

namespace hpvm::ctl {
namespace {

Status Put(const Globals& globals, const std::string& file) {
  HPVMD_ASSIGN_OR_RETURN(std::string bytes, ReadModuleFile(file));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(std::string hash,
                         client->PutModule({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                           v1::MODULE_KIND_UNSPECIFIED, file));
  puts(hash.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddModule(Commands commands) {
  auto file =
      std::make_shared<std::string>();  // Shared by the option table and the action, which outlive this function.
  CLI::App* module = commands.app.add_subcommand("module", "Upload modules");
  module->require_subcommand(1);
  CLI::App* put =
      module->add_subcommand("put", "Upload a module and print its SHA-256, for {\"sha256\": ...} in documents");
  put->add_option("file", *file)->required();
  put->footer("Example:\n  hpvmctl module put matmul.wasm");
  SetWork(commands, *put, [=](const Globals& globals) { return Put(globals, *file); });
}

}  // namespace hpvm::ctl
