// SPDX-License-Identifier: Apache-2.0
// Method: list scheduling with insertion. A heap yields the ready job of highest priority; every option is tried at
// its earliest gap, after the copies that it needs, and the one with the least end, its outputs' return and the
// guide's look-ahead included, is committed.
// Invariants: a job is ready when the producers of what it reads, and the readers of what it replaces, are planned.
// Intervals taken on one lane do not overlap. there(item, space) is the time from which a space holds an item; 0
// for inputs in host memory, and kForever until a planned copy or launch puts it there. Copies between two devices
// go through host memory.
// Searches of several lanes end because starts only move later and each lane is idle after its tail. A plan is
// abandoned at the first job whose end plus lower bound of the rest is not below stop_ns.
// Source: insertion as in HEFT (see placement.h).
#include "scheduler/placement/placement_decode.h"

#include <algorithm>

namespace hpvm::scheduler::placing {

Decoder::Decoder(const Problem& problem)
    : p_(problem), spaces_(problem.resources->spaces), arrivals_(problem.resources->spaces) {
  uint32_t lanes = 0;
  for (const uint32_t count : p_.resources->lanes) {
    first_lane_.push_back(lanes);
    lanes += count;
  }
  first_lane_.push_back(lanes);
  lanes_.resize(lanes);
}

void Decoder::Decode(const Guide& guide, DecodedPlan& plan) {
  Reset(guide, plan);
  const bool is_ordered = guide.priority.empty();
  int64_t makespan = 0;
  for (size_t done = 0; done < p_.jobs.size(); ++done) {
    const uint32_t job = is_ordered ? static_cast<uint32_t>(done) : Pop();
    const Assignment place = Choose(job, guide, plan);
    Commit(job, place, guide, plan);
    plan.planned = done + 1;
    int64_t end = place.end;
    for (const uint32_t item : p_.writes[job]) {
      if (p_.items[item].is_returned) {
        end = std::max(end, there(item, kHostSpace));
      }
    }
    makespan = std::max(makespan, end);
    if (std::max(end, place.end + (guide.rest.empty() ? 0 : guide.rest[job])) >= guide.stop_ns) {
      return;
    }
    if (is_ordered) {
      continue;
    }
    for (const uint32_t item : p_.writes[job]) {
      for (const uint32_t reader : p_.readers[item]) {
        if (--waits_[reader] == 0) {
          heap_.emplace_back(guide.priority[reader], ~reader);
          std::push_heap(heap_.begin(), heap_.end());
        }
      }
    }
    for (const uint32_t next : p_.after[job]) {
      if (--waits_[next] == 0) {
        heap_.emplace_back(guide.priority[next], ~next);
        std::push_heap(heap_.begin(), heap_.end());
      }
    }
  }
  plan.makespan = makespan;
  if (guide.wants_transfers) {
    std::sort(plan.transfers.begin(), plan.transfers.end(), [](const PlannedTransfer& a, const PlannedTransfer& b) {
      return std::pair(a.start, a.value) < std::pair(b.start, b.value);
    });
  }
}

void Decoder::Reset(const Guide& guide, DecodedPlan& plan) {
  gaps_max_ = guide.gaps_max;
  plan.jobs.resize(p_.jobs.size());
  plan.transfers.clear();
  plan.makespan = kForever;
  for (Timeline& lane : lanes_) {
    lane.Clear();
  }
  there_.assign(p_.items.size() * spaces_, kForever);
  for (uint32_t item = 0; item < p_.items.size(); ++item) {
    if (p_.items[item].producer == kNone) {
      there(item, kHostSpace) = 0;
    }
  }
  heap_.clear();
  if (guide.priority.empty()) {
    return;
  }
  waits_.assign(p_.jobs.size(), 0);
  for (uint32_t job = 0; job < p_.jobs.size(); ++job) {
    waits_[job] = static_cast<uint32_t>(p_.before[job].size());
    for (const uint32_t item : p_.reads[job]) {
      waits_[job] += p_.items[item].producer == kNone ? 0 : 1;
    }
    if (waits_[job] == 0) {
      heap_.emplace_back(guide.priority[job], ~job);
    }
  }
  std::make_heap(heap_.begin(), heap_.end());
}

uint32_t Decoder::Pop() {
  std::pop_heap(heap_.begin(), heap_.end());
  const uint32_t job = ~heap_.back().second;
  heap_.pop_back();
  return job;
}

int64_t Decoder::FindAll(uint32_t resource, int64_t from, int64_t length) const {
  const uint32_t first = first_lane_[resource], end = first_lane_[resource + 1];
  int64_t start = lanes_[first].Find(from, length);
  for (uint32_t lane = first + 1, agreed = 1; agreed < end - first; lane = lane + 1 == end ? first : lane + 1) {
    const int64_t later = lanes_[lane].Find(start, length);
    agreed = later == start ? agreed + 1 : 1;
    start = later;
  }
  return start;
}

// Returns the lane with the earliest start; among equals the one that was busy last, so that larger gaps remain.
uint32_t Decoder::FindLane(uint32_t resource, int64_t from, int64_t length, int64_t* start) const {
  uint32_t best = kNone;
  for (uint32_t lane = first_lane_[resource]; lane < first_lane_[resource + 1]; ++lane) {
    const int64_t at = lanes_[lane].Find(from, length);
    if (best == kNone || at < *start || (at == *start && lanes_[lane].tail() > lanes_[best].tail())) {
      best = lane;
      *start = at;
    }
  }
  return best;
}

void Decoder::TakeAll(uint32_t resource, int64_t start, int64_t length) {
  for (uint32_t lane = first_lane_[resource]; lane < first_lane_[resource + 1]; ++lane) {
    lanes_[lane].Take(start, length, gaps_max_);
  }
}

int64_t Decoder::FindBoth(uint32_t resource, int64_t length, uint32_t other, int64_t other_ns, int64_t from) const {
  int64_t start = FindAll(resource, from, length);
  for (int64_t later = FindAll(other, start, other_ns); later != start; later = FindAll(other, start, other_ns)) {
    start = FindAll(resource, later, length);
    if (start == later) {
      break;
    }
  }
  return start;
}

// Plans the leg after the legs already planned on the same resource for this job.
int64_t Decoder::AddLeg(uint32_t item, uint32_t size, SpaceIndex from, SpaceIndex to, int64_t ready,
                        std::vector<Leg>& legs) {
  const int64_t length = from == kHostSpace ? p_.up_ns[size][to] : p_.down_ns[size][from];
  if (length == 0) {
    return ready;
  }
  const SpaceIndex space = from == kHostSpace ? to : from;
  const uint32_t resource = from == kHostSpace ? p_.resources->up[to] : p_.resources->down[from];
  const uint32_t host = p_.resources->TakesHostCopies(space) && p_.host_ns[size] > 0 ? p_.HostOf(space) : kNone;
  const int64_t host_ns = host == kNone ? 0 : std::min(p_.host_ns[size], length);
  for (const Leg& leg : legs) {
    ready = leg.resource == resource ? std::max(ready, leg.end) : ready;
    ready = host != kNone && leg.host == host ? std::max(ready, leg.host_end) : ready;
  }
  const int64_t start =
      host == kNone ? FindAll(resource, ready, length) : FindBoth(resource, length, host, host_ns, ready);
  legs.push_back({item, resource, from, to, start, start + length, host, start + host_ns});
  return start + length;
}

void Decoder::Bring(uint32_t job, SpaceIndex space, Arrival& arrival) {
  arrival.legs.clear();
  arrival.ready = 0;
  for (const uint32_t item : p_.reads[job]) {
    int64_t at = there(item, space);
    if (at == kForever) {
      for (const Leg& leg : arrival.legs) {
        at = leg.item == item && leg.to == space ? leg.end : at;  // Planned for another port.
      }
    }
    if (at == kForever) {
      const uint32_t size = p_.items[item].size_class;
      at = there(item, kHostSpace);
      if (at == kForever) {
        SpaceIndex home = 1;
        while (there(item, home) == kForever) {
          ++home;
        }
        at = AddLeg(item, size, home, kHostSpace, there(item, home), arrival.legs);
      }
      if (space != kHostSpace) {
        at = AddLeg(item, size, kHostSpace, space, at, arrival.legs);
      }
    }
    arrival.ready = std::max(arrival.ready, at);
  }
}

// Returns when the readers of the values that the job replaces are done: at their end in the same space, at their start
// (when they have their copy) in another space.
int64_t Decoder::Replaced(uint32_t job, SpaceIndex space, const DecodedPlan& plan) const {
  int64_t ready = 0;
  for (const uint32_t reader : p_.before[job]) {
    const Planned& done = plan.jobs[reader];
    ready = std::max(ready, p_.OptionsOf(reader)[done.option].space == space ? done.end : done.start);
  }
  return ready;
}

Decoder::Assignment Decoder::Choose(uint32_t job, const Guide& guide, const DecodedPlan& plan) {
  for (Arrival& arrival : arrivals_) {
    arrival.ready = -1;
  }
  Assignment best;
  const std::span<const Option> options = p_.OptionsOf(job);
  const uint32_t pinned = guide.pinned.empty() ? kNone : guide.pinned[job];
  for (uint32_t i = 0; i < options.size(); ++i) {
    if (pinned != kNone && pinned != i) {
      continue;
    }
    Arrival& arrival = arrivals_[options[i].space];
    if (arrival.ready < 0) {
      Bring(job, options[i].space, arrival);
      arrival.ready = std::max(arrival.ready, Replaced(job, options[i].space, plan));
    }
    Consider(job, i, guide, arrival.ready, best);
  }
  return best;
}

void Decoder::Consider(uint32_t job, uint32_t index, const Guide& guide, int64_t ready, Assignment& best) {
  const Option& option = p_.OptionsOf(job)[index];
  const bool has_both = option.all_ns != kForever && option.lane_ns != kForever;
  const int64_t ahead = guide.ahead.empty() ? 0 : guide.ahead[size_t{job} * spaces_ + option.space];
  const auto take = [&](bool has_all_lanes, uint32_t lane, int64_t start, int64_t length) {
    const int64_t key = Return(job, option, start + length) + ahead;
    if (key < best.key || best.option == kNone) {
      best = {index, has_all_lanes, lane, start, start + length, key};
    }
  };
  if (option.all_ns != kForever && !(has_both && guide.width == Width::kLane)) {
    take(true, 0, FindAll(option.silicon, ready, option.all_ns), option.all_ns);
  }
  if (option.lane_ns != kForever && !(has_both && guide.width == Width::kAll)) {
    int64_t start = 0;
    const uint32_t lane = FindLane(option.silicon, ready, option.lane_ns, &start);
    take(false, lane, start, option.lane_ns);
  }
}

// Returns when the job's outputs would be back in host memory.
int64_t Decoder::Return(uint32_t job, const Option& option, int64_t end) const {
  if (option.space == kHostSpace) {
    return end;
  }
  for (const uint32_t item : p_.writes[job]) {
    if (p_.items[item].is_returned) {
      end += p_.down_ns[p_.items[item].returned_class][option.space];
    }
  }
  return end;
}

void Decoder::Commit(uint32_t job, const Assignment& place, const Guide& guide, DecodedPlan& plan) {
  const Option& option = p_.OptionsOf(job)[place.option];
  const auto move = [&](const Leg& leg) {
    TakeAll(leg.resource, leg.start, leg.end - leg.start);
    if (leg.host != kNone) {
      TakeAll(leg.host, leg.start, leg.host_end - leg.start);
    }
    there(leg.item, leg.to) = leg.end;
    if (guide.wants_transfers) {
      const Item& item = p_.items[leg.item];
      plan.transfers.push_back({item.value, item.range, leg.from, leg.to, Duration(leg.start), Duration(leg.end)});
    }
  };
  std::vector<Leg>& legs = arrivals_[option.space].legs;
  for (const Leg& leg : legs) {
    move(leg);
  }
  if (place.has_all_lanes) {
    TakeAll(option.silicon, place.start, place.end - place.start);
  } else {
    lanes_[place.lane].Take(place.start, place.end - place.start, gaps_max_);
  }
  plan.jobs[job] = {place.option, place.has_all_lanes, place.start, place.end};
  for (const uint32_t item : p_.reads[job]) {
    there(item, option.space) = std::min(there(item, option.space), place.start);  // Without bytes there is no leg.
  }
  for (const uint32_t item : p_.writes[job]) {
    there(item, option.space) = place.end;
    if (p_.items[item].is_returned && option.space != kHostSpace) {
      legs.clear();
      there(item, kHostSpace) = AddLeg(item, p_.items[item].returned_class, option.space, kHostSpace, place.end, legs);
      for (const Leg& leg : legs) {
        move(leg);
      }
    }
  }
}

}  // namespace hpvm::scheduler::placing
