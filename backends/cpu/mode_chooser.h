// SPDX-License-Identifier: Apache-2.0
// ModeChooser decides whether a partially ordered command list runs on several workers at once or sequentially on one.
//
// Several workers pay only when commands are long enough: coordination costs two to three tenths of a microsecond per
// command, walking the list costs nothing. Both modes are therefore tried, unless an estimate from the other one rules
// it out, and the faster one is kept; from time to time the other one is tried again if it was close.
#ifndef HPVMD_BACKENDS_CPU_MODE_CHOOSER_H_
#define HPVMD_BACKENDS_CPU_MODE_CHOOSER_H_

#include <array>
#include <cstdint>

namespace hpvm::cpu {

class ModeChooser {
 public:
  enum class Mode : uint8_t { kInOrder, kFlow };

  // `width`: number of commands divided by the length of the longest chain.
  ModeChooser(uint64_t commands, double width) : commands_(commands), width_(width) {}

  // Chooses the mode of the next submission, with `threads` threads.
  Mode Choose(uint32_t threads);
  // Returns true when the current mode is being measured, so that its commands' times do not predict later ones.
  bool is_trying() const { return is_trying_; }

  struct Times {
    double wall_ns = 0;    // Time of the submission.
    double busy_ns = 0;    // Total time of all commands.
    double shared_ns = 0;  // The part of it spent in launches that several threads shared.
  };
  void Learn(Mode mode, uint32_t threads, const Times& times);
  // Approximate time of a command in the flow; 0 while unknown.
  double command_ns() const { return command_ns_; }

 private:
  struct Known {
    double wall_ns = 0;  // 0: unknown.
    Times times{};
  };
  double GuessInOrder() const;
  double GuessFlow(double workers) const;

  const uint64_t commands_;
  const double width_;
  uint32_t threads_ = 0;  // Number of threads with which `known_` was measured.
  std::array<Known, 2> known_{};
  double command_ns_ = 0;
  uint64_t turns_ = 0;
  Mode last_ = Mode::kInOrder;
  bool is_trying_ = false;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_MODE_CHOOSER_H_
