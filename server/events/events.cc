// SPDX-License-Identifier: Apache-2.0
#include "server/events/events.h"

namespace hpvm::server {

Observer& NoObserver() {
  static EventList none;
  return none;
}

}  // namespace hpvm::server
