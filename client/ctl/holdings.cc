// SPDX-License-Identifier: Apache-2.0
// hpvmctl graph list|release, buffer list|delete and module list|delete: lists what the tenant holds on the server,
// and releases it when the program that made it has gone.
#include <stdio.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>

#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm::ctl {
namespace {

std::string ShapeText(const v1::Buffer& buffer) {
  if (buffer.type() == v1::ELEMENT_TYPE_UNSPECIFIED) {
    return buffer.registered() ? "shared memory" : "-";
  }
  const std::vector<uint64_t> shape(buffer.shape().begin(), buffer.shape().end());
  return Describe(static_cast<ElementType>(buffer.type()), shape);
}

template <typename Item, typename Row>
std::string RowsText(const std::vector<Item>& items, std::vector<std::string> heading, const Row& row) {
  std::vector<std::vector<std::string>> rows = {std::move(heading)};
  std::transform(items.begin(), items.end(), std::back_inserter(rows), row);
  return Table(rows);
}

Status ListGraphs(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::PreparedGraph> graphs, client->ListGraphs());
  const auto row = [](const v1::PreparedGraph& graph) {
    return std::vector{graph.handle(), graph.name() + (graph.check() ? " (check)" : ""),
                       TimeText(graph.created_unix_ns()), DurationText(graph.idle_ns()),
                       graph.graph_sha256().substr(0, 12)};
  };
  PrintList(graphs, globals.format, &v1::PreparedGraph::handle, [&] {
    return RowsText(graphs, {"HANDLE", "GRAPH", "CREATED", "UNUSED FOR", "SHA-256"}, row);
  });
  return absl::OkStatus();
}

Status ListBuffers(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Buffer> buffers, client->ListBuffers());
  const auto row = [](const v1::Buffer& buffer) {
    return std::vector{buffer.id(), BytesText(buffer.size_bytes()), ShapeText(buffer),
                       TimeText(buffer.created_unix_ns()), DurationText(buffer.idle_ns())};
  };
  PrintList(buffers, globals.format, &v1::Buffer::id, [&] {
    return RowsText(buffers, {"BUFFER", "SIZE", "TENSOR", "CREATED", "UNUSED FOR"}, row);
  });
  return absl::OkStatus();
}

// Applies `give_back` to each id; returns the first failure and prints the others.
Status EachOf(const std::vector<std::string>& ids, const std::function<Status(const std::string&)>& give_back) {
  Status first;
  for (const std::string& id : ids) {
    const Status status = give_back(id);
    if (!status.ok() && !first.ok()) {
      Report(status);
    }
    first.Update(status);
  }
  return first;
}

std::string KindOf(const v1::StoredModule& module) {
  if (module.is_graph()) {
    return "graph";
  }
  constexpr std::string_view kPrefix = "MODULE_KIND_";
  const std::string name = v1::ModuleKind_Name(module.kind());
  return module.kind() == v1::MODULE_KIND_UNSPECIFIED || !name.starts_with(kPrefix) ? "-" : name.substr(kPrefix.size());
}

Status ListModules(const Globals& globals) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::StoredModule> modules, client->ListModules());
  const bool is_wide = globals.format == Format::kWide;
  const auto row = [is_wide](const v1::StoredModule& module) {
    return std::vector{is_wide ? module.sha256() : module.sha256().substr(0, 12),
                       module.name(),
                       KindOf(module),
                       BytesText(module.size_bytes()),
                       TimeText(module.created_unix_ns()),
                       module.in_use() ? "in use" : DurationText(module.idle_ns())};
  };
  PrintList(modules, globals.format, &v1::StoredModule::sha256, [&] {
    return RowsText(modules, {"SHA-256", "NAME", "KIND", "SIZE", "CREATED", "UNUSED FOR"}, row);
  });
  return absl::OkStatus();
}

// Returns the only module whose SHA-256 begins with the word, because the table shows hashes that short.
StatusOr<std::string> WholeHash(const std::vector<v1::StoredModule>& modules, const std::string& word) {
  std::vector<std::string> found;
  for (const v1::StoredModule& module : modules) {
    if (module.sha256().starts_with(word)) {
      found.push_back(module.sha256());
    }
  }
  if (found.empty()) {
    return NotFound("No module or document of the tenant has a SHA-256 that begins with \"" + word + "\".");
  }
  return found.size() == 1 ? StatusOr<std::string>(found.front())
                           : InvalidArgument("\"" + word + "\" is how the SHA-256 of " + std::to_string(found.size()) +
                                             " modules begins; give more digits.");
}

Status DeleteModule(Client& client, const std::string& word, const std::vector<v1::StoredModule>& modules) {
  HPVMD_ASSIGN_OR_RETURN(const std::string hash, WholeHash(modules, word));
  return client.DeleteModule(hash);
}

Status DeleteModules(const Globals& globals, const std::vector<std::string>& words) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::StoredModule> modules, client->ListModules());
  return EachOf(words, [&](const std::string& word) { return DeleteModule(*client, word, modules); });
}

Status GiveBack(const Globals& globals, const std::vector<std::string>& ids,
                Status (Client::*give_back)(const std::string&, const CallOptions&)) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  return EachOf(ids, [&](const std::string& id) { return (*client.*give_back)(id, {}); });
}

void AddList(Commands commands, CLI::App& group, const char* description, const char* example,
             Status (*list)(const Globals&)) {
  SetWork(commands, AddCommand(group, "list", description, std::string("Example:\n  ") + example), list);
}

void AddGiveBack(Commands commands, CLI::App& group, const char* name, const char* description, const char* ids,
                 const char* example,
                 std::function<Status(const Globals&, const std::vector<std::string>&)> give_back) {
  CLI::App& command = AddCommand(group, name, description, std::string("Example:\n  ") + example);
  const auto words = std::make_shared<std::vector<std::string>>();  // Shared by the option and the action.
  command.add_option(ids, *words, "What to release; without any, the command does nothing");
  SetWork(commands, command, [=](const Globals& globals) -> Status {
    // `hpvmctl buffer delete $(hpvmctl buffer list -o name)` without buffers succeeds.
    if (words->empty()) {
      fputs("hpvmctl: nothing was named, so nothing is released.\n", stderr);
      return absl::OkStatus();
    }
    return give_back(globals, *words);
  });
}

auto With(Status (Client::*give_back)(const std::string&, const CallOptions&)) {
  return [give_back](const Globals& globals, const std::vector<std::string>& ids) {
    return GiveBack(globals, ids, give_back);
  };
}

}  // namespace

void AddHeldGraphs(Commands commands, CLI::App& graph) {
  AddList(commands, graph, "List the graphs that your tenant holds prepared on the server, whoever prepared them",
          "hpvmctl graph list", ListGraphs);
  AddGiveBack(commands, graph, "release", "Release prepared graphs", "handle",
              "hpvmctl graph release $(hpvmctl graph list -o name)", With(&Client::Release));
}

void AddBuffers(Commands commands) {
  CLI::App* buffer = commands.app.add_subcommand(
      "buffer", "List and delete buffers: data that your tenant keeps on the server between runs");
  buffer->require_subcommand(1);
  AddList(commands, *buffer, "List the buffers of your tenant, whoever made them", "hpvmctl buffer list", ListBuffers);
  AddGiveBack(commands, *buffer, "delete", "Delete buffers", "buffer",
              "hpvmctl buffer delete $(hpvmctl buffer list -o name)", With(&Client::DeleteBuffer));
}

void AddHeldModules(Commands commands, CLI::App& module) {
  AddList(commands, module, "List the modules and graph documents of your tenant on the server", "hpvmctl module list",
          ListModules);
  AddGiveBack(commands, module, "delete", "Delete modules and graph documents that nothing uses", "sha256",
              "hpvmctl module delete 5f3a09c1be42", DeleteModules);
}

}  // namespace hpvm::ctl
