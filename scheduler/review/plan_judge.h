// SPDX-License-Identifier: Apache-2.0
// Which of several plans for the same sizes is to run next, by what whole runs of them took. Pure: no clock, no
// devices.
//
// One plan is the champion. Another one, the challenger, is tried beside it: the two run in turns (A B B A A B ...), so
// that whatever disturbs the machine for a while disturbs both, and the median of the pairs' ratios decides. Runs in
// which a device still tries out its code are not compared. Who loses is tried again when the champion now takes longer
// than the loser took, when a new reason for it turns up, or after a number of runs that doubles with each loss.
//
// A plan that takes several times as long as planned is replaced at once by one that is planned by what is known now,
// if that one's first run is clearly quicker. A plan placed anew is asked for, too, when a champion has settled and
// when there is a new one, as there is more to plan by then; and, where plans of before are kept, after a number of
// runs.
//
// What trials cost is bounded: the time that challengers took beyond the champion's may reach a few runs of the
// champion, and kShare of all time after that. A trial that has no budget pauses.
#ifndef HPVMD_SCHEDULER_REVIEW_PLAN_JUDGE_H_
#define HPVMD_SCHEDULER_REVIEW_PLAN_JUDGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hpvm::scheduler {

class PlanJudge {
 public:
  static constexpr double kShare = 0.02;  // Of all time, for trials.
  static constexpr double kGrace = 3;     // Runs of the champion, for the first trials.
  // What a challenger may be planned to take, in runs of the champion: by guesses, and by what was measured.
  static constexpr double kHopeless = 3, kWorse = 1.25;
  static constexpr uint32_t kFormers = 3;

  // `sources`: where challengers come from, in the order in which they are tried, such as "placed anew by what is known
  // now" (which has to be the first) and "everything on device 1". The first `placed` of them are tried whether what
  // was planned is doubtful or not. Behind them are kFormers for plans of before that no source may lead to again.
  explicit PlanJudge(uint32_t sources = 1, uint32_t placed = 1);

  enum class Step : uint8_t {
    kKeep,    // The plan that ran runs on.
    kTry,     // A challenger from source() is to be made; see Made and Refuse.
    kSwitch,  // The other one of champion and challenger runs next.
    kAdopt,   // The challenger is the champion; the old one may go.
    kGoBack,  // The champion runs on, the challenger may go.
  };

  struct Run {
    double ns = 0;
    bool is_settled = true;   // Its devices ran it as they will go on to.
    bool promises = false;    // By what is known now, a plan placed anew (source 0) would be clearly better.
    bool is_doubtful = true;  // What was planned rests on little; else only the promise and plans of before are tried.
    // It took several times as long as planned: with a promise, another plan need not wait until devices have settled.
    bool is_far_off = false;
  };
  // After a run of the plan that After, Made and Refuse said.
  Step After(const Run& run);

  // What became of kTry: a challenger that is planned to take so long, by what rests on a guess or not, and runs next;
  // or none.
  bool Made(double planned_ns, bool is_guess);
  void Refuse();  // Also a challenger that equals the champion, or one of before.
  // The run that comes must not be a trial (its deadline is near): the champion's turn. False: it is anyway.
  bool Yield();
  // A challenger, or the champion, cannot run any more (its device is lost).
  void DropChallenger();
  void StartOver();

  uint32_t source() const { return source_; }
  bool has_challenger() const { return has_challenger_; }
  // After kAdopt: the source under which the old champion is to be kept. After kGoBack: that for the challenger, or
  // kNone where its own source will lead to it again.
  uint32_t former() const { return former_; }
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t first_former() const { return static_cast<uint32_t>(sources_.size()) - kFormers; }
  // The challenger is the one that runs next.
  bool is_trial() const { return is_trial_; }
  // Of the champion lately, in the middle; 0: it has not run.
  double usual_ns() const { return usual_.Middle(); }

 private:
  // The last few times.
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
    double lost_ns = 0;     // What its challenger took when it lost; 0: there was none.
    uint64_t next_run = 0;  // Not before.
    uint32_t losses = 0;
    bool is_open = true;  // It has not been tried, or what it lost by has changed.
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
  double least_ns_ = 0;  // The least usual_ns of this champion.
  bool has_challenger_ = false, is_trial_ = false;
  bool is_first_ = false;     // The champion has not settled since the start, or since it was adopted in a hurry,
  bool has_changed_ = false;  // or it is another since: then there is more to plan by than there was.
  bool is_promised_ = false;  // Source 0 is open because a run promised something.
  bool is_hurried_ = false;   // The challenger is adopted if its first run is clearly quicker.
  uint32_t hurries_ = 0;
  uint64_t runs_ = 0;         // Of all plans.
  uint64_t settled_ = 0;      // Runs of the champion that count, or came after many that did not.
  uint64_t unsettled_ = 0;    // In a row.
  uint64_t experiments_ = 0;  // Runs of the challenger that did not count.
  double total_ns_ = 0, spent_ns_ = 0;
  double planned_ns_ = 0;  // The challenger's: planned, and then the last run.
  Window usual_;
  // The pair in progress, and those before it.
  double champion_ns_ = 0, challenger_ns_ = 0;
  std::vector<double> ratios_;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_REVIEW_PLAN_JUDGE_H_
