// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph/modules.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/ctl/kernel/compile_service.h"
#include "client/ctl/kernel/kernel_params.h"
#include "client/ctl/kernel/module_entries.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "hpvm/element_type.h"

namespace hpvm::ctl {
namespace {

constexpr uint32_t kVectorBytes = 16;  // An access of this width covers several elements.

class ModuleChecker {
 public:
  // `compiler` may be null when no module is WebAssembly.
  ModuleChecker(const graph::Graph& graph, const DocumentSource& place, LocalCompiler* compiler)
      : graph_(graph), place_(place), compiler_(compiler) {}

  StatusOr<Diagnostics> Check() {
    for (const graph::Node& node : graph_.nodes) {
      for (const graph::Variant& variant : node.variants) {
        const graph::Module& module = graph_.modules[variant.module.index];
        if (module.source == graph::Module::Source::kHash) {
          continue;
        }
        if (module.kind == ModuleKind::kWasm) {
          HPVMD_RETURN_IF_ERROR(CheckVariant(node, variant));
        } else if (module.kind == ModuleKind::kSpirv) {
          CheckSpirv(node, variant);
        }
      }
    }
    return std::move(found_);
  }

 private:
  void Add(Severity severity, const graph::Node& node, std::string message) {
    found_.push_back({severity, node.pointer, std::nullopt, std::move(message)});
  }

  Status CheckVariant(const graph::Node& node, const graph::Variant& variant) {
    const std::string* const bytes = BytesOfModule(variant.module.index, node);
    if (bytes == nullptr) {
      return absl::OkStatus();
    }
    CompileRequest request;
    request.target = ArtifactKind::kInterp;  // The fastest target whose compile reads the whole kernel.
    request.module_name = graph_.modules[variant.module.index].name;
    request.module = BytesOf(*bytes);
    request.module_hash = HashOf(request.module);
    request.entry = variant.entry;
    request.abi = variant.hpvm_web ? Abi::kHpvmWeb : Abi::kHpvm;
    request.params = ParamsOf(node);
    HPVMD_ASSIGN_OR_RETURN(CompileOutcome outcome, compiler_->Compile(request));
    for (const Diagnostic& fault : outcome.diagnostics) {
      Add(fault.severity, node, (fault.place.empty() ? "" : fault.place + ": ") + fault.message);
    }
    if (outcome.artifact.has_value()) {
      CheckWidths(node, outcome.artifact->bounds);
    }
    return absl::OkStatus();
  }

  void CheckSpirv(const graph::Node& node, const graph::Variant& variant) {
    const std::string* const bytes = BytesOfModule(variant.module.index, node);
    if (bytes == nullptr) {
      return;
    }
    const StatusOr<std::vector<DeclaredKernel>> kernels = KernelsOfSpirv(*bytes);
    const std::string module = "Module \"" + graph_.modules[variant.module.index].name + "\"";
    if (!kernels.ok()) {
      return Add(Severity::kError, node, module + ": " + Message(kernels.status()));
    }
    // A module may have a kernel and a shader of one name, for different devices. The node needs to match one of them.
    std::string names, fault;
    bool matches = false;
    for (const DeclaredKernel& kernel : *kernels) {
      names += (names.empty() ? "" : ", ") + kernel.name;
      if (kernel.name == variant.entry && !matches) {
        fault = Mismatch(node, kernel);
        matches = fault.empty();
      }
    }
    if (!matches) {
      Add(Severity::kError, node,
          module + (fault.empty() ? " has no entry point \"" + variant.entry + "\"; it has " +
                                        (names.empty() ? "none" : names) + "."
                                  : ", entry point \"" + variant.entry + "\": " + fault));
    }
  }

  // Returns a sentence on the first difference between the node and the declaration; empty when there is none.
  static std::string Mismatch(const graph::Node& node, const DeclaredKernel& kernel) {
    const auto declared = [&](bool is_buffer) {
      return static_cast<size_t>(std::ranges::count(kernel.params, is_buffer, &DeclaredKernel::Param::is_buffer));
    };
    const auto differ = [&](const char* things, size_t theirs, size_t ours) {
      return theirs == ours || (kernel.may_leave_out && ours < theirs)
                 ? ""
                 : "It declares " + std::to_string(theirs) + " " + things + ", and the node has " +
                       std::to_string(ours) + ".";
    };
    const std::string fault = differ("buffers", declared(true), node.ports.size());
    return fault.empty() ? differ("scalars", declared(false), node.scalars.size()) : fault;
  }

  // The compiler does not find wrong element types, because it knows only addresses.
  void CheckWidths(const graph::Node& node, const ir::BoundsProgram& program) {
    const std::vector<std::set<uint32_t>> widths = AccessWidths(program, node.params.size());
    for (size_t i = 0; i < node.params.size(); ++i) {
      if (node.params[i] >= node.ports.size() || widths[i].empty() || *widths[i].rbegin() >= kVectorBytes) {
        continue;
      }
      const graph::Port& port = node.ports[node.params[i]];
      const uint32_t bytes = ElementBytes(port.type);
      if (*widths[i].rbegin() < bytes && *widths[i].rbegin() == *widths[i].begin()) {
        Add(Severity::kWarning, node,
            "Port \"" + port.name + "\" has elements of type \"" + std::string(Name(port.type)) + "\" (" +
                std::to_string(bytes) + " bytes), and the kernel \"" + node.variants[0].entry + "\" accesses " +
                std::to_string(*widths[i].begin()) + (*widths[i].begin() == 1 ? " byte" : " bytes") + " at a time.");
      }
    }
  }

  // Returns null when the file cannot be read, which is reported once.
  const std::string* BytesOfModule(uint32_t index, const graph::Node& node) {
    const auto [at, is_new] = bytes_.try_emplace(index);
    if (is_new) {
      std::string name;
      StatusOr<std::string> bytes = ReadModuleOf(place_, graph_.modules[index], &name);
      if (bytes.ok()) {
        at->second = *std::move(bytes);
      } else {
        Add(Severity::kWarning, node, "The module was not read: " + Message(bytes.status()));
      }
    }
    return at->second.has_value() ? &*at->second : nullptr;
  }

  const graph::Graph& graph_;
  const DocumentSource& place_;
  LocalCompiler* const compiler_;
  std::map<uint32_t, std::optional<std::string>> bytes_;  // Keyed by the module's index.
  Diagnostics found_;
};

}  // namespace

StatusOr<Diagnostics> CheckModules(const graph::Graph& graph, const DocumentSource& place) {
  const bool has_wasm = std::any_of(graph.modules.begin(), graph.modules.end(),
                                    [](const graph::Module& module) { return module.kind == ModuleKind::kWasm; });
  std::unique_ptr<LocalCompiler> compiler;
  if (has_wasm) {
    HPVMD_ASSIGN_OR_RETURN(compiler, LocalCompiler::Start());
  }
  return ModuleChecker(graph, place, compiler.get()).Check();
}

}  // namespace hpvm::ctl
