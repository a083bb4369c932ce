// SPDX-License-Identifier: Apache-2.0
// List scheduling: jobs by priority, each in the earliest gap of the option that a policy prefers. The one evaluator of
// plans: whatever proposes priorities and options gets the makespan from here.
#ifndef HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_DECODE_H_
#define HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/placement/placement_problem.h"
#include "scheduler/placement/placement_timeline.h"

namespace hpvm::scheduler::placing {

enum class Width : uint8_t { kEither, kLane, kAll };  // What a launch prefers that may have one lane or all.

// By job. Larger priorities first among those whose predecessors are planned; jobs of equal priority by index.
struct Guide {
  std::span<const int64_t> priority;   // Empty: in the order of the jobs.
  std::span<const uint32_t> pinned{};  // The option to take, in the job's set; kNone: by policy. Empty: all by policy.
  std::span<const int64_t> ahead{};    // By job, by space: added to an option's end before options are compared.
  Width width = Width::kEither;
  size_t gaps_max = 1'000'000;
  bool wants_transfers = false;
  int64_t stop_ns = kForever;       // A plan that will end no sooner is not finished.
  std::span<const int64_t> rest{};  // By job: at least so long from its end to the plan's; with stop_ns.
};

struct Planned {
  uint32_t option = 0;  // In the job's set.
  bool has_all_lanes = false;
  int64_t start = 0, end = 0;
};

struct Plan {
  std::vector<Planned> jobs;
  std::vector<PlannedTransfer> transfers;
  int64_t makespan = kForever;  // kForever: it was not finished.
  size_t planned = 0;           // Jobs, until it was given up.
};

// Keeps its memory from plan to plan. One thread.
class Decoder {
 public:
  explicit Decoder(const Problem& problem);
  void Decode(const Guide& guide, Plan& plan);

 private:
  // One transfer on one resource.
  struct Leg {
    uint32_t item, resource;
    SpaceIndex from, to;
    int64_t start, end;
    uint32_t host = kNone;  // The host's copies, or a part of them,
    int64_t host_end = 0;   // and until when.
  };
  // What it takes to have a job's data in a space.
  struct Arrival {
    int64_t ready = -1;  // -1: not looked at for this job.
    std::vector<Leg> legs;
  };
  struct Place {
    uint32_t option = kNone;
    bool has_all_lanes = false;
    uint32_t lane = 0;
    int64_t start = 0, end = 0, key = kForever;
  };

  void Reset(const Guide& guide, Plan& plan);
  uint32_t Pop();
  int64_t& there(uint32_t item, SpaceIndex space) { return there_[size_t{item} * spaces_ + space]; }
  void Bring(uint32_t job, SpaceIndex space, Arrival& arrival);
  // `size`: one of the item's classes.
  int64_t AddLeg(uint32_t item, uint32_t size, SpaceIndex from, SpaceIndex to, int64_t ready, std::vector<Leg>& legs);
  int64_t Replaced(uint32_t job, SpaceIndex space, const Plan& plan) const;
  Place Choose(uint32_t job, const Guide& guide, const Plan& plan);
  void Consider(uint32_t job, uint32_t index, const Guide& guide, int64_t ready, Place& best);
  int64_t Return(uint32_t job, const Option& option, int64_t end) const;
  void Commit(uint32_t job, const Place& place, const Guide& guide, Plan& plan);
  int64_t FindAll(uint32_t resource, int64_t from, int64_t length) const;
  // On two resources at once, for as long on each.
  int64_t FindBoth(uint32_t resource, int64_t length, uint32_t other, int64_t other_ns, int64_t from) const;
  uint32_t FindLane(uint32_t resource, int64_t from, int64_t length, int64_t* start) const;
  void TakeAll(uint32_t resource, int64_t start, int64_t length);

  const Problem& p_;
  const uint32_t spaces_;
  std::vector<uint32_t> first_lane_;  // By resource, in lanes_.
  std::vector<Timeline> lanes_;
  std::vector<int64_t> there_;   // By item and space: since when its bytes are there.
  std::vector<uint32_t> waits_;  // By job: of how many reads and earlier readers it waits yet.
  std::vector<std::pair<int64_t, uint32_t>> heap_;
  std::vector<Arrival> arrivals_;  // By space, of the job at hand.
  size_t gaps_max_ = 0;
};

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_DECODE_H_
