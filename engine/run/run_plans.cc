// SPDX-License-Identifier: Apache-2.0
#include "engine/run/run_plans.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>

namespace hpvm::engine {
namespace {

// A plan that exceeds its planned time by this factor is compared with others, even if it uses a single device.
constexpr double kOffPlan = 1.3;
// A plan that splits launches and exceeds its planned time by this factor has split them wrongly.
constexpr double kFarOffPlan = 2;
// Another plan may exceed its planned time: it is tried by runs that have this many times their usual duration left.
constexpr double kRoomToTry = 10;

constexpr uint32_t kNoDevice = PlanRequest::kAnyDevice;

// Returns the only device that runs nodes; kNoDevice when there are several, or none.
uint32_t DeviceOf(const Plan& plan) {
  uint32_t device = kNoDevice;
  for (const scheduler::Task& task : plan.tasks) {
    if (device != kNoDevice && task.device != device) {
      return kNoDevice;
    }
    device = task.device;
  }
  return device;
}

// Returns true when everything runs at the same place in the same order.
bool IsSamePlacement(std::span<const scheduler::Task> a, std::span<const scheduler::Task> b) {
  return std::ranges::equal(a, b, [](const scheduler::Task& x, const scheduler::Task& y) {
    return x.node == y.node && x.choice == y.choice && x.box == y.box;
  });
}

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
        HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, BuildFirst(symbols));
        it = plans.insert(plans.begin(), std::move(plan));
      }
      Remember(**it);
    } else {
      HPVMD_RETURN_IF_ERROR(CheckRepetition(Root(graph_), query_.repetition, query_.ports, (*it)->symbols));
    }
    std::rotate(plans.begin(), it, it + 1);
    HPVMD_RETURN_IF_ERROR(ObeyJudge(MayTry(*plans.front())));
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

  // Returns true when the run has time for a plan that may be worse than the present one.
  bool MayTry(const Plan& plan) const {
    const double known = plan.review.judge.usual_ns();
    const double usual = known != 0 ? known : static_cast<double>(plan.makespan.count());
    return query_.request.may_experiment &&
           static_cast<double>(query_.left.count()) > kRoomToTry * usual * query_.request.repeat;
  }

  // Puts the plan whose turn it is first.
  Status ObeyJudge(bool may_try) {
    PlanReview& review = graph_.plans.front()->review;
    if (review.judge.is_trial() && !may_try) {
      review.judge.Yield();
    }
    if (review.is_challenger != review.judge.is_trial()) {
      HPVMD_RETURN_IF_ERROR(Switch());
    }
    if (!graph_.plans.front()->review.judge.has_challenger()) {
      PlanReview& alone = graph_.plans.front()->review;
      alone.other.reset();
      alone.other_tasks.clear();
      if (alone.seeks && may_try) {
        return Challenge();
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Plan> TakeFirst() {
    std::unique_ptr<Plan> plan = std::move(graph_.plans.front());
    graph_.plans.erase(graph_.plans.begin());
    return plan;
  }

  void PutFirst(std::unique_ptr<Plan> plan, PlanReview review) {
    plan->review = std::move(review);
    graph_.plans.insert(graph_.plans.begin(), std::move(plan));
    Remember(*graph_.plans.front());
  }

  // Switches to the other plan of champion and challenger, which is built again when there was no room for both. When
  // that fails, the present plan stays.
  Status Switch() {
    std::unique_ptr<Plan> old = TakeFirst();
    PlanReview review = std::move(old->review);
    const Tasks tasks = std::exchange(review.other_tasks, old->tasks);
    const graph::SymbolValues symbols = old->symbols;
    if (review.other != nullptr) {
      std::unique_ptr<Plan> next = std::exchange(review.other, std::move(old));
      review.is_challenger = !review.is_challenger;
      PutFirst(std::move(next), std::move(review));
      return absl::OkStatus();
    }
    old.reset();
    StatusOr<std::unique_ptr<Plan>> built = Build(symbols, {.tasks = &tasks});
    if (absl::IsResourceExhausted(built.status())) {
      built = Build(symbols, {.tasks = &review.other_tasks});
      review.other_tasks.clear();
      review.judge.StartOver();
      review.is_challenger = false;
    } else {
      review.is_challenger = !review.is_challenger;
    }
    HPVMD_RETURN_IF_ERROR(built.status());
    PutFirst(*std::move(built), std::move(review));
    return absl::OkStatus();
  }

  // Makes a challenger beside the champion, or, without room for both, in its place. When that fails, the champion
  // stays.
  Status Challenge() {
    std::unique_ptr<Plan> old = TakeFirst();
    PlanReview review = std::move(old->review);
    review.seeks = false;
    const Tasks tasks = old->tasks;
    const graph::SymbolValues symbols = old->symbols;
    const uint32_t source = review.judge.source(), former = review.judge.first_former();
    PlanRequest request{.may_pin = source == 0 && review.may_pin};
    const uint32_t placed = PlacedSources();
    request.only_device = source >= placed && source < former ? source - placed : kNoDevice;
    request.has_whole_shares = source > 0 && source < placed;
    request.tasks = source >= former ? &review.formers[source - former] : nullptr;
    StatusOr<std::unique_ptr<Plan>> built = FailedPrecondition("No plan meets the request's conditions.");
    const bool has_pieces = HasPieces(tasks) || std::ranges::any_of(review.formers, HasPieces);
    if (IsPossible(request) && (!request.has_whole_shares || has_pieces)) {
      built = Build(symbols, request);
      if (absl::IsResourceExhausted(built.status())) {
        old.reset();
        built = Build(symbols, request);
      }
    }
    if (built.ok() && IsNew(**built, request, tasks, review)) {
      const bool is_guess = std::ranges::any_of((*built)->tasks, &scheduler::Task::is_guess);
      review.judge.Made(static_cast<double>((*built)->makespan.count()), is_guess);
    } else {
      review.judge.Refuse();
    }
    if (review.judge.has_challenger()) {
      review.other = std::move(old);
      review.other_tasks = tasks;
      review.is_challenger = true;
      PutFirst(*std::move(built), std::move(review));
      return absl::OkStatus();
    }
    const Status why = built.status();
    built = Unavailable("");  // The old plan may need its memory.
    if (old == nullptr) {
      HPVMD_ASSIGN_OR_RETURN(old, Build(symbols, {.tasks = &tasks}));
    }
    PutFirst(std::move(old), std::move(review));
    return graph_.unavailable.has_value() ? why : absl::OkStatus();
  }

  bool IsPossible(const PlanRequest& request) const {
    const bool is_real =
        request.only_device == kNoDevice || graph_.facts[request.only_device].tier == scheduler::Tier::kReal;
    return is_real && (request.tasks == nullptr || !request.tasks->empty());
  }

  // Sources of challengers: placed anew; with several devices, placed with whole shares; then each device alone.
  uint32_t PlacedSources() const { return graph_.devices.size() > 1 ? 2 : 1; }

  // Returns true when a device runs several pieces of a launch.
  static bool HasPieces(const Tasks& tasks) {
    std::set<std::pair<uint32_t, uint32_t>> seen;
    return std::ranges::any_of(tasks, [&](const scheduler::Task& task) {
      return task.is_part && !seen.insert({task.node.index, task.device}).second;
    });
  }

  static bool IsNew(const Plan& plan, const PlanRequest& request, const Tasks& champion, const PlanReview& review) {
    const auto is_same = [&](const Tasks& known) { return IsSamePlacement(plan.tasks, known); };
    return !is_same(champion) && (request.only_device == kNoDevice || DeviceOf(plan) == request.only_device) &&
           (request.tasks != nullptr || request.only_device != kNoDevice ||
            std::ranges::none_of(review.formers, is_same));
  }

  StatusOr<std::unique_ptr<Plan>> BuildFirst(const graph::SymbolValues& symbols) {
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, Build(symbols, {}));
    plan->review.judge =
        scheduler::PlanJudge(PlacedSources() + static_cast<uint32_t>(graph_.devices.size()), PlacedSources());
    return plan;
  }

  // Builds a plan; `request` contains its special options.
  StatusOr<std::unique_ptr<Plan>> Build(const graph::SymbolValues& symbols, PlanRequest request) {
    MakeRoom();
    request.symbols = symbols;
    request.carries = query_.repetition.carries;
    request.repeat = request.carries.empty() ? 1 : std::max(query_.request.repeat, 1u);
    request.on_host = OutputsOnHost(graph_.graph, query_.repetition);
    StatusOr<std::unique_ptr<Plan>> plan = BuildPlan(graph_, request);
    if (!plan.ok() && absl::IsResourceExhausted(plan.status()) && !graph_.plans.empty()) {
      graph_.plans.clear();  // The memory of these plans may be what is missing.
      plan = BuildPlan(graph_, request);
    }
    HPVMD_RETURN_IF_ERROR(plan.status());
    (*plan)->until = query_.repetition.until;
    return plan;
  }

  static uint64_t BytesOf(const Plan& plan) {
    return plan.temporary_bytes + (plan.review.other != nullptr ? plan.review.other->temporary_bytes : 0);
  }

  // Limits the number of plans, and their memory to a quarter of that of the smallest host device.
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
      held += BytesOf(*plan);
    }
    while (!plans.empty() && (plans.size() >= kPlansMax || held > memory / 4)) {
      held -= BytesOf(*plans.back());
      plans.pop_back();
    }
  }

  PreparedGraph& graph_;
  const PlanQuery& query_;
};

// Drops plans when the grants close a device or open it again, because plans exclude closed devices.
void HeedClosed(PreparedGraph& graph) {
  if (graph.memory == nullptr) {
    return;
  }
  graph.is_closed.resize(graph.devices.size());
  for (uint32_t device = 0; device < graph.devices.size(); ++device) {
    const bool is_closed = graph.memory->IsClosed(*graph.devices[device]);
    if (is_closed == graph.is_closed[device]) {
      continue;
    }
    graph.is_closed[device] = is_closed;
    if (is_closed) {
      DropPlansOf(graph, device);
    } else {
      graph.plans.clear();
    }
  }
}

}  // namespace

StatusOr<Plan*> FindPlan(PreparedGraph& graph, const PlanQuery& query) {
  graph.shortage = {};
  graph.unavailable.reset();
  HeedClosed(graph);
  StatusOr<Plan*> plan = Finder(graph, query).Find();
  if (!plan.ok() && query.request.shortage != nullptr) {
    *query.request.shortage = graph.shortage;
  }
  return plan;
}

void ReviewPlan(PreparedGraph& graph, Plan& plan, std::span<const NodeTiming> timings, Duration time) {
  using Step = scheduler::PlanJudge::Step;
  PlanReview& review = plan.review;
  const CostReview found = graph.costs->Feed(graph, plan.flat, plan.tasks, timings, time, &plan.feed);
  const auto ns = static_cast<double>(time.count());
  const bool is_off = ns > kOffPlan * static_cast<double>(plan.makespan.count());
  const bool is_doubtful = graph.devices.size() > 1 && (is_off || DeviceOf(plan) == kNoDevice);
  const bool is_far_off = ns > kFarOffPlan * static_cast<double>(plan.makespan.count()) &&
                          std::ranges::any_of(plan.tasks, &scheduler::Task::is_part);
  review.may_pin = found.wants_samples && !is_far_off;
  review.seeks = false;
  const Step step = review.judge.After({.ns = ns,
                                        .is_settled = found.is_settled,
                                        .promises = found.should_replan,
                                        .is_doubtful = is_doubtful,
                                        .is_far_off = is_far_off});
  review.seeks = step == Step::kTry;
  if (step != Step::kAdopt && step != Step::kGoBack) {
    return;
  }
  // The losing plan may be wanted again.
  const bool has_won = step == Step::kAdopt;
  if (const uint32_t former = review.judge.former(); former != scheduler::PlanJudge::kNone) {
    review.formers[former - review.judge.first_former()] =
        review.is_challenger == has_won ? review.other_tasks : plan.tasks;
  }
  if (has_won) {
    review.is_challenger = !review.is_challenger;  // The two plans trade places.
  }
}

void DropPlansOf(PreparedGraph& graph, uint32_t device) {
  const auto uses = [device](const std::vector<scheduler::Task>& tasks) {
    return std::ranges::find(tasks, device, &scheduler::Task::device) != tasks.end();
  };
  std::erase_if(graph.plans, [&](const std::unique_ptr<Plan>& plan) {
    return std::ranges::any_of(plan->queues, [&](const PlanQueue& queue) { return queue.device == device; });
  });
  for (const std::unique_ptr<Plan>& plan : graph.plans) {
    PlanReview& review = plan->review;
    for (std::vector<scheduler::Task>& former : review.formers) {
      if (uses(former)) {
        former.clear();
      }
    }
    if (uses(review.other_tasks)) {
      review.other.reset();
      review.other_tasks.clear();
      review.judge.StartOver();
      review.is_challenger = review.seeks = false;
    }
  }
}

}  // namespace hpvm::engine
