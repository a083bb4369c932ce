// SPDX-License-Identifier: Apache-2.0
// Whether a partially ordered command list runs on several workers at once or in the order of the list, by one.
//
// Several workers pay only where commands are long enough: to agree on who runs what costs two to three tenths of a
// microsecond a command, walking the list costs nothing. So both ways are tried, where a guess from the other one does
// not rule it out, and what took less stays; now and then the other one is tried again if it was near.
#ifndef HPVMD_BACKENDS_CPU_MODE_CHOOSER_H_
#define HPVMD_BACKENDS_CPU_MODE_CHOOSER_H_

#include <array>
#include <cstdint>

namespace hpvm::cpu {

class ModeChooser {
 public:
  enum class Mode : uint8_t { kInOrder, kFlow };

  // `width`: commands over the length of the longest chain of them.
  ModeChooser(uint64_t commands, double width) : commands_(commands), width_(width) {}

  // For the next submission, with so many threads.
  Mode Choose(uint32_t threads);
  // Whether that one is there to be measured, so that what its commands take says little of the next ones.
  bool is_trying() const { return is_trying_; }

  struct Times {
    double wall_ns = 0;    // Of the submission.
    double busy_ns = 0;    // Of all commands together.
    double shared_ns = 0;  // Of which as launches that several threads shared.
  };
  void Learn(Mode mode, uint32_t threads, const Times& times);
  // A command in the flow takes about so long; 0 while unknown.
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
  uint32_t threads_ = 0;  // What `known_` was measured with.
  std::array<Known, 2> known_{};
  double command_ns_ = 0;
  uint64_t turns_ = 0;
  Mode last_ = Mode::kInOrder;
  bool is_trying_ = false;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_MODE_CHOOSER_H_
