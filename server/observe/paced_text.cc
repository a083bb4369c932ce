// SPDX-License-Identifier: Apache-2.0
#include "server/observe/paced_text.h"

namespace hpvm::server {

const std::string& PacedText::Get() {
  const Time now = clock_.Now();
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    made_ = 0;
  }
  if (text_.empty() || made_ < kPerSecondMax) {
    ++made_;
    text_ = make_();
  }
  return text_;
}

}  // namespace hpvm::server
