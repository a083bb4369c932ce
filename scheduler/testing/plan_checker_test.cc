// SPDX-License-Identifier: Apache-2.0
#include "scheduler/testing/plan_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/testing/random_plan.h"

namespace hpvm::scheduler {
namespace {

// Corrupts a correct plan; returns false when this plan has nothing to corrupt.
using Spoil = std::function<bool(const RandomPlan&, Residency&, SeededRng&)>;

struct Planted {
  std::string name;
  Spoil spoil;
  RandomPlanOptions options{};
  // Minimum fraction of the faults that must be detected; less than 1 when the corruption may have no effect.
  double caught_min = 1;
};

template <typename T, typename F>
T* Choose(std::vector<T>& items, SeededRng& rng, F is_wanted) {
  std::vector<T*> wanted;
  for (T& item : items) {
    if (is_wanted(item)) {
      wanted.push_back(&item);
    }
  }
  return wanted.empty() ? nullptr : wanted[rng.Below(wanted.size())];
}

bool IsCopy(const Step& step) { return step.kind == Step::Kind::kCopy; }
bool IsZero(const Step& step) { return step.kind == Step::Kind::kZero; }
bool IsRun(const Step& step) { return step.kind == Step::Kind::kRun; }

const std::vector<Planted> kPlanted = {
    {.name = "a copy that brings one byte less",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, [](const Step& s) { return IsCopy(s) && s.bytes > 1; });
           return step != nullptr && --step->bytes > 0;
         },
     .caught_min = 0.85},
    {.name = "a copy that begins one byte late",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, [](const Step& s) { return IsCopy(s) && s.bytes > 1; });
           return step != nullptr && ++step->offset > 0 && --step->bytes > 0;
         },
     .caught_min = 0.85},
    {.name = "a copy of the wrong storage",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, IsCopy);
           for (uint32_t s = 0; step != nullptr && s < plan.storages.size(); ++s) {
             const Storage& held = plan.storages[step->source.index];
             const Storage& other = plan.storages[s];
             if (s != step->source.index && other.space == held.space && other.bytes >= held.bytes &&
                 (other.kind != held.kind || other.offset != held.offset || other.port != held.port)) {
               step->source = StorageId(s);
               return true;
             }
           }
           return false;
         },
     .caught_min = 0.85},
    {.name = "memory that is not filled with zeros",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, [](const Step& s) { return IsZero(s) && s.bytes > 1; });
           return step != nullptr && (step->bytes = 1) == 1;
         },
     .caught_min = 0.85},
    {.name = "a kernel that gets another buffer",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           StorageId* id = Choose(plan.port_storage, rng, [](const StorageId&) { return true; });
           for (uint32_t s = 0; id != nullptr && s < plan.storages.size(); ++s) {
             const Storage& held = plan.storages[id->index];
             const Storage& other = plan.storages[s];
             if (s != id->index && other.space == held.space && other.bytes >= held.bytes && held.bytes > 0 &&
                 other.kind == Storage::Kind::kTemporary && other.offset != held.offset) {
               *id = StorageId(s);
               return true;
             }
           }
           return false;
         },
     .caught_min = 0.85},
    {.name = "a wait that is missing",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Segment* segment = Choose(plan.segments, rng, [&](const Segment& s) {
             // A wait for another lane; the order of its own lane holds anyway.
             return s.wait_count > 0 &&
                    plan.segments[plan.waits[s.first_wait + s.wait_count - 1].segment].lane != s.lane;
           });
           return segment != nullptr && segment->wait_count-- > 0;
         },
     .caught_min = 0.3},
    {.name = "storages that share memory while both are in use",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Storage* a = Choose(plan.storages, rng, [](const Storage& s) {
             return s.kind == Storage::Kind::kTemporary && s.bytes > 0 && s.offset > 0;
           });
           return a != nullptr && ((a->offset = 0), true);
         },
     .caught_min = 0.3},
    {.name = "a storage beyond its arena",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Storage* a =
               Choose(plan.storages, rng, [](const Storage& s) { return s.kind == Storage::Kind::kTemporary; });
           return a != nullptr && (a->offset += plan.temporary_bytes[a->space] + kStorageAlignment) > 0;
         }},
    {.name = "a storage that is not aligned",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Storage* a = Choose(plan.storages, rng, [](const Storage& s) {
             return s.kind == Storage::Kind::kTemporary && s.offset > 0;
           });
           return a != nullptr && --a->offset > 0;
         }},
    {.name = "an arena above its budget",
     .spoil =
         [](const RandomPlan& random, Residency& plan, SeededRng&) {
           plan.temporary_bytes[0] = random.spaces[0].bytes_max + 1;
           return true;
         },
     .options = {.has_budgets = true}},
    {.name = "a task that runs twice",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, IsRun);
           const auto tasks = static_cast<uint32_t>(plan.first_port.size());
           return step != nullptr && tasks > 1 && ((step->task = (step->task + 1) % tasks), true);
         }},
    {.name = "a task on another device",
     .spoil =
         [](const RandomPlan& random, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, IsRun);
           return step != nullptr && random.devices.size() > 1 &&
                  ((step->device = (step->device + 1) % static_cast<DeviceIndex>(random.devices.size())), true);
         }},
    {.name = "a copy that writes to an input",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, [&](const Step& s) {
             return IsCopy(s) && plan.storages[s.source.index].kind == Storage::Kind::kInput;
           });
           return step != nullptr && ((std::swap(step->source, step->target)), true);
         }},
    {.name = "a copy in the wrong lane",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Segment* segment = Choose(plan.segments, rng, [](const Segment& s) { return s.lane == Lane::kUpload; });
           for (uint32_t i = 0; segment != nullptr && i < segment->step_count; ++i) {
             plan.steps[segment->first_step + i].lane = Lane::kDownload;
           }
           return segment != nullptr && ((segment->lane = Lane::kDownload), true);
         }},
    {.name = "steps of a segment in the wrong order",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Segment* segment = Choose(plan.segments, rng, [](const Segment& s) { return s.step_count > 1; });
           if (segment == nullptr) {
             return false;
           }
           std::swap(plan.steps[segment->first_step], plan.steps[segment->first_step + segment->step_count - 1]);
           return true;
         },
     .caught_min = 0.5},
    {.name = "an access that the order within a segment does not know of",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Touch* touch = Choose(plan.touches, rng, [](const Touch& t) { return t.writes; });
           return touch != nullptr && ((touch->range = {}), true);
         },
     .caught_min = 0.1},
    {.name = "room in which somebody's bytes are",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           const auto may_shrink = [&](const Step& s) {
             return IsCopy(s) && s.bytes > 1 && plan.storages[s.source.index].space == kHostSpace &&
                    plan.storages[s.target.index].space != kHostSpace;
           };
           Step* step = Choose(plan.steps, rng, may_shrink);
           return step != nullptr && ((++step->room, --step->bytes), true);
         },
     .caught_min = 0.7},
    {.name = "room that reaches beyond the target",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, [](const Step& s) { return s.room > 0; });
           return step != nullptr && (step->room += kStorageAlignment) > 0;
         }},
    {.name = "storages that do not trade places",
     .spoil = [](const RandomPlan&, Residency& plan,
                 SeededRng&) { return !plan.swaps.empty() && (plan.swaps.pop_back(), true); },
     .options = {.nodes_max = 15, .has_carries = true},
     .caught_min = 0.7},
    {.name = "an output that is left behind",
     .spoil =
         [](const RandomPlan&, Residency& plan, SeededRng& rng) {
           Step* step = Choose(plan.steps, rng, [&](const Step& s) {
             return s.target.valid() && s.bytes > 1 && plan.storages[s.target.index].kind == Storage::Kind::kOutput;
           });
           return step != nullptr && (step->bytes = 1) == 1;
         },
     .options = {.has_carries = true},
     .caught_min = 0.7},
};

// Every kind of planted fault is found; those that always have an effect, always.
TEST(PlanCheckerTest, FindsPlantedFaults) {
  for (const Planted& planted : kPlanted) {
    uint32_t planted_in = 0, caught = 0;
    for (uint64_t seed = 1; seed <= 150; ++seed) {
      const RandomPlan random(seed, planted.options);
      StatusOr<Residency> plan = PlanResidency(random.input());
      ASSERT_TRUE(plan.ok()) << plan.status();
      SeededRng rng(seed);
      if (!planted.spoil(random, *plan, rng)) {
        continue;
      }
      ++planted_in;
      caught += CheckPlan(random.input(), *plan, {.bodies = 3}).empty() ? 0 : 1;
    }
    EXPECT_GE(planted_in, 10u) << planted.name;
    EXPECT_GE(caught, planted.caught_min * planted_in) << planted.name << " planted in " << planted_in;
    EXPECT_GT(caught, 0u) << planted.name;
    RecordProperty(planted.name, static_cast<int>(caught * 100 / std::max(planted_in, 1u)));
  }
}

}  // namespace
}  // namespace hpvm::scheduler
