// SPDX-License-Identifier: Apache-2.0
// A text that is dear to make and asked for by anybody: made at most so often, and given to all who ask in between.
#ifndef HPVMD_SERVER_OBSERVE_PACED_TEXT_H_
#define HPVMD_SERVER_OBSERVE_PACED_TEXT_H_

#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"

namespace hpvm::server {

// One thread.
class PacedText {
 public:
  // Few scrapers, and people beside them, always get a new text.
  static constexpr int kPerSecondMax = 4;

  // Borrows the clock. `make` runs within Get.
  PacedText(const Clock& clock, std::function<std::string()> make) : clock_(clock), make_(std::move(make)) {}

  // A new text; from the fifth call within one second on the last one, until that second is over.
  const std::string& Get();

 private:
  const Clock& clock_;
  const std::function<std::string()> make_;
  std::string text_;
  Time second_{0};  // When the present second began.
  int made_ = 0;    // In it.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_PACED_TEXT_H_
