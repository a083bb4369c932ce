// SPDX-License-Identifier: Apache-2.0
// hpvmctl kernel explain: prints what the compiler did with a kernel and why, without a server.
#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>

#include "client/ctl/document_files.h"
#include "client/ctl/kernel/compile_service.h"
#include "client/ctl/kernel/device_target.h"
#include "client/ctl/kernel/kernel_params.h"
#include "client/ctl/kernel/kernel_report.h"
#include "client/ctl/options.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "graph/flatten.h"
#include "graph/parse.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string module, entry;
  DocumentSource place;  // Place of the graph; its document is empty for a module.
  std::string node;
  std::vector<std::string> params;
  Abi abi = Abi::kHpvm;
  bool fast_math = false;
  Listing listing = Listing::kNone;
  std::string level;
  std::string device;   // As FindDeviceTarget accepts it; the processor when empty.
  std::string options;  // Options of the OpenCL C compiler.
};

// A module's bytes and the compile request for them.
struct Task {
  std::string module;  // Display name.
  std::string name;    // Name in messages; for a document its own name, so that it is the kernel that runs.
  std::string bytes;
  CompileRequest request;
};

constexpr std::pair<std::string_view, ir::Type> kScalars[] = {
    {"i32", ir::Type::kI32}, {"i64", ir::Type::kI64}, {"f32", ir::Type::kF32}, {"f64", ir::Type::kF64}};

// Parses "A=in", "inout" or "n=i32".
StatusOr<ParamSpec> ParseParam(const std::string& word, size_t index) {
  const size_t at = word.find('=');
  ParamSpec param;
  param.name = at == std::string::npos ? "p" + std::to_string(index) : word.substr(0, at);
  const std::string kind = at == std::string::npos ? word : word.substr(at + 1);
  for (const auto& [name, type] : kScalars) {
    if (kind == name) {
      param.is_buffer = false;
      param.scalar = type;
      return param;
    }
  }
  param.is_writable = kind != "in";
  param.is_read = kind != "out";
  if (kind != "in" && kind != "out" && kind != "inout") {
    return InvalidArgument("--param takes [NAME=]KIND with one of in, out, inout, i32, i64, f32, f64, not \"" + word +
                           "\".");
  }
  return param;
}

StatusOr<Task> TaskFromModule(const Options& options) {
  Task task;
  task.module = task.name = options.module;
  HPVMD_ASSIGN_OR_RETURN(task.bytes, ReadModuleFile(options.module));
  // Without a device, the WebAssembly reader reports files that are no module at all.
  task.request.module_kind = options.device.empty() ? ModuleKind::kWasm : GuessKind(task.bytes);
  task.request.options = options.options;
  if (task.request.module_kind != ModuleKind::kWasm && options.params.empty()) {
    return InvalidArgument("Parameters can be guessed for WebAssembly only; give each with --param.");
  }
  task.request.entry = options.entry;
  task.request.abi = options.abi;
  task.request.fast_math = options.fast_math;
  task.request.infers_params = options.params.empty();
  for (const std::string& word : options.params) {
    HPVMD_ASSIGN_OR_RETURN(ParamSpec param, ParseParam(word, task.request.params.size()));
    task.request.params.push_back(std::move(param));
  }
  return task;
}

std::string LeafNames(const graph::Graph& graph) {
  constexpr size_t kNamedMax = 16;
  std::string names;
  size_t count = 0;
  for (const graph::Node& node : graph.nodes) {
    if (node.is_leaf && ++count <= kNamedMax) {
      names += (names.empty() ? "\"" : ", \"") + node.name + "\"";
    }
  }
  return names + (count > kNamedMax ? " and " + std::to_string(count - kNamedMax) + " more" : "");
}

// Removes replica numbers: "outer/leaf" of "outer[3]/leaf".
std::string WithoutIndices(const std::string& path) {
  std::string names;
  int depth = 0;
  for (const char c : path) {
    depth += c == '[' ? 1 : 0;
    if (depth == 0) {
      names += c;
    }
    depth -= c == ']' && depth > 0 ? 1 : 0;
  }
  return names;
}

std::string PathOf(const graph::Graph& graph, size_t leaf) {
  graph::FlatNode node;
  node.leaf = graph::NodeId(static_cast<uint32_t>(leaf));
  return WithoutIndices(graph::PathOf(graph, node));
}

// `name` is a leaf's name, or its path as records print it.
StatusOr<const graph::Node*> FindLeaf(const graph::Graph& graph, const std::string& name) {
  const std::string wanted = WithoutIndices(name);
  std::vector<size_t> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const graph::Node& node = graph.nodes[i];
    if (node.is_leaf && (name.empty() || node.name == wanted || PathOf(graph, i) == wanted)) {
      found.push_back(i);
    }
  }
  if (found.empty()) {
    return NotFound("The graph has no leaf node \"" + name + "\"; it has " + LeafNames(graph) + ".");
  }
  if (found.size() > 1 && name.empty()) {
    return InvalidArgument("The graph has several leaf nodes: name one with --node: " + LeafNames(graph) + ".");
  }
  if (found.size() > 1) {
    return InvalidArgument("The graph has " + std::to_string(found.size()) + " leaf nodes \"" + name +
                           "\": name one of them by its path, as in \"" + PathOf(graph, found[0]) + "\".");
  }
  return &graph.nodes[found[0]];
}

std::vector<SpecialisationConstant> ConstantsOf(const graph::Variant& variant) {
  std::vector<SpecialisationConstant> constants;
  for (const graph::Constant& constant : variant.constants) {
    const auto* real = std::get_if<double>(&constant.value);
    constants.push_back(
        {constant.id, real != nullptr,
         real != nullptr ? std::bit_cast<uint64_t>(*real) : static_cast<uint64_t>(std::get<int64_t>(constant.value))});
  }
  return constants;
}

// Takes the node's first WebAssembly variant; for a device, the first variant if there is none.
StatusOr<Task> TaskFromGraph(const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::string document, ReadDocument(options.place.document));
  HPVMD_ASSIGN_OR_RETURN(const graph::Graph graph, ParseDocument(options.place.document, document));
  HPVMD_ASSIGN_OR_RETURN(const graph::Node* node, FindLeaf(graph, options.node));
  auto variant = std::find_if(node->variants.begin(), node->variants.end(), [&](const graph::Variant& item) {
    return graph.modules[item.module.index].kind == ModuleKind::kWasm;
  });
  if (variant == node->variants.end() && !options.device.empty()) {
    variant = node->variants.begin();
  }
  if (variant == node->variants.end()) {
    return InvalidArgument("Node \"" + node->name + "\" has no WebAssembly variant.");
  }
  Task task;
  const graph::Module& module = graph.modules[variant->module.index];
  task.name = module.name;
  HPVMD_ASSIGN_OR_RETURN(task.bytes, ReadModuleOf(options.place, module, &task.module));
  task.request.module_kind = module.kind;
  task.request.options = module.build_options;
  task.request.constants = ConstantsOf(*variant);
  task.request.entry = variant->entry;
  task.request.abi = variant->hpvm_web ? Abi::kHpvmWeb : Abi::kHpvm;
  task.request.fast_math = node->fast_math || options.fast_math;
  task.request.params = ParamsOf(*node);
  return task;
}

// Rejects missing and contradictory options.
Status CheckOptions(const Options& options) {
  if (options.place.document.empty() && (options.module.empty() || options.entry.empty())) {
    return InvalidArgument("Name a module and an entry, or a graph with --graph.");
  }
  if (!options.place.document.empty() && (!options.module.empty() || !options.params.empty())) {
    return InvalidArgument("With --graph the document gives module, entry and parameters; leave them out.");
  }
  if (!options.device.empty() && !options.level.empty()) {
    return InvalidArgument("--level is for processors; leave it out with --device.");
  }
  if (options.device.empty() && (options.listing == Listing::kDevice || !options.options.empty())) {
    return InvalidArgument("--emit device and --options are for a device; name it with --device.");
  }
  return absl::OkStatus();
}

Status Explain(const Globals& globals, const Options& options) {
  HPVMD_RETURN_IF_ERROR(CheckOptions(options));
  HPVMD_ASSIGN_OR_RETURN(Task task, options.place.document.empty() ? TaskFromModule(options) : TaskFromGraph(options));
  CompileRequest& request = task.request;
  request.level = options.level;
  std::string label;
  if (!options.device.empty()) {
    HPVMD_ASSIGN_OR_RETURN(DeviceTarget target, FindDeviceTarget(options.device));
    request.target = target.kind;
    request.gpu = std::move(target.gpu);
    request.level = std::move(target.level);
    label = std::move(target.label);
  }
  request.module = BytesOf(task.bytes);
  request.module_hash = HashOf(request.module);
  request.module_name = task.name;
  request.explain = true;
  request.listing = options.listing;
  // Only a document describes a kernel as runs do, with the names that its artifact is cached under.
  const bool may_have_run = !options.place.document.empty() && options.level.empty();
  std::optional<TuningRecord> tuning;
  HPVMD_ASSIGN_OR_RETURN(CompileOutcome outcome, CompileHere(request, may_have_run ? &tuning : nullptr));
  if (!outcome.artifact.has_value()) {
    return InvalidArgument(ToString(outcome.diagnostics));
  }
  if (!label.empty()) {
    outcome.artifact->target = label;
  }
  PrintExplanation({.module = task.module,
                    .is_inferred = request.infers_params,
                    .artifact = *std::move(outcome.artifact),
                    .tuning = std::move(tuning),
                    .warnings = std::move(outcome.diagnostics)},
                   globals.format);
  return absl::OkStatus();
}

void AddOptions(CLI::App& command, Options& options) {
  command.add_option("module", options.module, "A WebAssembly file; with --device also SPIR-V or OpenCL C");
  command.add_option("entry", options.entry, "The exported function, or the kernel");
  command.add_option("--graph", options.place.document,
                     "Take module, entry, parameters and math from a node of this document");
  AddAllowFile(command, options.place);
  command.add_option("--node", options.node, "The leaf node; may be left out when the graph has only one")
      ->needs("--graph");
  command
      .add_option(
          "--param", options.params,
          "[NAME=]in|out|inout|i32|i64|f32|f64, once for each parameter, in order; default: guessed from what the "
          "kernel does with them")
      ->take_all();
  AddChoice<Abi>(command, "--abi", options.abi, {{"hpvm", Abi::kHpvm}, {"hpvm-web", Abi::kHpvmWeb}},
                 "hpvm or hpvm-web");
  command
      .add_option_function<std::string>(
          "--math", [&options](const std::string& math) { options.fast_math = math == "fast"; },
          "exact or fast, as a node's \"math\"")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->option_text("exact|fast");
  AddChoice<Listing>(
      command, "--emit", options.listing,
      {{"ir", Listing::kIr}, {"llvm", Listing::kLlvm}, {"asm", Listing::kAssembly}, {"device", Listing::kDevice}},
      "Print the kernel IR after the passes, LLVM IR, assembly, or what a device's driver gets, instead of the "
      "explanation");
  command
      .add_option("--device", options.device,
                  "Compile for this device of this machine, or for the profile of a device that is not here")
      ->option_text("cpu|" + DeviceTargetNames("|"))
      // Tables call the processor "cpu" or "cpu:0"; without the option kernels are compiled for it.
      ->transform([](std::string name) { return name == "cpu" || name == "cpu:0" ? std::string() : name; });
  command.add_option("--options", options.options, "Build options of OpenCL C, as a document's module has them");
  command.add_option("--level", options.level, "The processor to compile for; default: this one")
      ->check(CLI::IsMember({"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"}))
      ->option_text("x86-64-v2|x86-64-v3|x86-64-v4|aarch64");
}

}  // namespace

void AddKernel(Commands commands) {
  CLI::App* kernel = commands.app.add_subcommand("kernel", "Inspect kernels, without a server");
  kernel->require_subcommand(1);
  CLI::App& explain = AddCommand(
      *kernel, "explain",
      "Explain what the compiler did with a kernel and why, by source line: shapes, accesses, bounds, tiles, barriers",
      "Build the kernel with -g to see source lines.\n"
      "Examples:\n"
      "  hpvmctl kernel explain matmul.wasm matmul\n"
      "  hpvmctl kernel explain matmul.wasm matmul --param in --param in --param out --param n=i32 --param k=i32\n"
      "  hpvmctl kernel explain --graph matmul.json --node multiply --emit asm\n"
      "  hpvmctl kernel explain matmul.wasm matmul --device opencl:0 --emit device");
  AddOptions(explain, SetWork(commands, explain, Explain));
}

}  // namespace hpvm::ctl
