// SPDX-License-Identifier: Apache-2.0
// PlanJudge chooses which of several plans for the same sizes runs next, by the measured times of whole runs. Pure: no
// clock, no devices.
//
// One plan is the champion. Another, the challenger, is tried beside it: the two alternate (A B B A A B ...), so that a
// temporary disturbance of the machine affects both, and the median of the pairs' ratios decides. Runs in which a
// device still experiments with its code are not compared. A loser is tried again when the champion now takes longer
// than the loser took, when there is a new reason for it, or after a number of runs that doubles with each of the
// first three losses.
//
// A plan that takes several times as long as planned is replaced at once by a plan based on current knowledge, if that
// plan's first run is clearly faster. A new placement is also requested when a champion has settled and when there is a
// new one, as more is known by then; and, when former plans are kept, after a number of runs.
//
// The cost of trials is bounded: the time that challengers took beyond the champion's may reach a few runs of the
// champion, plus kShare of all later time. A trial without budget pauses, except for up to three
// that a plan takes in a hurry.
#ifndef HPVMD_SCHEDULER_REVIEW_PLAN_JUDGE_H_
#define HPVMD_SCHEDULER_REVIEW_PLAN_JUDGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hpvm::scheduler {

class PlanJudge {
 public:
  static constexpr double kShare = 0.02;  // Fraction of all time available for trials.
  static constexpr double kGrace = 3;     // Budget of the first trials, in runs of the champion.
  // Largest planned time of a challenger, in runs of the champion: by guesses, and by measurements.
  static constexpr double kHopeless = 3, kWorse = 1.25;
  static constexpr uint32_t kFormers = 3;

  // `sources` is the number of sources of challengers, in the order in which they are tried, such as "placed anew with
  // current knowledge" (which has to be the first) and "everything on device 1". The first `placed` of them are tried
  // whether the planned time is doubtful or not. After them come kFormers places for former plans that no source may
  // produce again.
  explicit PlanJudge(uint32_t sources = 1, uint32_t placed = 1);

  enum class Step : uint8_t {
    kKeep,    // The plan that ran continues.
    kTry,     // Make a challenger from source(); see Made and Refuse.
    kSwitch,  // The other one of champion and challenger runs next.
    kAdopt,   // The challenger becomes the champion; the old one may be dropped.
    kGoBack,  // The champion continues; the challenger may be dropped.
  };

  struct Run {
    double ns = 0;
    bool is_settled = true;  // Its devices ran it in the form that they will keep using.
    bool promises = false;   // Current knowledge says that a new placement (source 0) would be clearly better.
    // The planned time rests on little data; otherwise only the promise and former plans are tried.
    bool is_doubtful = true;
    // It took several times as long as planned: with a promise, another plan need not wait until devices have settled.
    bool is_far_off = false;
  };
  // Call after a run of the plan that After, Made and Refuse selected.
  Step After(const Run& run);

  // Result of kTry: Made reports a challenger with its planned time, based on a guess or not, which runs next; Refuse
  // reports that there is none.
  bool Made(double planned_ns, bool is_guess);
  void Refuse();  // Also called for a challenger that equals the champion or a former plan.
  // The next run must not be a trial (its deadline is near), so it is the champion's turn. Returns false when it is
  // anyway.
  bool Yield();
  // The challenger, or the champion, can no longer run (its device is lost).
  void DropChallenger();
  void StartOver();

  uint32_t source() const { return source_; }
  bool has_challenger() const { return has_challenger_; }
  // After kAdopt: the source under which the old champion is to be kept. After kGoBack: that for the challenger, or
  // kNone when its own source will produce it again.
  uint32_t former() const { return former_; }
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t first_former() const { return static_cast<uint32_t>(sources_.size()) - kFormers; }
  // Returns true when the challenger runs next.
  bool is_trial() const { return is_trial_; }
  // Median of the champion's recent times; 0 when it has not run.
  double usual_ns() const { return usual_.Middle(); }

 private:
  // The most recent times.
  class Window {
   public:
    void Add(double ns);
    double Middle() const;
    void Clear() { count_ = 0; }

   private:
    static constexpr size_t kSize = 5;
    std::array<double, kSize> ns_{};
    uint64_t count_ = 0;
  };
  struct Source {
    double lost_ns = 0;     // Time of its challenger when it lost; 0 when there was none.
    uint64_t next_run = 0;  // The earliest run at which it may be tried.
    uint32_t losses = 0;
    bool is_open = true;  // It has not been tried, or the reason for its loss has changed.
  };

  Step Watch(const Run& run);
  Step Hurry(const Run& run);
  Step Trial(const Run& run);
  Step Judge();
  Step Lose(double ratio);
  Step Win();
  void Reopen(const Run& run);
  void Close(uint32_t source, double lost_ns);
  void TakeFormer();
  bool HasBudget(double excess_ns) const;
  double Allowance() const;

  std::vector<Source> sources_;
  uint32_t placed_ = 1;
  uint32_t source_ = 0, former_ = kNone, next_former_ = 0;
  double least_ns_ = 0;  // Minimum of usual_ns for this champion.
  bool has_challenger_ = false, is_trial_ = false;
  bool is_first_ = false;     // The champion has not settled since the start, or since it was adopted in a hurry,
  bool has_changed_ = false;  // or it has changed since: more is then known than before.
  bool is_promised_ = false;  // Source 0 is open because a run promised an improvement.
  bool is_hurried_ = false;   // The challenger is adopted if its first run is clearly faster.
  uint32_t hurries_ = 0;
  uint64_t runs_ = 0;  // Number of runs of all plans.
  // Runs of the champion that count, including those after many that did not.
  uint64_t settled_ = 0;
  uint64_t unsettled_ = 0;    // Number in a row.
  uint64_t experiments_ = 0;  // Number of the challenger's runs that did not count.
  double total_ns_ = 0, spent_ns_ = 0;
  double planned_ns_ = 0;  // The challenger's time: planned, and of the last run.
  Window usual_;
  // The current pair, and the ratios of earlier ones.
  double champion_ns_ = 0, challenger_ns_ = 0;
  std::vector<double> ratios_;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_REVIEW_PLAN_JUDGE_H_
