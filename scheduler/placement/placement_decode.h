// SPDX-License-Identifier: Apache-2.0
// Decoder performs list scheduling: it takes jobs by priority and places each in the earliest gap of the option that a
// policy prefers. It is the only evaluator of plans: every source of priorities and options gets its makespan from
// here.
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

enum class Width : uint8_t { kEither, kLane, kAll };  // Preference for launches that may run on one lane or on all.

// Indexed by job. Among jobs whose predecessors are planned, larger priorities come first; equal priorities are ordered
// by index.
struct Guide {
  std::span<const int64_t> priority;  // Empty: in the order of the jobs.
  // The option to take, in the job's set; kNone: chosen by policy. Empty: all by policy.
  std::span<const uint32_t> pinned{};
  std::span<const int64_t> ahead{};  // Indexed by job, by space: added to an option's end before options are compared.
  Width width = Width::kEither;
  size_t gaps_max = 1'000'000;
  bool wants_transfers = false;
  int64_t stop_ns = kForever;  // A plan that will not end before this time is abandoned.
  // Indexed by job: lower bound of the time from its end to the plan's; used with stop_ns.
  std::span<const int64_t> rest{};
};

struct Planned {
  uint32_t option = 0;  // Index in the job's set.
  bool has_all_lanes = false;
  int64_t start = 0, end = 0;
};

struct DecodedPlan {
  std::vector<Planned> jobs;
  std::vector<PlannedTransfer> transfers;
  int64_t makespan = kForever;  // kForever when the plan was abandoned.
  size_t planned = 0;           // Number of jobs planned before it was abandoned.
};

// Reuses its memory from plan to plan. Used by one thread.
class Decoder {
 public:
  explicit Decoder(const Problem& problem);
  void Decode(const Guide& guide, DecodedPlan& plan);

 private:
  // One transfer on one resource.
  struct Leg {
    uint32_t item, resource;
    SpaceIndex from, to;
    int64_t start, end;
    uint32_t host = kNone;  // The host's copies, or a part of them,
    int64_t host_end = 0;   // and until when.
  };
  // Transfers needed to have a job's data in a space.
  struct Arrival {
    int64_t ready = -1;  // -1: not computed for this job.
    std::vector<Leg> legs;
  };
  struct Assignment {
    uint32_t option = kNone;
    bool has_all_lanes = false;
    uint32_t lane = 0;
    int64_t start = 0, end = 0, key = kForever;
  };

  void Reset(const Guide& guide, DecodedPlan& plan);
  uint32_t Pop();
  int64_t& there(uint32_t item, SpaceIndex space) { return there_[size_t{item} * spaces_ + space]; }
  void Bring(uint32_t job, SpaceIndex space, Arrival& arrival);
  // `size` is one of the item's size classes.
  int64_t AddLeg(uint32_t item, uint32_t size, SpaceIndex from, SpaceIndex to, int64_t ready, std::vector<Leg>& legs);
  int64_t Replaced(uint32_t job, SpaceIndex space, const DecodedPlan& plan) const;
  Assignment Choose(uint32_t job, const Guide& guide, const DecodedPlan& plan);
  void Consider(uint32_t job, uint32_t index, const Guide& guide, int64_t ready, Assignment& best);
  int64_t Return(uint32_t job, const Option& option, int64_t end) const;
  void Commit(uint32_t job, const Assignment& place, const Guide& guide, DecodedPlan& plan);
  int64_t FindAll(uint32_t resource, int64_t from, int64_t length) const;
  // Finds a start at which both resources are free, each for its own length.
  int64_t FindBoth(uint32_t resource, int64_t length, uint32_t other, int64_t other_ns, int64_t from) const;
  uint32_t FindLane(uint32_t resource, int64_t from, int64_t length, int64_t* start) const;
  void TakeAll(uint32_t resource, int64_t start, int64_t length);

  const Problem& p_;
  const uint32_t spaces_;
  std::vector<uint32_t> first_lane_;  // Indexed by resource: index in lanes_.
  std::vector<Timeline> lanes_;
  std::vector<int64_t> there_;   // Indexed by item and space: the time since which its bytes are present.
  std::vector<uint32_t> waits_;  // Indexed by job: number of reads and earlier readers that it still waits for.
  std::vector<std::pair<int64_t, uint32_t>> heap_;
  std::vector<Arrival> arrivals_;  // Indexed by space, for the current job.
  size_t gaps_max_ = 0;
};

}  // namespace hpvm::scheduler::placing

#endif  // HPVMD_SCHEDULER_PLACEMENT_PLACEMENT_DECODE_H_
