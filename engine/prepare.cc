// SPDX-License-Identifier: Apache-2.0
// Document -> graph -> every distinct kernel compiled (in parallel) -> loaded on the devices that may run it.
#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <map>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/device_facts.h"
#include "engine/engine.h"
#include "engine/plan_check.h"
#include "engine/prepared_graph.h"

namespace hpvm::engine {
namespace {

using graph::NodeId;
using scheduler::Candidate;
using scheduler::Tier;

// Limit on concurrent compiles for one graph: each is a process, and other tenants need the machine, too.
constexpr size_t kParallelCompiles = 4;

// Returns the key of compiles that can be shared: devices with equal targets load the same artifact.
std::string TargetKey(const Device& device) {
  std::string key(1, static_cast<char>('0' + static_cast<int>(device.artifact_kind())));
  if (IsGpuCode(device.artifact_kind())) {
    key += BytesOf(device.info().gpu);
  }
  return key;
}

ir::Type ScalarTypeOf(graph::ScalarType type) {
  constexpr ir::Type kTypes[] = {ir::Type::kI32, ir::Type::kI64, ir::Type::kF32, ir::Type::kF64};
  return kTypes[static_cast<size_t>(type)];
}

// One compile, shared by all nodes that use it.
struct CompileJob {
  CompileRequest request;
  std::string place;  // The first variant that requested it.
  uint64_t users = 0;
  StatusOr<CompileOutcome> outcome = Status(absl::StatusCode::kUnknown, "");
  // The result of loading the artifact on a device. A refusal (kInvalidArgument) is the module's fault.
  struct Loaded {
    uint32_t device = 0;
    StatusOr<std::unique_ptr<Executable>> executable = Status(absl::StatusCode::kUnknown, "");
    Executable* borrowed = nullptr;  // Set once the graph owns it.
  };
  std::vector<Loaded> loaded{};
};

// A variant of a leaf for the devices of one target.
struct Use {
  NodeId leaf;
  uint32_t variant = 0;
  uint32_t job = 0;
  std::vector<uint32_t> devices{};
};

struct ModuleBytes {
  std::span<const uint8_t> bytes;
  int memfd = -1;
  Sha256 hash;
  bool found = false;
};

// Matches a device's id ("opencl:0"), its driver's family ("opencl"), or its kind ("gpu").
bool NamesDevice(const std::vector<std::string>& names, const DeviceInfo& info) {
  const std::string_view family = FamilyOf(info.id);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == info.id || name == family || name == Name(info.kind);
  });
}

class Preparer {
 public:
  Preparer(const EngineOptions& options, const PrepareOptions& prepare, ModuleSource& modules, Time deadline)
      : options_(options),
        modules_(modules),
        deadline_(deadline),
        lost_devices_(prepare.lost_devices),
        stop_(prepare.stop),
        compile_cpu_(prepare.compile_cpu != nullptr ? *prepare.compile_cpu : no_one_asks_),
        graph_(std::make_shared<PreparedGraph>()) {
    graph_->is_checked = prepare.check;
    graph_->devices = prepare.check ? std::vector<Device*>{options.checker} : options.devices;
  }

  StatusOr<PrepareOutcome> Run(std::string_view document) {
    HPVMD_RETURN_IF_ERROR(FindDevices());
    const Time start = options_.clock->Now();
    graph::ParseOutcome parsed = graph::Parse(document, options_.graph_limits);
    outcome_.summary.parse = options_.clock->Now() - start;
    outcome_.diagnostics = std::move(parsed.diagnostics);
    if (!parsed.graph.has_value()) {
      return std::move(outcome_);
    }
    graph_->graph = *std::move(parsed.graph);
    FindModules();
    if (HasErrors(outcome_.diagnostics)) {
      return std::move(outcome_);
    }
    HPVMD_RETURN_IF_ERROR(CompileAndLoad());
    if (HasErrors(outcome_.diagnostics)) {
      return std::move(outcome_);
    }
    HPVMD_RETURN_IF_ERROR(over_limit_);
    HPVMD_RETURN_IF_ERROR(CheckEveryNodePlaced());
    Summarise();
    outcome_.graph = std::move(graph_);
    return std::move(outcome_);
  }

 private:
  Status FindDevices() {
    if (graph_->is_checked && options_.checker == nullptr) {
      return FailedPrecondition("No device here can check kernels.");
    }
    graph_->facts = FactsOfDevices(graph_->devices);
    graph_->shares_memory = AssignSpaces(*graph_, /*may_share=*/true);
    const bool has_host = std::any_of(graph_->devices.begin(), graph_->devices.end(),
                                      [](const Device* device) { return device->info().host_visible; });
    return has_host ? absl::OkStatus() : FailedPrecondition("The engine has no device that works in host memory.");
  }

  void FindModules() {
    const graph::Graph& graph = graph_->graph;
    module_bytes_.resize(graph.modules.size());
    std::vector<bool> is_used(graph.modules.size());
    for (const graph::Node& node : graph.nodes) {
      for (const graph::Variant& variant : node.variants) {
        is_used[variant.module.index] = true;
      }
    }
    for (size_t i = 0; i < graph.modules.size(); ++i) {
      if (is_used[i]) {
        FindModule(graph.modules[i], module_bytes_[i]);
      }
    }
  }

  void FindModule(const graph::Module& module, ModuleBytes& out) {
    const std::string& place = module.pointer.text;
    const auto refuse = [&](std::string message) {
      outcome_.diagnostics.push_back(
          {.severity = Severity::kError, .place = place, .offset = {}, .message = std::move(message)});
    };
    if (module.source == graph::Module::Source::kInline) {
      out.bytes = module.bytes;
    } else {
      StatusOr<std::span<const uint8_t>> found = modules_.Find(module);
      if (!found.ok()) {
        return refuse("Module \"" + module.name + "\" cannot be read: " + Message(found.status()));
      }
      out.bytes = *found;
      out.memfd = modules_.MemfdOf(module);
    }
    if (out.bytes.size() > limits::kModuleBytesMax) {
      return refuse("Module \"" + module.name + "\" (" + std::to_string(out.bytes.size()) +
                    " bytes) is larger than the limit (" + std::to_string(limits::kModuleBytesMax) + " bytes).");
    }
    out.hash = HashOf(out.bytes);
    if (module.hash.has_value() && *module.hash != out.hash) {
      return refuse("Module \"" + module.name + "\" has the hash " + ToHex(out.hash) + "; the document names " +
                    ToHex(*module.hash) + ".");
    }
    out.found = true;
  }

  // Returns true when the document lets the device run a variant of a leaf: the restrictions of the leaf, of the
  // variant and of all enclosing nodes. They do not apply to a check.
  bool IsAllowed(const graph::Node& leaf, const graph::Variant& variant, const DeviceInfo& info) const {
    if (graph_->is_checked) {
      return true;
    }
    if (!variant.devices.empty() && !NamesDevice(variant.devices, info)) {
      return false;
    }
    for (const graph::Node* node = &leaf;; node = &graph_->graph.node(node->parent)) {
      if (!node->devices.empty() && !NamesDevice(node->devices, info)) {
        return false;
      }
      if (!node->parent.valid()) {
        return true;
      }
    }
  }

  // Returns true when the document restricts a leaf to this very device, or prefers it.
  bool IsNamed(const graph::Node& leaf, const graph::Variant& variant, const DeviceInfo& info) const {
    const auto holds = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), info.id) != names.end();
    };
    bool is_named = holds(leaf.hints) || holds(variant.devices);
    for (const graph::Node* node = &leaf; !is_named; node = &graph_->graph.node(node->parent)) {
      is_named = holds(node->devices);
      if (!node->parent.valid()) {
        break;
      }
    }
    return is_named;
  }

  // Real devices come first; emulated devices run only leaves that no real device can run, the reference device runs
  // the remaining leaves, and the null device comes last. When the compiler refuses a leaf for a real device, the
  // leaf goes to an emulated device only if the document names that device: it would run on the same processor, many
  // times slower, without an explanation.
  Status CompileAndLoad() {
    graph_->candidates.resize(graph_->graph.nodes.size());
    graph_->executables.resize(graph_->graph.nodes.size());
    refusals_.resize(graph_->graph.nodes.size());
    for (const Device* device : graph_->devices) {
      target_keys_.push_back(TargetKey(*device));
    }
    for (Tier tier : {Tier::kReal, Tier::kEmulated, Tier::kReference, Tier::kNull}) {
      uses_.clear();
      const size_t first_job = jobs_.size();
      CollectUses(tier);
      const Time compile_start = options_.clock->Now();
      HPVMD_RETURN_IF_ERROR(CompileJobs(first_job));
      const Time load_start = options_.clock->Now();
      LoadJobs();
      for (const Use& use : uses_) {
        HPVMD_RETURN_IF_ERROR(AddCandidates(use));
      }
      outcome_.summary.compile += load_start - compile_start;
      outcome_.summary.load += options_.clock->Now() - load_start;
    }
    ReportCompiles();
    return absl::OkStatus();
  }

  void CollectUses(Tier tier) {
    const graph::Graph& graph = graph_->graph;
    for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
      const graph::Node& node = graph.nodes[n];
      if (!node.is_leaf || !graph_->candidates[n].empty()) {
        continue;
      }
      for (uint32_t v = 0; v < node.variants.size(); ++v) {
        const size_t first = uses_.size();
        for (uint32_t d = 0; d < graph_->devices.size(); ++d) {
          const DeviceInfo& info = graph_->devices[d]->info();
          const bool is_substitute =
              tier == Tier::kEmulated && !refusals_[n].empty() && !IsNamed(node, node.variants[v], info);
          if (graph_->facts[d].tier != tier || is_substitute || !IsAllowed(node, node.variants[v], info) ||
              !TakesModule(node.variants[v], d, n)) {
            continue;
          }
          const uint32_t job = JobFor(node, v, d);
          const auto same =
              std::find_if(uses_.begin() + first, uses_.end(), [&](const Use& use) { return use.job == job; });
          if (same != uses_.end()) {
            same->devices.push_back(d);
          } else {
            ++jobs_[job].users;
            uses_.push_back({.leaf = NodeId(n), .variant = v, .job = job, .devices = {d}});
          }
        }
      }
    }
  }

  // Native modules run on the devices that their language is for; a compile for other devices would only fail.
  bool TakesModule(const graph::Variant& variant, uint32_t device, uint32_t node) {
    const Device& target = *graph_->devices[device];
    const ModuleKindRow& kind = *Find(graph_->graph.modules[variant.module.index].kind);
    const NativeForm* const form = FormOf(kind, module_bytes_[variant.module.index].bytes);
    // The null device accepts everything, because it stands for other devices in tests.
    if (form == nullptr || graph_->facts[device].tier == Tier::kNull ||
        (Takes(*Find(target.artifact_kind()), *form) &&
         (!form->is_for_fpgas || target.info().kind == DeviceKind::kFpga))) {
      return true;
    }
    AddReason(node, " Device " + graph_->facts[device].id + " does not run " + std::string(form->flavour) +
                        std::string(kind.plural) + ".");
    return false;
  }

  uint32_t JobFor(const graph::Node& node, uint32_t v, uint32_t device) {
    const graph::Variant& variant = node.variants[v];
    // The key excludes names of parameters, which matter only for messages.
    std::string key = std::to_string(variant.module.index) + '/' + variant.entry + '/' + target_keys_[device] +
                      (variant.hpvm_web ? 'w' : '-') + (node.fast_math ? 'f' : '-');
    for (uint32_t param : node.params) {
      key += param < node.ports.size()
                 ? (node.ports[param].access == graph::Access::kIn ? 'r' : 'w')
                 : static_cast<char>('0' + static_cast<int>(node.scalars[param - node.ports.size()].type));
    }
    for (const graph::Constant& constant : variant.constants) {
      const auto* number = std::get_if<double>(&constant.value);
      key += ':' + std::to_string(constant.id) +
             (number != nullptr ? 'f' + std::to_string(std::bit_cast<uint64_t>(*number))
                                : 'i' + std::to_string(std::get<int64_t>(constant.value)));
    }
    const auto [it, is_new] = job_by_key_.try_emplace(std::move(key), static_cast<uint32_t>(jobs_.size()));
    if (is_new) {
      jobs_.push_back({.request = RequestFor(node, variant, *graph_->devices[device]),
                       .place = variant.pointer.text});
    }
    return it->second;
  }

  CompileRequest RequestFor(const graph::Node& node, const graph::Variant& variant, const Device& device) const {
    const graph::Module& module = graph_->graph.modules[variant.module.index];
    CompileRequest request;
    request.module_kind = module.kind;
    request.module_name = module.name;
    request.module_hash = module_bytes_[variant.module.index].hash;
    request.module = module_bytes_[variant.module.index].bytes;
    request.module_memfd = module_bytes_[variant.module.index].memfd;
    request.entry = variant.entry;
    request.abi = variant.hpvm_web ? Abi::kHpvmWeb : Abi::kHpvm;
    request.target = device.artifact_kind();
    if (IsGpuCode(request.target)) {
      request.gpu = device.info().gpu;
    }
    request.options = module.build_options;
    for (const graph::Constant& constant : variant.constants) {
      const auto* number = std::get_if<double>(&constant.value);
      request.constants.push_back({.id = constant.id,
                                   .is_float = number != nullptr,
                                   .bits = number != nullptr
                                               ? std::bit_cast<uint64_t>(*number)
                                               : static_cast<uint64_t>(std::get<int64_t>(constant.value))});
    }
    request.fast_math = node.fast_math;
    request.stop = stop_;
    for (uint32_t param : node.params) {
      if (param < node.ports.size()) {
        const graph::Port& port = node.ports[param];
        request.params.push_back(
            {.name = port.name, .is_buffer = true, .is_writable = port.access != graph::Access::kIn});
      } else {
        const graph::Scalar& scalar = node.scalars[param - node.ports.size()];
        request.params.push_back({.name = scalar.name, .is_buffer = false, .scalar = ScalarTypeOf(scalar.type)});
      }
    }
    return request;
  }

  // Runs `work`, which takes items until there are none, on several threads.
  static void InParallel(size_t items, const std::function<void()>& work) {
    std::vector<std::thread> threads;
    try {
      for (size_t i = 1; i < std::min(items, kParallelCompiles); ++i) {
        threads.emplace_back(work);
      }
    } catch (const std::system_error&) {
      // No more threads are available: the running threads and this one do all the work.
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  Status CompileJobs(size_t first) {
    std::atomic<size_t> next{first};
    const auto work = [&] {
      for (size_t i = next.fetch_add(1); i < jobs_.size(); i = next.fetch_add(1)) {
        jobs_[i].outcome = options_.compiler->Compile(jobs_[i].request, deadline_);
      }
    };
    InParallel(jobs_.size() - first, work);
    for (size_t i = first; i < jobs_.size(); ++i) {
      compile_cpu_ += jobs_[i].outcome.ok() ? jobs_[i].outcome->cpu : Duration(0);
    }
    for (size_t i = first; i < jobs_.size(); ++i) {
      if (!jobs_[i].outcome.ok()) {
        return While(jobs_[i].outcome.status(), "compiling " + NameOfJob(jobs_[i]));
      }
      (jobs_[i].outcome->from_cache ? outcome_.summary.from_cache : outcome_.summary.compiled) += 1;
    }
    return absl::OkStatus();
  }

  // Loads every artifact of this tier on its devices. Drivers are slow to build, so a few loads run concurrently.
  void LoadJobs() {
    struct Item {
      CompileJob* job;
      CompileJob::Loaded* loaded;
    };
    for (const Use& use : uses_) {
      CompileJob& job = jobs_[use.job];
      for (const uint32_t d : job.outcome->artifact.has_value() ? use.devices : std::vector<uint32_t>()) {
        if (NeedsLoading(use, d)) {
          job.loaded.push_back({.device = d});
        }
      }
    }
    std::vector<Item> items;
    bool is_slow = false;
    for (CompileJob& job : jobs_) {
      for (CompileJob::Loaded& loaded : job.loaded) {
        if (loaded.borrowed == nullptr && loaded.executable.status().code() == absl::StatusCode::kUnknown) {
          items.push_back({&job, &loaded});
          is_slow = is_slow || IsGpuCode(job.request.target);
        }
      }
    }
    std::atomic<size_t> next{0};
    InParallel(is_slow ? items.size() : 1, [&] {
      for (size_t i = next.fetch_add(1); i < items.size(); i = next.fetch_add(1)) {
        items[i].loaded->executable =
            graph_->devices[items[i].loaded->device]->Load(*items[i].job->outcome->artifact, {stop_, deadline_});
      }
    });
  }

  // Returns true unless the artifact is already loaded on that device of `use`, or the device has refused it.
  bool NeedsLoading(const Use& use, uint32_t device) {
    const CompileJob& job = jobs_[use.job];
    return std::none_of(job.loaded.begin(), job.loaded.end(),
                        [&](const CompileJob::Loaded& loaded) { return loaded.device == device; }) &&
           Supports(use, device).ok;
  }

  Support Supports(const Use& use, uint32_t device) const {
    if (device < options_.emitted_refusals.size() && !options_.emitted_refusals[device].empty() &&
        !jobs_[use.job].outcome->artifact->gpu.is_native) {
      return {false, options_.emitted_refusals[device]};
    }
    return graph_->devices[device]->Supports(NeedsOf(use));
  }

  // Includes the group when the document gives it as numbers; other groups are checked when a plan is made.
  KernelNeeds NeedsOf(const Use& use) const {
    const Artifact& artifact = *jobs_[use.job].outcome->artifact;
    KernelNeeds needs{
        .kind = artifact.kind, .uses_barrier = artifact.uses_barrier, .uses_group_memory = artifact.uses_group_memory};
    const std::vector<graph::Expr>& group = graph_->graph.node(use.leaf).group;
    std::array<uint64_t, 3> extents{1, 1, 1};
    for (size_t i = 0; i < group.size(); ++i) {
      const StatusOr<int64_t> extent = IsNumber(group[i]) ? graph::Evaluate(group[i], {}) : StatusOr<int64_t>(0);
      if (!extent.ok() || *extent < 1) {
        return needs;
      }
      extents[i] = static_cast<uint64_t>(*extent);
    }
    needs.group = extents;
    return needs;
  }

  static bool IsNumber(const graph::Expr& expr) {
    return std::none_of(expr.terms.begin(), expr.terms.end(),
                        [](const graph::Expr::Term& term) { return term.kind == graph::Expr::Kind::kSymbol; });
  }

  // Makes the leaf's candidates from the artifact, on every device of the use that accepts it.
  Status AddCandidates(const Use& use) {
    CompileJob& job = jobs_[use.job];
    const graph::Node& leaf = graph_->graph.node(use.leaf);
    if (!job.outcome->artifact.has_value()) {
      refusals_[use.leaf.index].push_back(use.job);
      return absl::OkStatus();
    }
    for (const uint32_t d : use.devices) {
      if (const Support support = Supports(use, d); !support.ok) {
        AddReason(use.leaf.index, " Device " + graph_->devices[d]->info().id + ": " + support.reason);
        continue;
      }
      HPVMD_ASSIGN_OR_RETURN(Executable * executable, TakeLoaded(job, d));
      if (executable == nullptr) {
        refusals_[use.leaf.index].push_back(use.job);
        continue;
      }
      graph_->candidates[use.leaf.index].push_back(
          {.device = d, .variant = use.variant, .hint = HintRank(leaf, graph_->devices[d]->info())});
      graph_->executables[use.leaf.index].push_back(executable);
    }
    return absl::OkStatus();
  }

  void AddReason(uint32_t node, const std::string& reason) {
    std::string& all = reasons_[node];
    if (all.find(reason) == std::string::npos) {
      all += reason;
    }
  }

  // Returns true for a fault of the module, or a limit of this server: other devices may still run it.
  static bool IsRefusal(const Status& status) {
    return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
  }

  // Returns null when the device refused the module, which gives a diagnostic as a refused compile does.
  StatusOr<Executable*> TakeLoaded(CompileJob& job, uint32_t device) {
    CompileJob::Loaded& loaded = *std::find_if(job.loaded.begin(), job.loaded.end(),
                                               [&](const CompileJob::Loaded& one) { return one.device == device; });
    if (loaded.borrowed != nullptr) {
      return loaded.borrowed;
    }
    if (!loaded.executable.ok()) {
      if (IsRefusal(loaded.executable.status())) {
        return nullptr;
      }
      if (absl::IsUnavailable(loaded.executable.status()) && lost_devices_ != nullptr) {
        lost_devices_->push_back(graph_->facts[device].id);
      }
      return While(loaded.executable.status(),
                   "loading " + NameOfJob(job) + " on device " + graph_->devices[device]->info().id);
    }
    loaded.borrowed = loaded.executable->get();
    graph_->loaded.push_back(*std::move(loaded.executable));
    return loaded.borrowed;
  }

  static uint32_t HintRank(const graph::Node& leaf, const DeviceInfo& info) {
    for (uint32_t i = 0; i < leaf.hints.size(); ++i) {
      if (NamesDevice({leaf.hints[i]}, info)) {
        return i;
      }
    }
    return Candidate::kNoHint;
  }

  // A refused compile is an error when no other way to run the leaf was found; otherwise a warning. A compile that a
  // limit ended is no error of the document.
  void ReportCompiles() {
    std::vector<bool> is_fatal(jobs_.size());
    for (size_t n = 0; n < refusals_.size(); ++n) {
      for (uint32_t job : refusals_[n]) {
        is_fatal[job] = is_fatal[job] || graph_->candidates[n].empty();
      }
    }
    std::unordered_set<std::string> seen;  // A fault that was found for two kinds of artifact is reported once.
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const CompileJob& job = jobs_[i];
      const bool is_error = is_fatal[i] && !job.outcome->artifact.has_value() && job.outcome->limit.ok();
      if (is_fatal[i] && !job.outcome->limit.ok()) {
        NoteLimit(job, job.outcome->limit);
      }
      for (const Diagnostic& diagnostic : job.outcome->diagnostics) {
        Diagnostic out = diagnostic;
        out.severity = is_error ? diagnostic.severity : Severity::kWarning;
        ReportJob(job, std::move(out), seen);
      }
      for (const CompileJob::Loaded& loaded : job.loaded) {
        if (loaded.borrowed == nullptr && IsRefusal(loaded.executable.status())) {
          const bool is_limit = !absl::IsInvalidArgument(loaded.executable.status());
          if (is_fatal[i] && is_limit) {
            NoteLimit(job, loaded.executable.status());
          }
          ReportJob(job,
                    {.severity = is_fatal[i] && !is_limit ? Severity::kError : Severity::kWarning,
                     .place = {},
                     .offset = {},
                     .message = "Device " + graph_->facts[loaded.device].id +
                                (is_limit ? " does not run the kernel: " : " refuses the kernel: ") +
                                Message(loaded.executable.status())},
                    seen);
        }
      }
    }
    for (const auto& [node, reason] : reasons_) {
      if (!graph_->candidates[node].empty() &&
          graph_->facts[graph_->candidates[node].front().device].tier >= Tier::kReference) {
        const graph::Node& leaf = graph_->graph.nodes[node];
        Report({.severity = Severity::kWarning,
                .place = leaf.pointer,
                .offset = {},
                .message = "Node \"" + leaf.name + "\" runs on device " +
                           graph_->facts[graph_->candidates[node].front().device].id + ", which is slow." + reason},
               seen);
      }
    }
  }

  // Only the first one is reported.
  void NoteLimit(const CompileJob& job, const Status& limit) {
    if (over_limit_.ok()) {
      over_limit_ = While(limit, "compiling " + NameOfJob(job) + " for " + job.place);
    }
  }

  static std::string NameOfJob(const CompileJob& job) {
    return "entry \"" + job.request.entry + "\" of module \"" + job.request.module_name + "\"";
  }

  void ReportJob(const CompileJob& job, Diagnostic diagnostic, std::unordered_set<std::string>& seen) {
    diagnostic.place = job.place;
    diagnostic.message =
        "Module \"" + job.request.module_name + "\", entry \"" + job.request.entry + "\": " + diagnostic.message;
    if (job.users > 1) {
      diagnostic.message += " (" + std::to_string(job.users) + " nodes use this kernel.)";
    }
    Report(std::move(diagnostic), seen);
  }

  void Report(Diagnostic diagnostic, std::unordered_set<std::string>& seen) {
    if (outcome_.diagnostics.size() < options_.graph_limits.diagnostics_max &&
        seen.insert(ToString(diagnostic)).second) {
      outcome_.diagnostics.push_back(std::move(diagnostic));
    }
  }

  // Describes the node's own restriction, if it has one.
  static std::string Wanted(const graph::Node& node) {
    std::string wanted;
    for (const std::string& device : node.devices) {
      wanted += (wanted.empty() ? " It may only use \"" : "\", \"") + device;
    }
    return wanted.empty() ? wanted : wanted + "\".";
  }

  Status CheckEveryNodePlaced() const {
    const graph::Graph& graph = graph_->graph;
    std::string message;
    size_t unplaced = 0;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (!graph.nodes[n].is_leaf || !graph_->candidates[n].empty()) {
        continue;
      }
      if (++unplaced <= kNamedMax) {
        auto reason = reasons_.find(static_cast<uint32_t>(n));
        message +=
            (message.empty() ? "" : "\n") + graph.nodes[n].pointer + ": No device here can run node \"" +
            graph.nodes[n].name + "\"." +
            (reason == reasons_.end() ? Wanted(graph.nodes[n]) + " Devices: " + DeviceList() + "." : reason->second);
      }
    }
    if (unplaced > kNamedMax) {
      message += "\nNo device here can run " + std::to_string(unplaced - kNamedMax) + " more nodes.";
    }
    return unplaced == 0 ? absl::OkStatus() : FailedPrecondition(message);
  }

  std::string DeviceList() const {
    std::string list;
    for (const scheduler::DeviceFacts& facts : graph_->facts) {
      list += (list.empty() ? "" : ", ") + facts.id;
    }
    return list;
  }

  void Summarise() {
    const graph::Graph& graph = graph_->graph;
    GraphSummary& summary = outcome_.summary;
    summary.name = graph.name;
    summary.streaming = graph.streaming;
    for (size_t i = 0; i < graph.symbols.size(); ++i) {
      if (!graph.is_index_symbol[i]) {
        summary.symbols.push_back(graph.symbols[i]);
      }
    }
    for (const graph::Port& port : graph.node(graph.root()).ports) {
      PortSummary out{.name = port.name, .type = port.type, .shape = {}};
      for (const graph::Expr& expr : port.shape) {
        out.shape.push_back(expr.text);
      }
      (port.access == graph::Access::kIn ? summary.inputs : summary.outputs).push_back(std::move(out));
    }
    std::vector<bool> is_used(graph_->devices.size());
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (n > 0) {  // The root is the graph itself.
        (graph.nodes[n].is_leaf ? summary.leaf_nodes : summary.internal_nodes) += 1;
      }
      summary.edges += graph.nodes[n].edges.size();
      uint32_t may_run = 0;
      for (const Candidate& candidate : graph_->candidates[n]) {
        is_used[candidate.device] = true;
        may_run |= candidate.device < 32 ? uint32_t{1} << candidate.device : 0;
      }
      AddNeed(may_run, summary.needs);
    }
    NameFastNodes(summary);
    NameNativeNodes(summary);
    for (size_t d = 0; d < is_used.size(); ++d) {
      if (is_used[d]) {
        summary.devices.push_back(graph_->facts[d].id);
      }
    }
    if (graph_->is_checked) {
      summary.needs.clear();
    }
    graph_->summary = summary;
  }

  static void AddNeed(uint32_t devices, std::vector<uint32_t>& needs) {
    if (devices == 0 || std::any_of(needs.begin(), needs.end(), [&](uint32_t has) { return (has & devices) == has; })) {
      return;
    }
    std::erase_if(needs, [&](uint32_t has) { return (has & devices) == devices; });
    needs.push_back(devices);
  }

  void NameFastNodes(GraphSummary& summary) const {
    const graph::Graph& graph = graph_->graph;
    for (size_t n = 0; n < graph.nodes.size() && summary.fast_math_nodes.size() < kFastNodesNamedMax; ++n) {
      const std::vector<Executable*>& ways = graph_->executables[n];
      if (std::any_of(ways.begin(), ways.end(), [](const Executable* way) { return way->artifact().fast_math; })) {
        summary.fast_math_nodes.push_back(NameWithOuter(n));
      }
    }
  }

  std::string NameWithOuter(size_t n) const {
    const graph::Graph& graph = graph_->graph;
    std::string name = graph.nodes[n].name;
    for (NodeId outer = graph.nodes[n].parent; outer.valid() && outer != graph.root();
         outer = graph.node(outer).parent) {
      name = graph.node(outer).name + "/" + name;
    }
    return name;
  }

  void NameNativeNodes(GraphSummary& summary) const {
    const graph::Graph& graph = graph_->graph;
    for (size_t n = 0; n < graph.nodes.size() && summary.native_nodes.size() < kFastNodesNamedMax; ++n) {
      std::map<std::string, std::vector<std::string>> devices;  // Keyed by module.
      for (size_t c = 0; c < graph_->candidates[n].size(); ++c) {
        const Candidate& candidate = graph_->candidates[n][c];
        if (graph_->executables[n][c]->artifact().gpu.is_native) {
          const graph::ModuleId module = graph.nodes[n].variants[candidate.variant].module;
          devices[graph.modules[module.index].name].push_back(graph_->facts[candidate.device].id);
        }
      }
      for (auto& [module, ids] : devices) {
        summary.native_nodes.push_back({NameWithOuter(n), module, std::move(ids)});
      }
    }
  }

  static constexpr size_t kNamedMax = 10;  // Limit on the nodes named in one message.

  const EngineOptions& options_;
  ModuleSource& modules_;
  const Time deadline_;
  std::vector<std::string>* const lost_devices_;  // May be null.
  const std::atomic<uint32_t>* const stop_;       // May be null.
  Duration no_one_asks_{0};
  Duration& compile_cpu_;
  Status over_limit_;  // The limit that ended a compile without which a leaf has no device.
  std::shared_ptr<PreparedGraph> graph_;
  PrepareOutcome outcome_;
  std::vector<ModuleBytes> module_bytes_;  // Indexed by module.
  std::vector<std::string> target_keys_;   // Indexed by device.
  std::vector<CompileJob> jobs_;
  std::unordered_map<std::string, uint32_t> job_by_key_;
  std::vector<Use> uses_;                              // Uses of the current tier.
  std::vector<std::vector<uint32_t>> refusals_;        // Indexed by node: jobs that gave no artifact, or that a device
                                                       // refused.
  std::unordered_map<uint32_t, std::string> reasons_;  // Keyed by node: reasons why devices do not accept it.
};

}  // namespace

StatusOr<PrepareOutcome> Engine::Prepare(std::string_view document, ModuleSource& modules, Time deadline,
                                         const PrepareOptions& prepare) {
  HPVMD_RETURN_IF_ERROR(spill_.status());
  StatusOr<PrepareOutcome> outcome = Preparer(options_, prepare, modules, deadline).Run(document);
  if (outcome.ok() && outcome->graph != nullptr) {
    PreparedGraph& graph = *outcome->graph;
    graph.memory = memory_;
    graph.host_bytes_max = options_.host_bytes_max;
    graph.device_bytes_max = options_.device_bytes_max;
    graph.spill = *spill_;
    graph.host_pool = host_pool_;
    graph.costs = std::make_unique<GraphCosts>(costs_, graph);
    HPVMD_RETURN_IF_ERROR(CheckKnownSizes(graph));
    memory_->Add(outcome->graph);
  }
  return outcome;
}

}  // namespace hpvm::engine
