// SPDX-License-Identifier: Apache-2.0
#include "server/events/observer.h"

namespace hpvm {

Observer& NoObserver() {
  static auto* const observer = new Observer();  // Never destroyed.
  return *observer;
}

}  // namespace hpvm
