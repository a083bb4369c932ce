// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "graph/expr.h"
#include "graph/long_form_writer.h"

namespace hpvm::graph::long_form {

uint32_t LongFormWriter::MemberNamed(const Scope& scope, std::string_view name) const {
  const std::optional<uint32_t> known = names_.Find(name);
  return known.has_value() && member_of_[*known].first == scope.number ? member_of_[*known].second : kNone;
}

// Finds the port `name` of a member among those that other nodes may read; an empty name means the only such port.
// Reports a fault and returns false when there is none.
bool LongFormWriter::FindPortOf(const Scope& scope, uint32_t number, std::string_view name, JsonId at, uint32_t* port) {
  const Member& member = scope.members[number];
  const std::vector<PortFact>& ports = member.ports;
  const auto is_it = [&](const PortFact& p) { return p.is_written && p.name == name; };
  if (name.empty() && member.written == 1) {
    *port = member.first_written;
    return true;
  }
  if (!name.empty() && ports.size() > kLinearPortsMax) {
    if (const auto found = port_names_.Find(Cat(scope.number, ":", number, ":", name)); found.has_value()) {
      *port = port_of_name_[*found];
      return true;
    }
  } else if (const auto found = std::find_if(ports.begin(), ports.end(), is_it); found != ports.end()) {
    *port = static_cast<uint32_t>(found - ports.begin());
    return true;
  }
  const std::string node(member.id == kNoJson ? std::string_view(ports[0].name) : document_.NameOf(member.id));
  if (!name.empty()) {
    if (faults_.AdmitError()) {
      NearMiss near(name);
      std::for_each(ports.begin(), ports.end(), [&](const PortFact& p) { near.Offer(p.is_written ? p.name : ""); });
      faults_.Add({Severity::kError, document_.PointerTo(at), std::nullopt,
                   Cat("Node ", Quoted(node), " writes no port ", Quoted(name), near.Ending())});
    }
  } else if (member.written == 0) {
    Fail(at, "Node ", Quoted(node), " writes nothing that could be read.");
  } else {
    Fail(at, "Node ", Quoted(node), " writes ", member.written, " ports; name one of them, as ",
         Quoted(Cat(node, ".", ports[member.first_written].name)), ".");
  }
  return false;
}

// Returns false when no member has that name. When the member exists but not the port, reports a fault and sets `port`
// to kNone.
bool LongFormWriter::FindSource(Scope& scope, std::string_view text, JsonId at, uint32_t* member, uint32_t* port) {
  const size_t stop = text.find('.');
  *member = MemberNamed(scope, text.substr(0, stop));
  if (*member == kNone) {
    return false;
  }
  const std::string_view name = stop == std::string_view::npos ? std::string_view() : text.substr(stop + 1);
  if (!FindPortOf(scope, *member, name, at, port)) {
    *port = kNone;
  }
  return true;
}

void LongFormWriter::FailUnknown(const Scope& scope, std::string_view name, JsonId at, bool may_be_symbol) {
  if (!faults_.AdmitError()) {
    return;
  }
  NearMiss near(name);
  for (const Member& member : scope.members) {
    near.Offer(member.is_node ? document_.NameOf(member.id) : member.ports[0].name);
  }
  for (uint32_t symbol = 0; may_be_symbol && symbol < symbols_.size(); ++symbol) {
    near.Offer(symbols_.Text(symbol));
  }
  faults_.Add({Severity::kError, document_.PointerTo(at), std::nullopt,
               Cat(may_be_symbol ? "No input, node or symbol" : "No input or node", " here is called ", Quoted(name),
                   near.Ending())});
}

void LongFormWriter::ResolveName(Scope& scope, Member& member, Argument& argument, const ShortArgument& read) {
  using Form = ShortArgument::Kind;
  if (read.kind == Form::kScalar) {
    argument.type = read.type.empty() ? "i32" : read.type;
    return;
  }
  const bool is_symbol = read.kind == Form::kName && symbols_.Find(read.name).has_value();
  uint32_t source = kNone, port = 0;
  if (!FindSource(scope, read.name, argument.at, &source, &port)) {
    // "w-1" has the form of a name, but may be an expression.
    if (is_symbol || (read.kind == Form::kName && read.name.find_first_of(".-") != std::string_view::npos)) {
      argument.type = "i32";
      argument.value = read.name;
    } else {
      FailUnknown(scope, read.name, argument.at, read.kind == Form::kName);
    }
    return;
  }
  if (port == kNone) {
    return;
  }
  if (is_symbol) {
    Fail(argument.at, Quoted(read.name), " is an input or a node, and a symbol too; write \"in ", read.name,
         "\" for the data or \"i32 ", read.name, "\" for the number.");
    return;
  }
  const Member& from = scope.members[source];
  const bool is_input = !from.is_node && from.id != kNoJson;
  // An input of rank 0 is passed as a scalar, unless the argument asks for data with "in".
  const Tensor& tensor = from.ports[port].tensor;
  if (is_input && read.kind == Form::kName && tensor.is_known() && tensor.rank(document_) == 0) {
    const std::string_view type = tensor.type == kNoJson ? tensor.text.type : document_.String(tensor.type);
    argument.type = type == "u32" ? "i32" : type == "u64" ? "i64" : type;
    argument.input = read.name;
    return;
  }
  argument.source = source;
  argument.source_port = port;
  if (argument.port == kNone) {
    PortFact fact;
    fact.is_read = true;
    fact.argument = static_cast<uint32_t>(&argument - member.arguments.data());
    AddPort(member, argument, read.name.substr(0, read.name.find('.')), std::move(fact));
  }
}

// Follows an argument's data to the port that first writes it, whose type and shape all ports on the way get, because
// nodes that update data in place do not change them.
void LongFormWriter::FollowSources(Scope& scope, uint32_t member, uint32_t argument) {
  std::vector<PortFact*> chain;
  ++walks_;
  uint32_t at = member, port = scope.members[member].arguments[argument].port;
  PortFact* fact = &scope.members[at].ports[port];
  // The walk stops at a port that an earlier walk has passed without finding a tensor, and at an argument without a
  // source: those faults have been reported.
  while (!fact->tensor.is_known() && fact->walk == 0 && fact->argument != kNone) {
    fact->walk = walks_;
    chain.push_back(fact);
    const Argument& reads = scope.members[at].arguments[fact->argument];
    if (reads.source == kNone) {
      break;
    }
    at = reads.source;
    port = reads.source_port;
    fact = &scope.members[at].ports[port];
    if (fact->walk == walks_) {
      Fail(reads.at, "This data has no source: the nodes that update it form a cycle.");
      break;
    }
  }
  const Tensor found = fact->tensor;
  for (PortFact* passed : chain) {
    passed->tensor = found;
  }
}

void LongFormWriter::ResolveArguments(Scope& scope, Member& member) {
  for (Argument& argument : member.arguments) {
    if (!reads_.empty() && reads_.front().first == argument.at) {
      ResolveName(scope, member, argument, reads_.front().second);
      reads_.pop_front();
    }
    if (argument.port == kNone) {
      const std::string_view name = !argument.input.empty() ? argument.input : argument.value;
      const uint32_t position = document_[argument.at].name;
      argument.scalar_name = FreeName(member, IsName(name) ? std::string(name) : Cat("arg", position), position);
    }
  }
}

void LongFormWriter::ResolveOutputs(Scope& scope) {
  const JsonId outputs = Find(document_.root(), Key::kOutputs);
  if (!Is(outputs, Kind::kObject)) {
    return;
  }
  ForEachChild(outputs, [&](JsonId child) {
    if (!Is(child, Kind::kString)) {
      return;
    }
    Scope::Output& output = scope.outputs.emplace_back();
    output.at = child;
    if (!FindSource(scope, document_.String(child), child, &output.member, &output.port)) {
      FailUnknown(scope, document_.String(child), child, false);
    }
  });
}

void LongFormWriter::Resolve(Scope& scope) {
  // All ports that nodes write are known after indexing, so the names of sources can be looked up in any order.
  for (Member& member : scope.members) {
    ResolveArguments(scope, member);
  }
  for (uint32_t m = 0; m < scope.members.size(); ++m) {
    for (uint32_t a = 0; a < scope.members[m].arguments.size(); ++a) {
      if (scope.members[m].arguments[a].source != kNone) {
        FollowSources(scope, m, a);
      }
    }
  }
  if (scope.number == 0) {
    ResolveOutputs(scope);
  }
}

}  // namespace hpvm::graph::long_form
