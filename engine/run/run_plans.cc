// SPDX-License-Identifier: Apache-2.0
#include "engine/run/run_plans.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>

namespace hpvm {
namespace {

// How often the plan of some sizes is made again because measurements say so.
constexpr uint32_t kReplansMax = 6;
// A plan that turns out slower than one before it by as much, in the quickest of some runs, makes way for that one.
constexpr double kWorse = 1.05;
constexpr uint64_t kRunsToJudge = 4;
// A plan that takes so much longer than planned is compared with others even if it keeps to one device.
constexpr double kOffPlan = 1.3;
// What is planned to take so much longer than the best so far takes is not tried.
constexpr double kNoRivalFrom = 3;
// Another plan may take longer than planned, too: it is tried by runs that have so much more time than they usually
// take.
constexpr double kRoomToTry = 10;

// The only one that runs nodes; PlanReview::kNoRival when there are several, or none.
uint32_t DeviceOf(const Plan& plan) {
  uint32_t device = PlanReview::kNoRival;
  for (const scheduler::Task& task : plan.tasks) {
    if (device != PlanReview::kNoRival && task.device != device) {
      return PlanReview::kNoRival;
    }
    device = task.device;
  }
  return device;
}

// Whether the plan is to be compared with whole graphs on one device.
bool WantsRivals(const PreparedGraph& graph, const Plan& plan) {
  const auto took = static_cast<double>(plan.review.time.count());
  const bool is_off = took > kOffPlan * static_cast<double>(plan.makespan.count());
  return graph.devices.size() > 1 && plan.review.runs >= kRunsToJudge &&
         (plan.review.rival != PlanReview::kNoRival ||
          (plan.review.next_rival == 0 && (is_off || DeviceOf(plan) == PlanReview::kNoRival)));
}

// Notes what the plan took, if it is the quickest so far.
void KeepBest(const Plan& plan, PlanReview& review) {
  if (review.best.empty() || review.time < review.best_time) {
    review.best = plan.tasks;
    review.best_time = review.time;
  }
}

// Whether the plan is there for a measurement's sake.
bool IsTrial(const Plan& plan) { return plan.review.rival != PlanReview::kNoRival || plan.feed.has_pins; }

const graph::Node& Root(const PreparedGraph& graph) { return graph.graph.node(graph.graph.root()); }

class Finder {
 public:
  Finder(PreparedGraph& graph, const PlanQuery& query) : graph_(graph), query_(query) {}

  StatusOr<Plan*> Find() {
    auto& plans = graph_.plans;
    auto it = std::find_if(plans.begin(), plans.end(),
                           [&](const std::unique_ptr<Plan>& plan) { return IsSameRequest(*plan); });
    if (it == plans.end()) {
      HPVMD_ASSIGN_OR_RETURN(graph::SymbolValues symbols,
                             SolveSymbols(graph_.graph, query_.ports, query_.request.symbols));
      HPVMD_RETURN_IF_ERROR(CheckRepetition(Root(graph_), query_.repetition, query_.ports, symbols));
      it = std::find_if(plans.begin(), plans.end(), [&](const std::unique_ptr<Plan>& plan) {
        return plan->symbols == symbols && IsSameRepetition(*plan);
      });
      if (it == plans.end()) {
        HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, Build(symbols, PlanReview()));
        it = plans.insert(plans.begin(), std::move(plan));
      }
      Remember(**it);
    } else {
      HPVMD_RETURN_IF_ERROR(CheckRepetition(Root(graph_), query_.repetition, query_.ports, (*it)->symbols));
    }
    std::rotate(plans.begin(), it, it + 1);
    const Plan& plan = *plans.front();
    const bool may_try = MayTry(plan);
    if (!may_try && IsTrial(plan)) {
      HPVMD_RETURN_IF_ERROR(Postpone());
    } else if (plan.review.is_stale && (may_try || plan.review.is_settled)) {
      HPVMD_RETURN_IF_ERROR(Replace());
    }
    return plans.front().get();
  }

 private:
  using Tasks = std::vector<scheduler::Task>;

  bool IsSameRepetition(const Plan& plan) const {
    const std::vector<scheduler::Carry>& carries = query_.repetition.carries;
    return std::ranges::equal(plan.carries, carries,
                              [](const scheduler::Carry& a, const scheduler::Carry& b) {
                                return a.output == b.output && a.input == b.input;
                              }) &&
           (carries.empty() || plan.until == query_.repetition.until);
  }

  bool IsSameRequest(const Plan& plan) const {
    if (plan.given != query_.request.symbols || !IsSameRepetition(plan)) {
      return false;
    }
    for (uint32_t port = 0; port < Root(graph_).ports.size(); ++port) {
      if (Root(graph_).ports[port].access == graph::Access::kIn &&
          plan.input_shapes[port] != query_.ports[port]->shape) {
        return false;
      }
    }
    return true;
  }

  void Remember(Plan& plan) const {
    plan.given = query_.request.symbols;
    plan.input_shapes.assign(Root(graph_).ports.size(), {});
    for (uint32_t port = 0; port < Root(graph_).ports.size(); ++port) {
      if (Root(graph_).ports[port].access == graph::Access::kIn) {
        plan.input_shapes[port] = query_.ports[port]->shape;
      }
    }
  }

  // Whether the run has time for a plan that may turn out to be worse than the one there is.
  bool MayTry(const Plan& plan) const {
    const PlanReview& review = plan.review;
    const Duration usual = review.best_time != Duration(0) ? review.best_time
                           : review.time != Duration(0)    ? review.time
                                                           : plan.makespan;
    return query_.request.may_experiment && static_cast<double>(query_.left.count()) >
                                                kRoomToTry * static_cast<double>(usual.count()) * query_.request.repeat;
  }

  // The best that is known in the place of a trial, which a later run makes.
  Status Postpone() {
    std::unique_ptr<Plan> trial = std::move(graph_.plans.front());
    graph_.plans.erase(graph_.plans.begin());
    PlanReview review = std::move(trial->review);
    if (review.rival != PlanReview::kNoRival) {
      review.next_rival = review.is_stale ? review.next_rival : review.rival;  // Stale: it has been judged.
      review.seeks_rival = true;
      review.rival = PlanReview::kNoRival;
    }
    const bool may_pin = std::exchange(review.may_pin, false);
    review.is_stale = true;
    review.runs = 0;
    review.time = Duration(0);
    const graph::SymbolValues symbols = std::move(trial->symbols);
    const Tasks tasks = std::move(trial->tasks);
    trial.reset();
    StatusOr<std::unique_ptr<Plan>> built = BuildFrom(review.best, symbols, review);
    FallBack({&tasks}, symbols, review, &built);
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, std::move(built));
    plan->review.may_pin = may_pin;
    graph_.plans.insert(graph_.plans.begin(), std::move(plan));
    Remember(*graph_.plans.front());
    return absl::OkStatus();
  }

  // A new plan in the place of the first, which goes first: its memory may be what the new one needs. When there is no
  // room for a new one, nodes run where they ran before.
  Status Replace() {
    std::unique_ptr<Plan> old = std::move(graph_.plans.front());
    graph_.plans.erase(graph_.plans.begin());
    PlanReview review = std::move(old->review);
    review.is_stale = false;
    const graph::SymbolValues symbols = std::move(old->symbols);
    const Tasks tasks = std::move(old->tasks);
    const Duration makespan = old->makespan;
    old.reset();
    std::unique_ptr<Plan> plan = review.seeks_rival ? BuildRival(symbols, review) : nullptr;
    if (plan == nullptr) {
      StatusOr<std::unique_ptr<Plan>> built = Build(symbols, review);
      FallBack({&review.best, &tasks}, symbols, review, &built);
      HPVMD_ASSIGN_OR_RETURN(plan, std::move(built));
      plan->makespan = plan->makespan == Duration(0) ? makespan : plan->makespan;
    }
    graph_.plans.insert(graph_.plans.begin(), std::move(plan));
    Remember(*graph_.plans.front());
    return absl::OkStatus();
  }

  // Where there was no memory for what was built, the first of `known` for which there is.
  void FallBack(std::initializer_list<const Tasks*> known, const graph::SymbolValues& symbols, const PlanReview& review,
                StatusOr<std::unique_ptr<Plan>>* built) {
    for (const Tasks* const tasks : known) {
      if (absl::IsResourceExhausted(built->status()) && !tasks->empty()) {
        *built = BuildFrom(*tasks, symbols, review);
      }
    }
  }

  // Everything on the next device that could do it, and may do it quicker than the best so far. Null when there is none
  // left: then a plan by all that is known by now competes with the best.
  std::unique_ptr<Plan> BuildRival(const graph::SymbolValues& symbols, PlanReview& review) {
    review.seeks_rival = false;
    while (review.next_rival < graph_.devices.size()) {
      review.rival = review.next_rival++;
      if (graph_.facts[review.rival].tier != scheduler::Tier::kReal) {
        continue;
      }
      StatusOr<std::unique_ptr<Plan>> plan = Build(symbols, review);
      if (plan.ok() && DeviceOf(**plan) == review.rival &&
          (*plan)->makespan.count() < kNoRivalFrom * static_cast<double>(review.best_time.count())) {
        return *std::move(plan);
      }
    }
    review.rival = PlanReview::kNoRival;
    return nullptr;
  }

  StatusOr<std::unique_ptr<Plan>> Build(const graph::SymbolValues& symbols, const PlanReview& review) {
    const bool is_known = review.is_settled && !review.best.empty();
    return BuildFrom(is_known ? review.best : Tasks(), symbols, review);
  }

  // Without `tasks` nodes are placed anew.
  StatusOr<std::unique_ptr<Plan>> BuildFrom(const Tasks& tasks, const graph::SymbolValues& symbols,
                                            const PlanReview& review) {
    MakeRoom();
    const PlanRequest request{.symbols = symbols,
                              .carries = query_.repetition.carries,
                              .on_host = OutputsOnHost(graph_.graph, query_.repetition),
                              .tasks = tasks.empty() ? nullptr : &tasks,
                              .only_device = review.rival,
                              .may_pin = review.may_pin};
    StatusOr<std::unique_ptr<Plan>> plan = BuildPlan(graph_, request);
    if (!plan.ok() && absl::IsResourceExhausted(plan.status()) && !graph_.plans.empty()) {
      graph_.plans.clear();  // Their memory may be what is missing.
      plan = BuildPlan(graph_, request);
    }
    HPVMD_RETURN_IF_ERROR(plan.status());
    (*plan)->until = query_.repetition.until;
    (*plan)->review = review;
    return plan;
  }

  // Keeps the number of plans in bounds, and their memory to a quarter of what the smallest host device has.
  void MakeRoom() const {
    auto& plans = graph_.plans;
    uint64_t memory = std::numeric_limits<uint64_t>::max();
    for (const Device* device : graph_.devices) {
      if (device->info().host_visible && device->info().memory_bytes != 0) {
        memory = std::min(memory, device->info().memory_bytes);
      }
    }
    uint64_t held = 0;
    for (const std::unique_ptr<Plan>& plan : plans) {
      held += plan->temporary_bytes;
    }
    while (!plans.empty() && (plans.size() >= kPlansMax || held > memory / 4)) {
      held -= plans.back()->temporary_bytes;
      plans.pop_back();
    }
  }

  PreparedGraph& graph_;
  const PlanQuery& query_;
};

}  // namespace

StatusOr<Plan*> FindPlan(PreparedGraph& graph, const PlanQuery& query) {
  graph.shortage = {};
  graph.unavailable.reset();
  StatusOr<Plan*> plan = Finder(graph, query).Find();
  if (!plan.ok() && query.request.shortage != nullptr) {
    *query.request.shortage = graph.shortage;
  }
  return plan;
}

void ReviewPlan(PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings, Duration time) {
  PlanReview& review = plan.review;
  ++review.runs;
  review.time = review.time == Duration(0) ? time : std::min(review.time, time);
  const CostReview found = graph.costs->Feed(graph, plan.flat, plan.tasks, timings, time, &plan.feed);
  if (review.is_settled || review.is_stale) {
    return;  // Stale: what comes next is decided, and waits for a run that has the time.
  }
  const bool is_trial = plan.feed.has_pins;  // For a measurement's sake: no rival, and not to stay.
  if (!is_trial && WantsRivals(graph, plan) && (review.rival != PlanReview::kNoRival || !found.should_replan)) {
    KeepBest(plan, review);
    review.is_stale = review.seeks_rival = true;
    review.runs = 0;
    review.time = Duration(0);
    return;
  }
  if (review.rival != PlanReview::kNoRival) {
    return;
  }
  const auto most = Duration(static_cast<int64_t>(kWorse * static_cast<double>(review.best_time.count())));
  const bool is_worse = !is_trial && !review.best.empty() && review.runs >= kRunsToJudge && review.time > most;
  if (!is_worse && (!found.should_replan || (review.runs < review.wait && !is_trial))) {
    return;
  }
  if (!is_trial) {
    KeepBest(plan, review);
  }
  ++review.replans;
  review.is_stale = true;
  review.is_settled = is_worse || review.replans > kReplansMax;
  review.may_pin = found.wants_samples && review.replans < kReplansMax;
  review.wait = uint64_t{1} << review.replans;
  review.runs = 0;
  review.time = Duration(0);
}

void DropPlansOf(PreparedGraph& graph, uint32_t device) {
  std::erase_if(graph.plans, [&](const std::unique_ptr<Plan>& plan) {
    return std::ranges::any_of(plan->queues, [&](const PlanQueue& queue) { return queue.device == device; });
  });
  for (const std::unique_ptr<Plan>& plan : graph.plans) {
    PlanReview& review = plan->review;
    if (std::ranges::find(review.best, device, &scheduler::Task::device) != review.best.end()) {
      review.best.clear();
      review.best_time = Duration(0);
    }
  }
}

}  // namespace hpvm
