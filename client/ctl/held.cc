// SPDX-License-Identifier: Apache-2.0
// hpvmctl graph list|release and buffer list|delete: what the tenant holds on the server, and giving it back when the
// program that made it has gone.
#include <stdio.h>

#include <algorithm>
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

// Each of them; the first failure is the command's, the others are said.
Status GiveBack(const Globals& globals, const std::vector<std::string>& ids,
                Status (Client::*give_back)(const std::string&, const CallOptions&)) {
  // `hpvmctl buffer delete $(hpvmctl buffer list -o name)` when there are none: then all is done.
  if (ids.empty()) {
    fputs("hpvmctl: nothing was named, so nothing is given back.\n", stderr);
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  Status first;
  for (const std::string& id : ids) {
    const Status status = (*client.*give_back)(id, {});
    if (!status.ok() && !first.ok()) {
      Report(status);
    }
    first.Update(status);
  }
  return first;
}

void AddList(Commands commands, CLI::App& group, const char* description, const char* example,
             Status (*list)(const Globals&)) {
  SetWork(commands, AddCommand(group, "list", description, std::string("Example:\n  ") + example), list);
}

void AddGiveBack(Commands commands, CLI::App& group, const char* name, const char* description, const char* ids,
                 const char* example, Status (Client::*give_back)(const std::string&, const CallOptions&)) {
  CLI::App& command = AddCommand(group, name, description, std::string("Example:\n  ") + example);
  const auto words = std::make_shared<std::vector<std::string>>();  // Shared by the option and the action.
  command.add_option(ids, *words, "Of none nothing is given back");
  SetWork(commands, command, [=](const Globals& globals) { return GiveBack(globals, *words, give_back); });
}

}  // namespace

void AddHeldGraphs(Commands commands, CLI::App& graph) {
  AddList(commands, graph, "The graphs that your tenant holds prepared on the server, whoever prepared them",
          "hpvmctl graph list", ListGraphs);
  AddGiveBack(commands, graph, "release", "Release prepared graphs", "handle",
              "hpvmctl graph release $(hpvmctl graph list -o name)", &Client::Release);
}

void AddBuffers(Commands commands) {
  CLI::App* buffer = commands.app.add_subcommand("buffer", "What your tenant keeps on the server between runs");
  buffer->require_subcommand(1);
  AddList(commands, *buffer, "The buffers of your tenant, whoever made them", "hpvmctl buffer list", ListBuffers);
  AddGiveBack(commands, *buffer, "delete", "Delete buffers", "buffer",
              "hpvmctl buffer delete $(hpvmctl buffer list -o name)", &Client::DeleteBuffer);
}

}  // namespace hpvm::ctl
