// SPDX-License-Identifier: Apache-2.0
#include "tests/spmd/check.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "compiler/back/llvm/llvm_back.h"
#include "compiler/back/llvm/testing/image_runner.h"
#include "compiler/ir/check.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/launch.h"
#include "compiler/ir/verify/verify.h"
#include "compiler/ir/walk.h"
#include "compiler/pass/pipeline.h"
#include "tests/audit.h"
#include "tests/diff/random.h"
#include "tests/spmd/memory.h"

namespace hpvm::spmd {
namespace {

// A kernel takes some ten thousand steps.
constexpr uint64_t kStepsMax = 400'000;

std::string NameOf(const pass::GangShape& shape) {
  return std::to_string(shape.lanes) + "x" + std::to_string(shape.columns) + "x" + std::to_string(shape.rows);
}

pass::GangShape AnyShape(diff::Random& random) {
  static constexpr uint32_t kLanes[] = {4, 4, 8, 8, 8, 16, 16, 16, 32, 64};
  static constexpr uint32_t kColumns[] = {1, 1, 1, 1, 2, 3, 4};
  static constexpr uint32_t kRows[] = {1, 1, 1, 2, 3, 4, 8};
  for (;;) {
    // Two lanes are rarely more than half of a vector.
    const pass::GangShape shape{random.Percent(4) ? 2 : kLanes[random.Below(10)], kColumns[random.Below(7)],
                                kRows[random.Below(7)]};
    // Limits the compile time in a test.
    if (shape.width() * shape.rows <= 192) {
      return shape;
    }
  }
}

void Inject(ir::Module& module, const Fault& fault) {
  for (ir::Function& function : module.functions) {
    for (ir::Op& op : function.ops) {
      if (op.code == fault.from) {
        op.code = fault.to;
      }
    }
  }
}

class Checking {
 public:
  Checking(const Kernel& kernel, const CheckOptions& options)
      : kernel_(kernel), options_(options), random_(kernel.seed ^ 0x5bd1e995), expected_(kernel, /*at_end=*/false) {}

  CheckResult Run() {
    if (RunInterpreter() && Lower()) {
      std::vector<std::string> levels = options_.levels;
      if (levels.empty()) {
        static constexpr const char* kLevels[] = {"x86-64-v4", "x86-64-v4", "x86-64-v3", "x86-64-v2"};
        levels.push_back(std::min(std::string(kLevels[random_.Below(4)]), cpu::HostCpuTarget()->level));
      }
      for (const std::string& level : levels) {
        if (!RunLevel(level)) {
          break;
        }
      }
    }
    return std::move(result_);
  }

 private:
  bool Fail(Verdict verdict, std::string explanation) {
    result_.verdict = verdict;
    result_.explanation = std::move(explanation);
    return false;
  }

  void Note(const std::string& stage) {
    stage_ = stage;
    if (options_.stage != nullptr) {
      std::snprintf(options_.stage, kStageBytes, "%s", stage.c_str());
    }
  }

  bool RunInterpreter() {
    Note("interpreter");
    const Diagnostics faults = ir::Verify(kernel_.module);
    if (!faults.empty()) {
      return Fail(Verdict::kInvalid, ToString(faults));
    }
    StatusOr<ir::Interpreter> made = ir::Interpreter::Create(kernel_.module);
    if (!made.ok()) {
      return Fail(Verdict::kInvalid, Message(made.status()));
    }
    interpreter_ = std::make_unique<ir::Interpreter>(*std::move(made));
    if (options_.is_race_checked && !CheckRaces()) {
      return false;
    }
    const StatusOr<ir::TrapReport> trap = interpreter_->Run(LaunchOf(kernel_, expected_), {.steps_max = kStepsMax});
    if (!trap.ok()) {
      return Fail(Verdict::kInvalid, Message(trap.status()));
    }
    expected_trap_ = *trap;
    result_.has_trapped = trap->code != ir::TrapCode::kNone;
    return trap->code != ir::TrapCode::kStopped || Fail(Verdict::kTooLong, "");
  }

  bool CheckRaces() {
    const Buffers buffers(kernel_, /*at_end=*/false);
    ir::Launch launch = LaunchOf(kernel_, buffers);
    ir::Checker checker;
    launch.checker = &checker;
    const StatusOr<ir::TrapReport> trap = interpreter_->Run(launch, {.steps_max = kStepsMax});
    for (const ir::Finding& finding : checker.findings()) {
      if (finding.kind == ir::FindingKind::kRace) {
        return Fail(Verdict::kRaces, ir::ToString(finding, kernel_.module));
      }
    }
    return trap.ok() || Fail(Verdict::kInvalid, Message(trap.status()));
  }

  bool Lower() {
    Note("passes");
    lowered_ = kernel_.module;
    if (const Status status = pass::RunCpuPipeline(lowered_, {.verify_each = true}); !status.ok()) {
      return Fail(Verdict::kPassFails, Message(status));
    }
    if (options_.fault) {
      Inject(lowered_, *options_.fault);
    }
    return true;
  }

  bool RunLevel(const std::string& level) {
    cpu::CpuOptions options;
    options.audits_proofs = TestsAuditProofs();
    options.shapes = options_.shapes;
    for (uint32_t i = options.shapes.empty() ? random_.Between(1, 2) : 0; i > 0; --i) {
      options.shapes.push_back(AnyShape(random_));
    }
    std::string shapes;
    for (const pass::GangShape& shape : options.shapes) {
      shapes += " " + NameOf(shape);
    }
    Note(level + ": emitting" + shapes);
    const StatusOr<Artifact> artifact = cpu::EmitCpuImage(lowered_, {level}, options);
    if (!artifact.ok()) {
      return Fail(Verdict::kEmitFails, level + shapes + ": " + Message(artifact.status()));
    }
    ++result_.images;
    if (level > cpu::HostCpuTarget()->level) {
      return true;  // Emitted for another machine.
    }
    // Instances that wait for each other need a runner with a stack for each.
    if (!ir::RunsByGroups(kernel_.module) && !RunVariant(level, *artifact, nullptr)) {
      return false;
    }
    result_.is_refused |= artifact->variants.empty();
    for (const CpuVariant& variant : artifact->variants) {
      if (variant.needs_proof && !HasProof(*artifact)) {
        continue;
      }
      if (!RunVariant(level, *artifact, &variant)) {
        return false;
      }
    }
    return true;
  }

  bool HasProof(const Artifact& artifact) const {
    ir::BoundsFacts facts;
    facts.extent = kernel_.extent;
    facts.group = kernel_.group;
    for (size_t k = 0; k < kernel_.bindings.size(); ++k) {
      const ir::KernelParam& param = kernel_.module.params[k];
      const Binding& binding = kernel_.bindings[k];
      facts.params.push_back({param.is_buffer, param.is_writable, param.is_buffer ? binding.bytes : binding.scalar,
                              static_cast<uint8_t>(8 * ir::Bytes(param.type))});
    }
    return ir::ProveBounds(artifact.bounds, facts);
  }

  uint64_t Units(const CpuVariant* variant) const {
    if (variant == nullptr || variant->unit == CpuVariant::Unit::kInstance) {
      return kernel_.instances();
    }
    const uint64_t width = variant->width(), height = variant->height();
    return (kernel_.extent[0] + width - 1) / width * ((kernel_.extent[1] + height - 1) / height) * kernel_.extent[2];
  }

  // Returns the units of a launch, as a whole or split into parts in another order.
  std::vector<std::pair<uint64_t, uint64_t>> Parts(uint64_t units) {
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    const bool is_whole = random_.Percent(50);
    for (uint64_t begin = 0; begin < units;) {
      const uint64_t end = is_whole ? units : std::min(units, begin + random_.Between(1, 9));
      parts.emplace_back(begin, end);
      begin = end;
    }
    for (size_t i = parts.size(); i > 1; --i) {
      std::swap(parts[i - 1], parts[random_.Below(static_cast<uint32_t>(i))]);
    }
    return parts;
  }

  bool RunVariant(const std::string& level, const Artifact& artifact, const CpuVariant* variant) {
    Artifact image = artifact;
    std::string stage = level + " one instance at a time";
    if (variant != nullptr) {
      image.entry_offset = variant->entry_offset;
      stage = level + " " + NameOf({variant->lanes, variant->columns, variant->rows}) +
              (variant->is_along_y ? " along y" : "") + (variant->unit == CpuVariant::Unit::kGroup ? " group" : "") +
              (variant->needs_proof ? " unchecked" : " checked");
      ++result_.gang_runs;
      result_.unchecked_runs += variant->needs_proof ? 1 : 0;
    }
    cpu::testing::ImageRunner runner(image);
    for (bool at_end : {true, false}) {
      ++result_.runs;
      Note(stage + (at_end ? ", buffers before a guard page" : ", buffers behind a guard page"));
      const Buffers buffers(kernel_, at_end);
      if (!RunParts(runner, buffers, variant)) {
        return false;
      }
    }
    return true;
  }

  bool RunParts(cpu::testing::ImageRunner& runner, const Buffers& buffers, const CpuVariant* variant) {
    const ir::Launch launch = LaunchOf(kernel_, buffers);
    const StatusOr<ir::AddressSpace> space = ir::AssignAddresses(kernel_.module, launch.arguments);
    if (!space.ok()) {
      return Fail(Verdict::kInvalid, Message(space.status()));
    }
    ir::TrapReport trap;
    if (variant != nullptr && variant->unit == CpuVariant::Unit::kGroup) {
      trap = runner.RunVariant(launch, *space, *variant).trap;
    } else {
      for (const auto& [begin, end] : Parts(Units(variant))) {
        trap = runner.Run(launch, *space, begin, end).trap;
        if (trap.code != ir::TrapCode::kNone) {
          break;
        }
      }
    }
    if (const std::string stray = buffers.FindStray(); !stray.empty()) {
      return Fail(Verdict::kStray, stage_ + ": " + stray);
    }
    if (trap.code != ir::TrapCode::kNone || expected_trap_.code != ir::TrapCode::kNone) {
      return CompareTrap(trap);
    }
    const std::string difference = buffers.FindDifference(expected_);
    return difference.empty() || Blame(stage_ + ": " + difference);
  }

  // Reports whether the passes or the code cause a difference.
  bool Blame(const std::string& explanation) {
    const Buffers buffers(kernel_, /*at_end=*/false);
    const StatusOr<ir::TrapReport> trap = ir::Interpret(lowered_, LaunchOf(kernel_, buffers), {.steps_max = kStepsMax});
    const bool is_pass = !options_.fault && (!trap.ok() || trap->code != expected_trap_.code ||
                                             !buffers.FindDifference(expected_).empty());
    return Fail(is_pass ? Verdict::kPassFails : Verdict::kDiffers, explanation);
  }

  // Any of the instances that trap may be reported, but with its own trap.
  bool CompareTrap(const ir::TrapReport& trap) {
    if (trap.code == ir::TrapCode::kNone || expected_trap_.code == ir::TrapCode::kNone) {
      return Fail(Verdict::kTrapDiffers, stage_ + ": " + ir::ToString(trap, kernel_.module) +
                                             "; interpreted: " + ir::ToString(expected_trap_, kernel_.module));
    }
    if (ir::RunsByGroups(kernel_.module)) {
      return true;  // It is open which instance of a group traps first, and with which trap.
    }
    const auto& [x, y, z] = trap.instance;
    if (x >= kernel_.extent[0] || y >= kernel_.extent[1] || z >= kernel_.extent[2]) {
      return Fail(Verdict::kTrapDiffers,
                  stage_ + ": the instance does not exist: " + ir::ToString(trap, kernel_.module));
    }
    const uint64_t instance = x + kernel_.extent[0] * (y + kernel_.extent[1] * z);
    const Buffers buffers(kernel_, /*at_end=*/false);
    const StatusOr<ir::TrapReport> alone =
        interpreter_->Run(LaunchOf(kernel_, buffers), {.begin = instance, .end = instance + 1, .steps_max = kStepsMax});
    if (!alone.ok()) {
      return Fail(Verdict::kInvalid, Message(alone.status()));
    }
    ir::TrapReport want = *alone, got = trap;
    if (want.code == ir::TrapCode::kMisalignedAtomic && !kernel_.module.is_memory64) {
      // Here the interpreter does not wrap base + offset, as it does elsewhere.
      want.address &= 0xffffffff;
      got.address &= 0xffffffff;
    }
    if (IsBulkAt(want)) {  // Compiled as loads and stores, it traps in one of them.
      got.address = want.address;
      got.bytes = want.bytes;
    }
    const std::string expected = ir::ToString(want, kernel_.module), reported = ir::ToString(got, kernel_.module);
    return expected == reported ||
           Fail(Verdict::kTrapDiffers, stage_ + ": " + reported + "; that instance alone, interpreted: " + expected);
  }

  // Returns true when the operation that trapped is a copy or a fill.
  bool IsBulkAt(const ir::TrapReport& trap) const {
    bool found = false;
    const ir::Function& function = kernel_.module.functions[trap.function];
    ir::ForEachOp(function, [&](ir::OpId id) {
      const ir::Op& op = function.op(id);
      const bool is_bulk = op.code == ir::Opcode::kMemoryCopy || op.code == ir::Opcode::kMemoryFill;
      found = found || (is_bulk && op.source == trap.source);
    });
    return found;
  }

  const Kernel& kernel_;
  const CheckOptions& options_;
  diff::Random random_;
  Buffers expected_;
  ir::TrapReport expected_trap_;
  std::unique_ptr<ir::Interpreter> interpreter_;
  ir::Module lowered_;
  std::string stage_;
  CheckResult result_;
};

}  // namespace

std::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "the same";
    case Verdict::kTooLong:
      return "too long";
    case Verdict::kInvalid:
      return "invalid kernel";
    case Verdict::kRaces:
      return "races";
    case Verdict::kPassFails:
      return "a pass fails";
    case Verdict::kEmitFails:
      return "the back end fails";
    case Verdict::kDiffers:
      return "other bytes";
    case Verdict::kTrapDiffers:
      return "another trap";
    case Verdict::kStray:
      return "a write outside of the buffers";
    case Verdict::kCrash:
      return "a crash";
    case Verdict::kHang:
      return "a hang";
  }
  return "?";
}

CheckResult Check(const Kernel& kernel, const CheckOptions& options) { return Checking(kernel, options).Run(); }

}  // namespace hpvm::spmd
