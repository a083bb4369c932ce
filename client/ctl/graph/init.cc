// SPDX-License-Identifier: Apache-2.0
// hpvmctl graph init: writes a short document for the kernels of a module, with "?" where only the user knows the
// value.
#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/document_files.h"
#include "client/ctl/kernel/compile_service.h"
#include "client/ctl/kernel/kernel_params.h"
#include "client/ctl/kernel/module_entries.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include "nlohmann/json.hpp"

#include "base/bytes.h"
#include "base/hash.h"
#include "graph/expr.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string module;
  std::vector<std::string> entries;
};

// A kernel's parameter, as far as its module tells.
struct Param {
  std::string name;
  enum class Use { kIn, kOut, kInOut, kScalar } use = Use::kIn;
  std::string type = "?";
  std::string note;  // Tells the user what to check or decide; empty when nothing is left to decide.
};

struct Kernel {
  std::string name;
  std::vector<Param> params;
  uint32_t rank = 1;
};

std::string ShapeOf(const Kernel& kernel) {
  std::string shape = "[?";
  for (uint32_t i = 1; i < kernel.rank; ++i) {
    shape += ", ?";
  }
  return shape + "]";
}

// Guesses the element type from the widths in bytes of the accesses to the parameter's buffer.
void GuessType(const std::set<uint32_t>& widths, Param* param) {
  if (widths.size() != 1 || *widths.begin() > 8) {
    param->note = widths.empty() ? "the compiler understands no access to it; fill in its type"
                                 : "it is accessed in several widths; fill in its type";
    return;
  }
  switch (*widths.begin()) {
    case 1:
      param->type = "u8";
      param->note = "its elements have 1 byte: u8 or i8";
      return;
    case 2:
      param->type = "u16";
      param->note = "its elements have 2 bytes: u16, i16 or f16";
      return;
    case 4:
      param->type = "f32";
      param->note = "its elements have 4 bytes: f32, i32 or u32";
      return;
    default:
      param->type = "f64";
      param->note = "its elements have 8 bytes: f64, i64 or u64";
  }
}

StatusOr<Kernel> KernelOfWasm(LocalCompiler& compiler, const std::string& bytes, const std::string& module,
                              const std::string& entry) {
  CompileRequest request;
  request.target = ArtifactKind::kInterp;
  request.module_name = module;
  request.module = BytesOf(bytes);
  request.module_hash = HashOf(request.module);
  request.entry = entry;
  request.explain = request.infers_params = true;
  HPVMD_ASSIGN_OR_RETURN(const CompileOutcome outcome, compiler.Compile(request));
  if (!outcome.artifact.has_value()) {
    return InvalidArgument(ToString(outcome.diagnostics));
  }
  const Artifact& artifact = *outcome.artifact;
  const std::vector<std::set<uint32_t>> widths = AccessWidths(artifact.bounds, artifact.params.size());
  Kernel kernel{.name = entry, .params = {}, .rank = std::max(1u, InstanceDimensions(artifact.bounds))};
  for (size_t i = 0; i < artifact.params.size(); ++i) {
    const ir::KernelParam& known = artifact.params[i];
    Param& param = kernel.params.emplace_back();
    param.name = known.name;
    if (!known.is_buffer) {
      param.use = Param::Use::kScalar;
      param.type = std::string(ir::Name(known.type));
      continue;
    }
    param.use = !known.is_writable ? Param::Use::kIn : known.is_read ? Param::Use::kInOut : Param::Use::kOut;
    GuessType(widths[i], &param);
  }
  return kernel;
}

Kernel KernelOf(const DeclaredKernel& declared) {
  Kernel kernel{.name = declared.name, .params = {}, .rank = 1};
  for (const DeclaredKernel::Param& known : declared.params) {
    Param& param = kernel.params.emplace_back();
    param.name = known.name;
    param.use = !known.is_buffer ? Param::Use::kScalar : known.is_const ? Param::Use::kIn : Param::Use::kOut;
    if (!known.type.empty()) {
      param.type = known.is_buffer       ? known.type
                   : known.type == "u32" ? "i32"
                   : known.type == "u64" ? "i64"
                                         : known.type;
    } else {
      param.note = "a graph document has no such type";
    }
    if (known.is_signless && known.is_buffer) {
      param.note =
          "the module does not tell signed from unsigned integers: " + param.type + " or i" + param.type.substr(1);
    }
    if (param.use == Param::Use::kOut) {
      param.note += (param.note.empty() ? "" : "; ");
      param.note += "the declaration does not say whether it is read as well; if it is, write \"inout\" and its source";
    }
  }
  return kernel;
}

StatusOr<std::vector<Kernel>> WasmKernels(const Options& options, const std::string& bytes) {
  std::vector<std::string> entries = options.entries;
  const bool is_asked = !entries.empty();
  if (!is_asked) {
    HPVMD_ASSIGN_OR_RETURN(entries, EntriesOfWasm(bytes));
  }
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCompiler> compiler, LocalCompiler::Start());
  std::vector<Kernel> kernels;
  for (const std::string& entry : entries) {
    StatusOr<Kernel> kernel = KernelOfWasm(*compiler, bytes, options.module, entry);
    if (kernel.ok()) {
      kernels.push_back(*std::move(kernel));
    } else if (is_asked) {
      return kernel.status();
    } else {
      fputs(Printable("\"" + entry + "\" is left out: " + Message(kernel.status()) + "\n").c_str(), stderr);
    }
  }
  return kernels;
}

StatusOr<std::vector<Kernel>> KernelsOf(const Options& options, const std::string& bytes) {
  std::vector<Kernel> kernels;
  if (options.module.ends_with(".cl")) {
    for (const DeclaredKernel& declared : KernelsOfOpenCl(bytes)) {
      kernels.push_back(KernelOf(declared));
    }
  } else if (options.module.ends_with(".spv")) {
    HPVMD_ASSIGN_OR_RETURN(const std::vector<DeclaredKernel> declared, KernelsOfSpirv(bytes));
    std::transform(declared.begin(), declared.end(), std::back_inserter(kernels), KernelOf);
  } else {
    return WasmKernels(options, bytes);
  }
  const auto is_unwanted = [&](const Kernel& kernel) {
    return !options.entries.empty() &&
           std::find(options.entries.begin(), options.entries.end(), kernel.name) == options.entries.end();
  };
  std::erase_if(kernels, is_unwanted);
  return kernels;
}

// Adds a kernel as a node, with an input for each buffer that it reads and an output for each buffer that it writes.
void AddKernel(const Kernel& kernel, bool is_alone, Json* inputs, Json* nodes, Json* outputs) {
  const auto named = [&](const std::string& name) { return is_alone ? name : kernel.name + "_" + name; };
  const auto is_written = [](const Param& p) { return p.use == Param::Use::kOut || p.use == Param::Use::kInOut; };
  const auto written = std::count_if(kernel.params.begin(), kernel.params.end(), is_written);
  Json arguments = Json::array();
  for (const Param& param : kernel.params) {
    switch (param.use) {
      case Param::Use::kScalar:
        arguments.push_back(param.type + " ?");
        break;
      case Param::Use::kOut:
        arguments.push_back("out " + (written > 1 ? param.name + " " : "") + param.type + ShapeOf(kernel));
        break;
      default:
        arguments.push_back((param.use == Param::Use::kInOut ? "inout " : "") + named(param.name));
        (*inputs)[named(param.name)] = param.type + ShapeOf(kernel);
    }
    if (is_written(param)) {
      const std::string port = param.use == Param::Use::kInOut ? named(param.name) : param.name;
      (*outputs)[written > 1 ? kernel.name + "_" + param.name : kernel.name + "_out"] =
          written > 1 ? kernel.name + "." + port : kernel.name;
    }
  }
  (*nodes)[kernel.name] = std::move(arguments);
}

// Returns the document, with each node on one line.
std::string DocumentText(const std::string& module, const std::vector<Kernel>& kernels) {
  Json inputs = Json::object(), nodes = Json::object(), outputs = Json::object();
  for (const Kernel& kernel : kernels) {
    AddKernel(kernel, kernels.size() == 1, &inputs, &nodes, &outputs);
  }
  const auto object = [](const Json& members) {
    std::string text = "{";
    for (const auto& [name, value] : members.items()) {
      text += (text.size() > 1 ? ",\n" : "\n") + ("    " + Json(name).dump() + ": " + value.dump());
    }
    return text + "\n  }";
  };
  return "{\n  \"hpvm\": 2,\n  \"module\": " + Json(module).dump() + ",\n  \"inputs\": " + object(inputs) +
         ",\n  \"nodes\": " + object(nodes) + ",\n  \"outputs\": " + object(outputs) + "\n}\n";
}

Status Init(const Globals&, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::string bytes, ReadModuleFile(options.module));
  HPVMD_ASSIGN_OR_RETURN(const std::vector<Kernel> kernels, KernelsOf(options, bytes));
  if (kernels.empty()) {
    return InvalidArgument("\"" + options.module + "\" has no kernel" +
                           (options.entries.empty() ? "." : " of that name."));
  }
  // A document in the module's folder finds the module by its file name.
  fputs(DocumentText(std::filesystem::path(options.module).filename().string(), kernels).c_str(), stdout);
  for (const Kernel& kernel : kernels) {
    for (const Param& param : kernel.params) {
      if (!param.note.empty()) {
        fputs(Printable(kernel.name + ", \"" + param.name + "\": " + param.note + ".\n").c_str(), stderr);
      }
    }
  }
  fputs(
      "Replace each \"?\": extents of shapes and values of scalars. Where one kernel reads what another "
      "writes, name that node in place of the input.\n",
      stderr);
  return absl::OkStatus();
}

}  // namespace

void AddGraphInit(Commands commands, CLI::App& graph) {
  CLI::App& command = AddCommand(
      graph, "init", "Write a first document for the kernels of a module",
      "In the document, \"?\" stands for what only you know. Notes on what was guessed go to standard error.\n"
      "Example:\n"
      "  hpvmctl graph init matmul.wasm > matmul-new.json");
  Options& options = SetWork(commands, command, Init);
  command.add_option("module", options.module, "The module: a file .wasm, .cl or .spv")->required();
  command.add_option("entry", options.entries, "Kernels of the module; default: all");
}

}  // namespace hpvm::ctl
