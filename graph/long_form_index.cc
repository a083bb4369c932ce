// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "base/limits.h"
#include "graph/expr.h"
#include "graph/long_form_writer.h"
#include "hpvm/element_type.h"

namespace hpvm::graph::long_form {
namespace {

bool IsSymbolByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

void LongFormWriter::AddSymbols(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && IsSymbolByte(text[end])) {
      ++end;
    }
    if (end > i && IsSymbolName(text.substr(i, end - i))) {
      symbols_.Intern(text.substr(i, end - i));
    }
    i = std::max(end, i + 1);
  }
}

// Collects the names that stand for numbers: declared symbols, and the names in the inputs' shapes. AddIndices adds the
// indices of replicas.
void LongFormWriter::FindSymbols() {
  const JsonId root = document_.root();
  if (const JsonId symbols = Find(root, Key::kSymbols); Is(symbols, Kind::kArray)) {
    ForEachChild(symbols, [&](JsonId child) {
      AddSymbols(Is(child, Kind::kString) ? document_.String(child) : std::string_view());
    });
  }
  if (const JsonId inputs = Find(root, Key::kInputs); Is(inputs, Kind::kObject)) {
    ForEachChild(inputs, [&](JsonId child) {
      if (Is(child, Kind::kString)) {
        const std::string_view text = document_.String(child);
        AddSymbols(text.substr(std::min(text.find('['), text.size())));
      } else if (const JsonId shape = Find(child, Key::kShape); Is(shape, Kind::kArray)) {
        ForEachChild(shape, [&](JsonId extent) {
          AddSymbols(Is(extent, Kind::kString) ? document_.String(extent) : std::string_view());
        });
      }
    });
  }
}

Tensor LongFormWriter::ReadTensor(JsonId id, std::string_view what) {
  Tensor tensor;
  if (Is(id, Kind::kObject)) {
    tensor.type = Find(id, Key::kType);
    tensor.shape = Find(id, Key::kShape);
    const bool is_whole = tensor.type != kNoJson && Is(tensor.shape, Kind::kArray);
    tensor.at = is_whole && CheckRank(id, document_[tensor.shape].size) ? id : kNoJson;
    return tensor;
  }
  std::string fault;
  if (!Is(id, Kind::kString)) {
    Fail(id, what, " is ", KindName(document_[id].kind()), "; \"TYPE[EXTENT, ...]\" or an object is expected.");
  } else if (!ReadShortTensor(document_.String(id), &tensor.text, &fault)) {
    Fail(id, what, " ", Quoted(document_.String(id)), " ", fault, ".");
  } else if (CheckType(id, tensor.text.type) && CheckRank(id, tensor.text.extents.size())) {
    tensor.at = id;
  }
  return tensor;
}

bool LongFormWriter::CheckRank(JsonId at, size_t rank) {
  if (rank <= limits::kTensorRankMax) {
    return true;
  }
  Fail(at, "The shape has ", rank, " extents; the limit is ", limits::kTensorRankMax, ".");
  return false;
}

// Reports an unknown type once, where the document declares it, because the long form repeats the type.
bool LongFormWriter::CheckType(JsonId at, std::string_view name) {
  if (ElementTypeFromName(name).has_value()) {
    return true;
  }
  if (faults_.AdmitError()) {
    NearMiss near(name);
    for (const ElementTypeInfo& info : kElementTypes) {
      near.Offer(info.name);
    }
    faults_.Add({Severity::kError, document_.PointerTo(at), std::nullopt,
                 Cat("Type ", Quoted(name), " is not known", near.Ending())});
  }
  return false;
}

bool LongFormWriter::NameNext(const Scope& scope, std::string_view name) {
  const uint32_t id = names_.Intern(name);
  member_of_.resize(names_.size(), {kNone, kNone});
  const bool is_free = member_of_[id].first != scope.number;
  member_of_[id] = {scope.number, static_cast<uint32_t>(scope.members.size())};
  return is_free;
}

// Adds the names by which the nodes inside a replicated node refer to their replica's index.
void LongFormWriter::AddIndices(JsonId object) {
  if (const JsonId index = Find(object, Key::kIndex); Is(index, Kind::kArray)) {
    ForEachChild(index, [&](JsonId child) {
      AddSymbols(Is(child, Kind::kString) ? document_.String(child) : std::string_view());
    });
  }
}

// Adds the scope's inputs: the document's inputs, or the ports through which an internal node passes data to its nodes.
void LongFormWriter::IndexInputs(Scope& scope, JsonId object, bool is_root) {
  if (is_root) {
    const JsonId inputs = Find(object, Key::kInputs);
    if (Is(inputs, Kind::kObject)) {
      ForEachChild(inputs, [&](JsonId child) {
        NameNext(scope, document_.NameOf(child));
        Member& input = scope.members.emplace_back();
        input.id = child;
        PortFact& port = input.ports.emplace_back();
        port.name = document_.NameOf(child);
        port.is_written = true;
        port.tensor = ReadTensor(child, "Input");
        input.written = 1;
        input.first_written = 0;
      });
    }
    return;
  }
  Member ports;
  IndexFullPorts(ports, Find(object, Key::kPorts));
  for (PortFact& port : ports.ports) {
    if (!port.is_read) {
      continue;
    }
    NameNext(scope, port.name);
    port.is_written = true;  // Nodes inside the internal node read this port as a source.
    Member& input = scope.members.emplace_back();
    input.written = 1;
    input.first_written = 0;
    input.ports.push_back(std::move(port));
  }
}

void LongFormWriter::IndexFullPorts(Member& member, JsonId ports) {
  if (!Is(ports, Kind::kArray)) {
    return;
  }
  ForEachChild(ports, [&](JsonId child) {
    const JsonId name = Find(child, Key::kName), access = Find(child, Key::kAccess);
    PortFact& port = member.ports.emplace_back();
    if (!Is(name, Kind::kString) || !Is(access, Kind::kString)) {
      return;  // The Builder reports the fault.
    }
    port.name = document_.String(name);
    port.is_read = document_.String(access).starts_with("in");
    port.is_written = document_.String(access).ends_with("out");
    port.tensor = ReadTensor(child, "Port");
  });
}

std::string LongFormWriter::FreeName(Member& member, std::string_view wanted, size_t position) {
  std::string name(wanted);
  for (size_t i = position; !member.names.insert(name).second; ++i) {
    name = Cat(wanted, "_", i);
  }
  return name;
}

void LongFormWriter::CountWritten(const Scope& scope, uint32_t number) {
  Member& member = const_cast<Member&>(scope.members[number]);
  for (uint32_t i = 0; i < member.ports.size(); ++i) {
    if (!member.ports[i].is_written) {
      continue;
    }
    ++member.written;
    member.first_written = std::min(member.first_written, i);
    if (member.ports.size() > kLinearPortsMax) {
      const uint32_t name = port_names_.Intern(Cat(scope.number, ":", number, ":", member.ports[i].name));
      port_of_name_.resize(port_names_.size());
      port_of_name_[name] = i;
    }
  }
}

void LongFormWriter::IndexArguments(Member& member, JsonId arguments) {
  if (!Is(arguments, Kind::kArray)) {
    Fail(arguments, "Arguments are ", KindName(document_[arguments].kind()), "; an array is expected.");
    return;
  }
  if (document_[arguments].size > limits::kKernelParamsMax) {
    Fail(arguments, "Node has ", document_[arguments].size, " arguments; the limit is ", limits::kKernelParamsMax, ".");
    return;
  }
  member.arguments.reserve(document_[arguments].size);
  ForEachChild(arguments, [&](JsonId child) {
    Argument argument;
    argument.at = child;
    ShortArgument read;
    std::string fault;
    const Kind kind = document_[child].kind();
    if (kind == Kind::kInteger || kind == Kind::kFloat) {
      argument.type = kind == Kind::kFloat ? "f32" : "i32";
    } else if (kind != Kind::kString) {
      if (kind != Kind::kRefused) {
        Fail(child, "Argument is ", KindName(kind), "; a source, \"out TYPE[EXTENT, ...]\" or a scalar is expected.");
      }
    } else if (!ReadShortArgument(document_.String(child), &read, &fault)) {
      Fail(child, "Argument ", Quoted(document_.String(child)), " ", fault, ".");
    } else if (read.kind == ShortArgument::Kind::kOut) {
      CheckType(child, read.tensor.type);
      CheckRank(child, read.tensor.extents.size());
      PortFact port;
      port.is_written = true;
      port.tensor.at = child;
      port.tensor.text = std::move(read.tensor);
      AddPort(member, argument, read.name.empty() ? "out" : read.name, std::move(port));
    } else {
      argument.type = read.type;
      argument.value = read.value;
      if (read.kind == ShortArgument::Kind::kIn || read.kind == ShortArgument::Kind::kInOut) {
        PortFact port;
        port.is_read = true;
        port.is_written = read.kind == ShortArgument::Kind::kInOut;
        port.argument = static_cast<uint32_t>(member.arguments.size());
        AddPort(member, argument, read.name.substr(0, read.name.find('.')), std::move(port));
      }
      reads_.emplace_back(child, read);  // ResolveArguments looks the source up once every node is known.
    }
    member.arguments.push_back(std::move(argument));
  });
}

void LongFormWriter::AddPort(Member& member, Argument& argument, std::string_view name, PortFact fact) {
  argument.port = static_cast<uint32_t>(member.ports.size());
  fact.name = FreeName(member, name, document_[argument.at].name);
  member.ports.push_back(std::move(fact));
}

void LongFormWriter::IndexNode(Scope& scope, JsonId id) {
  const auto number = static_cast<uint32_t>(scope.members.size());
  if (!NameNext(scope, document_.NameOf(id))) {
    Fail(id, "Node ", Quoted(document_.NameOf(id)),
         " has the name of an input; another name is needed, since arguments could mean either of them.");
  }
  Member& member = scope.members.emplace_back();
  member.id = id;
  member.is_node = true;
  const JsonId arguments = Is(id, Kind::kArray) ? id : Find(id, Key::kArgs);
  member.is_short = arguments != kNoJson;
  if (member.is_short) {
    IndexArguments(member, arguments);
  } else {
    IndexFullPorts(member, Find(id, Key::kPorts));
  }
  CountWritten(scope, number);
}

}  // namespace hpvm::graph::long_form
