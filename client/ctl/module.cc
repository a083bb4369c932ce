// SPDX-License-Identifier: Apache-2.0
// hpvmctl module put; list and delete are in held.cc.
#include <stdio.h>

#include <memory>

#include "client/ctl/document_files.h"
#include "client/ctl/options.h"

#include "base/bytes.h"

namespace hpvm::ctl {
namespace {

Status Put(const Globals& globals, const std::string& file) {
  HPVMD_ASSIGN_OR_RETURN(std::string bytes, ReadModuleFile(file));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(std::string hash, client->PutModule(BytesOf(bytes), v1::MODULE_KIND_UNSPECIFIED, file));
  puts(hash.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddModule(Commands commands) {
  CLI::App* module = commands.app.add_subcommand("module", "Upload, list and delete modules");
  module->require_subcommand(1);
  CLI::App& put =
      AddCommand(*module, "put", "Upload a module and print its SHA-256, for {\"sha256\": ...} in documents",
                 "Example:\n  hpvmctl module put matmul.wasm");
  put.add_option("file", SetWork(commands, put, Put))->required();
  AddHeldModules(commands, *module);
}

}  // namespace hpvm::ctl
