// SPDX-License-Identifier: Apache-2.0
// PacedText limits how often an expensive text is made: callers in between get the last one.
#ifndef HPVMD_SERVER_OBSERVE_PACED_TEXT_H_
#define HPVMD_SERVER_OBSERVE_PACED_TEXT_H_

#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"

namespace hpvm::server {

// Not thread-safe.
class PacedText {
 public:
  // Enough for a few scrapers and people beside them to always get a new text.
  static constexpr int kPerSecondMax = 4;

  // Borrows the clock. `make` runs within Get.
  PacedText(const Clock& clock, std::function<std::string()> make) : clock_(clock), make_(std::move(make)) {}

  // Returns a new text; from the fifth call within one second on, the last one until that second is over.
  const std::string& Get();

 private:
  const Clock& clock_;
  const std::function<std::string()> make_;
  std::string text_;
  Time second_{0};  // Start of the present second.
  int made_ = 0;    // Number of texts made in it.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_PACED_TEXT_H_
