// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/launch.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "backends/gpu/parts.h"
#include "backends/shared/launch_class.h"
#include "backends/shared/proof_cache.h"
#include "base/limits.h"

namespace hpvm::gpu {
namespace {

using backends::VariantMask;

using ParamFact = LaunchFacts::Param;

uint64_t FactOf(const ir::KernelParam&, const ParamFact& param) { return param.value; }
ir::WordRange WordsOf(const ParamFact& param) { return param.words; }

// Results of a launch's proofs.
struct Proven {
  bool holds = false;           // GpuVariant::needs_proof
  bool holds_by_words = false;  // GpuVariant::needs_words
};
using GpuProofs = backends::ProofCache<ParamFact, FactOf, const Proven, WordsOf>;
constexpr Proven kProven[2][2] = {{{false, false}, {false, true}}, {{true, false}, {true, true}}};

// A candidate is a variant with a group shape.
constexpr uint32_t kShapes = kGroupShapesMax;
// A VariantMask must hold them.
static_assert(limits::kGpuVariantsMax * kShapes <= 32);

constexpr uint64_t kExtentMax = (uint64_t{1} << 31) - 1;
// With fewer instances a launch ends before a device is full: one instance per work item, and nothing is measured.
constexpr uint64_t kTinyInstances = 16 * 1024;
// With more parts, enqueueing would take longer than running.
constexpr size_t kPartsMax = 1024;
// The device's own clock times whole launches that run alone: a candidate that is slower once stays slower.
constexpr backends::TunerPatience kPatience{2, 1.25, /*skips_first=*/true};
// A device that has not run a class during this many launches of equal devices stops measuring it; an equal device
// does.
constexpr uint32_t kElsewhereMax = 8;
// A measured launch may be lost (its submission failed): after this many others the candidate gets another turn.
constexpr uint32_t kTurnLaunches = 64;

std::string Text(const std::array<uint64_t, 3>& triple) {
  return "(" + std::to_string(triple[0]) + ", " + std::to_string(triple[1]) + ", " + std::to_string(triple[2]) + ")";
}

uint64_t Volume(const std::array<uint32_t, 3>& triple) { return uint64_t{triple[0]} * triple[1] * triple[2]; }

bool IsPlain(const GpuVariant& variant) { return Volume(variant.tile) == 1 && variant.group[0] == 0; }

// Returns the number of instances that run.
uint64_t Instances(const LaunchFacts& facts) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  uint64_t product = 1;  // Counts are below 2^31.
  for (const uint64_t count : facts.count) {
    product = count == 0 || product < kMost / count ? product * count : kMost;
  }
  return std::max<uint64_t>(product, 1);
}

// Returns true when code for `strict` may assume everything that code for `loose` does, and more.
bool Beats(const GpuVariant& strict, const GpuVariant& loose) {
  const auto rests = [](const GpuVariant& v) {
    return int{v.needs_proof} + int{v.needs_words} + int{v.needs_alignment} + !v.factors.empty();
  };
  return strict.tile == loose.tile && strict.group == loose.group && strict.needs_proof >= loose.needs_proof &&
         strict.needs_words >= loose.needs_words && strict.needs_alignment >= loose.needs_alignment &&
         rests(strict) > rests(loose);
}

class LaunchChooser final : public Chooser {
 public:
  LaunchChooser(const Artifact& artifact, const GpuTarget& target, ForcedVariant* forced, TuningStore* tuning)
      : artifact_(artifact),
        code_(artifact.gpu),
        target_(target),
        forced_(forced),
        tuning_(tuning),
        sizes_max_(code_.variants.size(), target.group_size_max),
        proofs_(artifact),
        classes_(ClassesOf(DeviceText())) {
    HPVMD_CHECK(!code_.variants.empty() && code_.variants.size() <= limits::kGpuVariantsMax);
    needs_proofs_ =
        std::any_of(code_.variants.begin(), code_.variants.end(), [](const GpuVariant& v) { return v.needs_proof; });
    if (forced_ == nullptr) {
      classes_->Restore(artifact.tuning);
    }
  }

  Status Choose(const LaunchFacts& facts, Chosen* chosen) override {
    const bool is_aligned = IsAligned(facts);
    {
      std::lock_guard lock(mutex_);
      if (const Final* known = FindFinal(facts, is_aligned)) {
        chosen->parts.assign(known->parts.begin(), known->parts.end());
        chosen->is_measured = false;
        Count(known->parts);
        return absl::OkStatus();
      }
    }
    chosen->is_measured = Wants(facts);
    HPVMD_ASSIGN_OR_RETURN(chosen->parts, ChooseAnew(facts));
    Count(chosen->parts);
    if (!chosen->is_measured) {
      std::lock_guard lock(mutex_);
      last_final_ = next_final_;
      finals_[next_final_] = {facts, is_aligned, chosen->parts, request()};
      next_final_ = (next_final_ + 1) % finals_.size();
    }
    return absl::OkStatus();
  }

  StatusOr<std::vector<Part>> ChooseAnew(const LaunchFacts& facts) {
    HPVMD_RETURN_IF_ERROR(Check(facts));
    if (facts.count[0] == 0 || facts.count[1] == 0 || facts.count[2] == 0) {
      return std::vector<Part>{};
    }
    if (code_.is_native) {
      return Native(facts);
    }
    const Choice choice = Allowed(facts);
    if (choice.bulk == 0) {
      return FailedPrecondition("No variant of kernel \"" + artifact_.entry + "\" can run in groups of " +
                                Text(facts.group) + " with the device's " + std::to_string(target_.local_bytes_max) +
                                " bytes of group memory and its registers.");
    }
    std::vector<Part> parts = Cut(facts, Pick(facts, choice), choice.plain);
    if (parts.size() > kPartsMax) {
      return FailedPrecondition(
          "The launch's extent " + Text(facts.count) + " takes " + std::to_string(parts.size()) +
          " launches on the device, whose limits are groups of " + std::to_string(target_.group_size_max) + " and " +
          std::to_string(target_.group_count_max[0]) + " x " + std::to_string(target_.group_count_max[1]) + " x " +
          std::to_string(target_.group_count_max[2]) + " groups; the limit is " + std::to_string(kPartsMax) + ".");
    }
    return parts;
  }

  void Limit(uint32_t variant, uint32_t group_size_max) override {
    std::lock_guard lock(mutex_);
    finals_ = {};
    sizes_max_[variant] = std::max<uint32_t>(std::min(sizes_max_[variant], group_size_max), 1);
  }

  void Took(const LaunchFacts& facts, std::span<const Part> parts, int64_t device_ns) override {
    if (!IsMeasured(facts) || device_ns <= 0) {
      return;
    }
    const Choice choice = Allowed(facts);
    backends::LaunchClass* open = Find(facts, choice).open;
    if (open == nullptr) {
      return;
    }
    bool has_settled = false;
    {
      std::lock_guard lock(open->mutex);
      if (open->measurer != &target_ || open->tuner.settled() ||
          !std::ranges::equal(Cut(facts, open->tuner.next(), choice.plain), parts, SamePart)) {
        return;
      }
      open->in_flight = 0;
      open->tuner.AddSample(open->tuner.next(), static_cast<double>(device_ns), Instances(facts));
      has_settled = open->Publish();
    }
    if (has_settled && tuning_ != nullptr && artifact_.name != Sha256{}) {
      tuning_->Keep(artifact_.name, classes_->Record());
    }
  }

 private:
  // A launch whose choice cannot change any more.
  struct Final {
    LaunchFacts facts;
    bool is_aligned = false;
    std::vector<Part> parts;
    ForcedVariant::Request request;
  };
  // The start of buffers matters only for whether all of them are aligned: launches on many small buffers in one piece
  // of memory are equal.
  bool IsLike(const Final& known, const LaunchFacts& facts, bool is_aligned) const {
    const auto is_same = [](const ParamFact& a, const ParamFact& b) {
      return a.value == b.value && a.words == b.words;
    };
    return !known.parts.empty() && known.is_aligned == is_aligned && known.facts.extent == facts.extent &&
           known.facts.group == facts.group && known.facts.first == facts.first && known.facts.count == facts.count &&
           std::ranges::equal(known.facts.params, facts.params, is_same) && known.request == request();
  }
  // The caller holds mutex_.
  const Final* FindFinal(const LaunchFacts& facts, bool is_aligned) {
    for (size_t i = 0; i < finals_.size(); ++i) {
      const size_t at = (last_final_ + i) % finals_.size();
      if (IsLike(finals_[at], facts, is_aligned)) {
        last_final_ = at;
        return &finals_[at];
      }
    }
    return nullptr;
  }

  static bool SamePart(const Part& a, const Part& b) {
    return a.variant == b.variant && a.first == b.first && a.groups == b.groups && a.group == b.group;
  }

  // Devices that agree in all of this share records.
  std::string DeviceText() const {
    return std::string(artifact_.kind == ArtifactKind::kVulkan ? "vulkan " : "opencl ") +
           std::to_string(target_.api_version) + " " + target_.ptx_arch + " " + std::to_string(target_.subgroup_size) +
           " " + std::to_string(target_.local_bytes_max) + " " + std::to_string(target_.buffer_bytes_max);
  }

  // Equal devices of one process share measurements of a kernel while any of them holds it.
  std::shared_ptr<backends::ClassTable> ClassesOf(const std::string& device) const {
    static std::mutex& mutex = *new std::mutex;
    static auto& tables =
        *new std::map<std::tuple<const void*, Sha256, std::string>, std::weak_ptr<backends::ClassTable>>;
    const auto variants = static_cast<uint32_t>(code_.variants.size());
    if (artifact_.name == Sha256{} || forced_ != nullptr || tuning_ == nullptr) {
      return std::make_shared<backends::ClassTable>(variants * kShapes, device, kPatience);
    }
    std::lock_guard lock(mutex);
    std::erase_if(tables, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<backends::ClassTable>& known = tables[{tuning_, artifact_.name, device}];
    std::shared_ptr<backends::ClassTable> table = known.lock();
    if (table == nullptr) {
      table = std::make_shared<backends::ClassTable>(variants * kShapes, device, kPatience);
      known = table;
    }
    return table;
  }

  ForcedVariant::Request request() const { return forced_ == nullptr ? ForcedVariant::Request{} : forced_->request(); }
  bool is_forced() const { return request().variant != kAutoVariant; }
  // Counts results for a test that forces a variant.
  void Count(std::span<const Part> parts) const {
    if (is_forced() && !parts.empty()) {
      forced_->Count(
          std::ranges::any_of(parts, [this](const Part& part) { return part.variant == request().variant; }));
    }
  }
  bool runs_by_groups() const { return artifact_.uses_barrier || artifact_.uses_group_memory; }

  Status Check(const LaunchFacts& facts) const;
  Status CheckGroup(const std::array<uint64_t, 3>& group) const;
  StatusOr<std::vector<Part>> Native(const LaunchFacts& facts) const;
  bool IsAligned(const LaunchFacts& facts) const;
  // Returns true if a measurement would still change anything.
  bool Wants(const LaunchFacts& facts) { return IsMeasured(facts) && Find(facts, Allowed(facts)).open != nullptr; }
  bool IsMeasured(const LaunchFacts& facts) const {
    return !is_forced() && !code_.is_native && !target_.is_processor && Instances(facts) >= kTinyInstances;
  }
  bool HoldsFor(const GpuVariant& variant, const LaunchFacts& facts, const Proven& proven, bool is_aligned) const;
  // Variants that may run a launch's bulk, and the variant for the remainder beside their tiles.
  struct Choice {
    VariantMask bulk = 0;
    uint32_t plain = 0;
  };
  Choice Allowed(const LaunchFacts& facts);
  Proven ProvenOf(const LaunchFacts& facts);
  uint32_t Fixed(VariantMask variants) const;
  uint32_t Pick(const LaunchFacts& facts, const Choice& choice);
  // The class being measured or, if none is, the winning candidate.
  struct Found {
    backends::LaunchClass* open = nullptr;
    uint32_t winner = 0;
  };
  Found Find(const LaunchFacts& facts, const Choice& choice);
  VariantMask ShapesOf(const LaunchFacts& facts, uint32_t variant) const;
  CutVariant Describe(uint32_t variant) const;
  std::vector<Part> Cut(const LaunchFacts& facts, uint32_t candidate, uint32_t plain) const;

  const Artifact& artifact_;
  const GpuCode& code_;
  const GpuTarget& target_;
  ForcedVariant* const forced_;
  TuningStore* const tuning_;
  std::vector<uint32_t> sizes_max_;  // Indexed by variant.
  bool needs_proofs_ = false;
  GpuProofs proofs_;
  const std::shared_ptr<backends::ClassTable> classes_;
  std::mutex mutex_;
  // Guarded by mutex_; each box of a launch that runs in pieces has its own entry.
  std::array<Final, 16> finals_;
  size_t next_final_ = 0;  // Guarded by mutex_.
  size_t last_final_ = 0;  // Guarded by mutex_; index of the last match.
};

Status LaunchChooser::Check(const LaunchFacts& facts) const {
  HPVMD_CHECK(facts.params.size() == artifact_.params.size());
  for (size_t d = 0; d < 3; ++d) {
    if (facts.extent[d] > kExtentMax) {
      return FailedPrecondition("The launch's extent " + Text(facts.extent) + " exceeds the limit of a GPU, " +
                                std::to_string(kExtentMax) + " instances in each dimension.");
    }
  }
  for (size_t i = 0; i < facts.params.size(); ++i) {
    if (artifact_.params[i].is_buffer && facts.params[i].value > target_.buffer_bytes_max) {
      return FailedPrecondition("Parameter \"" + artifact_.params[i].name + "\" is a buffer of " +
                                std::to_string(facts.params[i].value) +
                                " bytes; a kernel on this device can address at most " +
                                std::to_string(target_.buffer_bytes_max) + " bytes of one buffer.");
    }
  }
  return runs_by_groups() && !code_.is_native ? CheckGroup(facts.group) : absl::OkStatus();
}

Status LaunchChooser::CheckGroup(const std::array<uint64_t, 3>& group) const {
  uint64_t size = 1;
  for (size_t d = 0; d < 3; ++d) {
    if (group[d] == 0 || group[d] > target_.group_extent_max[d]) {
      return FailedPrecondition("The group " + Text(group) + " does not fit the device, whose groups have 1 to " +
                                std::to_string(target_.group_extent_max[d]) + " work items in dimension " +
                                std::to_string(d) + ".");
    }
    size *= group[d];  // Each factor is a u32, and the product of the first two stays below 2^32.
    if (size > target_.group_size_max) {
      return FailedPrecondition("The group " + Text(group) + " has more than the " +
                                std::to_string(target_.group_size_max) +
                                " work items that a group of this device has.");
    }
  }
  return absl::OkStatus();
}

// Returns one part, because the tenant's code counts work items itself. Its groups divide the extent.
StatusOr<std::vector<Part>> LaunchChooser::Native(const LaunchFacts& facts) const {
  if (facts.first != std::array<uint64_t, 3>{0, 0, 0} || facts.count != facts.extent) {
    return FailedPrecondition("Kernel \"" + artifact_.entry +
                              "\" is native code of the device and counts its instances from 0, so its launch of " +
                              Text(facts.extent) + " instances cannot be split: the " + Text(facts.count) + " from " +
                              Text(facts.first) + " on cannot run alone.");
  }
  const uint32_t index = request().variant < code_.variants.size() ? request().variant : 0;
  const GpuVariant& variant = code_.variants[index];
  std::array<uint64_t, 3> group = facts.group;
  const bool is_given = group != std::array<uint64_t, 3>{1, 1, 1};
  if (variant.group[0] != 0) {
    const std::array<uint64_t, 3> fixed = {variant.group[0], variant.group[1], variant.group[2]};
    if (is_given && group != fixed) {
      return InvalidArgument("The node's group " + Text(group) + " is not the group that kernel \"" + artifact_.entry +
                             "\" declares, " + Text(fixed) + ".");
    }
    group = fixed;
  } else if (!is_given) {
    CutVariant free = Describe(index);
    const GroupShape fit =
        FitGroup(facts.extent, ShapesFor(target_, DimensionsOf(facts.extent), {1, 1, 1})[0], free.limits);
    for (size_t d = 0; d < 3; ++d) {
      // A size that does not divide the extent cannot be used: take the largest that does.
      uint64_t least = fit[d];
      while (facts.extent[d] % least != 0) {
        --least;
      }
      group[d] = least;
    }
  }
  HPVMD_RETURN_IF_ERROR(CheckGroup(group));
  if (group[0] * group[1] * group[2] > sizes_max_[index]) {
    return FailedPrecondition("The group " + Text(group) + " has more work items than the " +
                              std::to_string(sizes_max_[index]) + " for which the driver built kernel \"" +
                              artifact_.entry + "\".");
  }
  Part part{index, {}, {}, {}};
  for (size_t d = 0; d < 3; ++d) {
    if (facts.extent[d] % group[d] != 0) {
      return InvalidArgument("The extent " + Text(facts.extent) + " is not a multiple of the group " + Text(group) +
                             ", which kernel \"" + artifact_.entry +
                             "\" needs, because it is native code of the device.");
    }
    const uint64_t count = facts.extent[d] / group[d];
    if (count > target_.group_count_max[d]) {
      return FailedPrecondition("The launch has " + std::to_string(count) + " groups in dimension " +
                                std::to_string(d) + "; the device's limit is " +
                                std::to_string(target_.group_count_max[d]) + ".");
    }
    part.group[d] = static_cast<uint32_t>(group[d]);
    part.groups[d] = static_cast<uint32_t>(count);
  }
  return std::vector<Part>{part};
}

bool LaunchChooser::HoldsFor(const GpuVariant& variant, const LaunchFacts& facts, const Proven& proven,
                             bool is_aligned) const {
  // Words are needed in addition to everything else, so that proof includes the other one.
  const bool is_proven = variant.needs_words ? proven.holds_by_words : !variant.needs_proof || proven.holds;
  if (!is_proven || (variant.needs_alignment && !is_aligned) || variant.local_bytes > target_.local_bytes_max) {
    return false;
  }
  for (const GpuFactor& factor : variant.factors) {
    if ((facts.params[factor.param].value & ((uint64_t{1} << factor.log2) - 1)) != 0) {
      return false;
    }
  }
  const bool has_group = variant.group[0] != 0;
  const size_t index = static_cast<size_t>(&variant - code_.variants.data());
  if (has_group && Volume(variant.group) > sizes_max_[index]) {
    return false;
  }
  if (!runs_by_groups()) {
    return true;
  }
  const bool is_group =
      facts.group[0] == variant.group[0] && facts.group[1] == variant.group[1] && facts.group[2] == variant.group[2];
  return Volume(variant.tile) == 1 && (!has_group || is_group) &&
         facts.group[0] * facts.group[1] * facts.group[2] <= sizes_max_[index];
}

Proven LaunchChooser::ProvenOf(const LaunchFacts& facts) {
  if (!needs_proofs_) {
    return {};
  }
  const GpuProofs::Launch launch{facts.extent, facts.group, facts.params};
  const Proven* known = proofs_.Find(launch);
  if (known == nullptr) {
    known = &kProven[proofs_.Prove(launch)][proofs_.ProveByWords(launch)];
    proofs_.Remember(launch, known);
  }
  return *known;
}

bool LaunchChooser::IsAligned(const LaunchFacts& facts) const {
  bool is_aligned = true;
  for (size_t i = 0; i < facts.params.size(); ++i) {
    is_aligned = is_aligned && (!artifact_.params[i].is_buffer || facts.params[i].start % 16 == 0);
  }
  return is_aligned;
}

LaunchChooser::Choice LaunchChooser::Allowed(const LaunchFacts& facts) {
  const Proven proven = ProvenOf(facts);
  const bool is_aligned = IsAligned(facts);
  std::vector<const GpuVariant*> holding;
  for (const GpuVariant& variant : code_.variants) {
    if (HoldsFor(variant, facts, proven, is_aligned)) {
      holding.push_back(&variant);
    }
  }
  Choice choice;
  bool has_plain = runs_by_groups();
  for (const GpuVariant* variant : holding) {
    const uint32_t index = static_cast<uint32_t>(variant - code_.variants.data());
    if (std::ranges::any_of(holding, [&](const GpuVariant* other) { return Beats(*other, *variant); })) {
      continue;
    }
    choice.bulk |= VariantMask{1} << index;
    if (IsPlain(*variant) && !has_plain) {
      has_plain = true;
      choice.plain = index;
    }
  }
  const uint32_t wanted = request().variant;
  if (wanted < code_.variants.size() && std::ranges::find(holding, &code_.variants[wanted]) != holding.end()) {
    choice.bulk = VariantMask{1} << wanted;
  }
  // Compilers always make a plain variant; without it the far sides cannot be run.
  return has_plain ? choice : Choice{};
}

// For launches that are not measured: the smallest tile, the first in order.
uint32_t LaunchChooser::Fixed(VariantMask variants) const {
  uint32_t best = static_cast<uint32_t>(std::countr_zero(variants));
  for (uint32_t i = best; i < code_.variants.size(); ++i) {
    if ((variants >> i & 1) != 0 && Volume(code_.variants[i].tile) < Volume(code_.variants[best].tile)) {
      best = i;
    }
  }
  return best;
}

// Returns the candidates of one variant: its shapes.
VariantMask LaunchChooser::ShapesOf(const LaunchFacts& facts, uint32_t variant) const {
  const bool is_fixed = runs_by_groups() || code_.variants[variant].group[0] != 0;
  const size_t count =
      is_fixed ? 1 : ShapesFor(target_, DimensionsOf(facts.count), code_.variants[variant].tile).size();
  return ((VariantMask{1} << count) - 1) << variant * kShapes;
}

// Variants are compared in their first shapes, then the shapes of the winner: this takes fewer launches than all pairs.
LaunchChooser::Found LaunchChooser::Find(const LaunchFacts& facts, const Choice& choice) {
  Found found;
  const auto settle = [&](VariantMask mask) {
    found.winner = static_cast<uint32_t>(std::countr_zero(mask));
    if (std::has_single_bit(mask)) {
      return true;
    }
    backends::LaunchClass& known = classes_->ClassOf(mask, facts.count, facts.group);
    const uint32_t winner = known.winner.load(std::memory_order_acquire);
    found.open = winner == backends::LaunchClass::kUnsettled ? &known : nullptr;
    found.winner = winner;
    return found.open == nullptr;
  };
  VariantMask firsts = 0;
  for (uint32_t i = 0; i < code_.variants.size(); ++i) {
    firsts |= (choice.bulk >> i & 1) != 0 ? VariantMask{1} << i * kShapes : 0;
  }
  if (firsts != 0 && settle(firsts)) {
    settle(ShapesOf(facts, found.winner / kShapes));
  }
  return found;
}

uint32_t LaunchChooser::Pick(const LaunchFacts& facts, const Choice& choice) {
  if (!IsMeasured(facts)) {
    return Fixed(choice.bulk) * kShapes + std::min(request().shape, kShapes - 1);
  }
  const Found found = Find(facts, choice);
  if (found.open == nullptr) {
    return found.winner;
  }
  std::lock_guard lock(found.open->mutex);
  backends::Tuner& tuner = found.open->tuner;
  if (tuner.settled()) {
    return tuner.best();
  }
  if (found.open->measurer != &target_) {
    if (found.open->measurer != nullptr && ++found.open->elsewhere <= kElsewhereMax) {
      return tuner.best();
    }
    found.open->measurer = &target_;
    found.open->in_flight = 0;
    tuner.StartOver();
  }
  found.open->elsewhere = 0;
  // One measured launch at a time: launches between it and its time run the best so far.
  const bool has_turn = found.open->in_flight == 0;
  found.open->in_flight = (found.open->in_flight + 1) % kTurnLaunches;
  return has_turn ? tuner.next() : tuner.best();
}

CutVariant LaunchChooser::Describe(uint32_t variant) const {
  const GpuVariant& v = code_.variants[variant];
  return {variant,
          v.tile,
          v.group,
          {sizes_max_[variant], target_.group_extent_max, target_.group_count_max,
           v.group_constant[0] != GpuVariant::kNoConstant}};
}

std::vector<Part> LaunchChooser::Cut(const LaunchFacts& facts, uint32_t candidate, uint32_t plain) const {
  const CutVariant variant = Describe(candidate / kShapes);
  if (runs_by_groups()) {
    GroupShape group{};
    for (size_t d = 0; d < 3; ++d) {
      group[d] = static_cast<uint32_t>(facts.group[d]);
    }
    return CutByGroups({facts.first, facts.count}, group, variant);
  }
  const std::vector<GroupShape> shapes = ShapesFor(target_, DimensionsOf(facts.count), variant.tile);
  const GroupShape& wanted = shapes[std::min<size_t>(candidate % kShapes, shapes.size() - 1)];
  return CutFreely({facts.first, facts.count}, variant,
                   IsPlain(code_.variants[variant.index]) ? variant : Describe(plain), wanted);
}

}  // namespace

std::unique_ptr<Chooser> CreateChooser(const Artifact& artifact, const GpuTarget& target, ForcedVariant* forced,
                                       TuningStore* tuning) {
  return std::make_unique<LaunchChooser>(artifact, target, forced, tuning);
}

uint64_t ValueOf(const GpuArgument& argument, const ValueSource& source) {
  using Kind = GpuArgument::Kind;
  const LaunchFacts& facts = *source.facts;
  switch (argument.kind) {
    case Kind::kBuffer:
    case Kind::kTrapRecord:
      return 0;  // No values.
    case Kind::kBufferBytes:
    case Kind::kScalar:
      return facts.params[argument.index].value;
    case Kind::kBufferStart:
      return facts.params[argument.index].start;
    case Kind::kBufferBase:
      return source.base[argument.index];
    case Kind::kFirst:
      return source.part->first[argument.index];
    case Kind::kExtent:
      return facts.extent[argument.index];
    case Kind::kGroup:
      return facts.group[argument.index];
    case Kind::kTrapIndex:
      return source.trap_index;
    case Kind::kGroupBase:
      return source.group_base;
  }
  return 0;
}

}  // namespace hpvm::gpu
