// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_EVENTS_CALL_HOOKS_H_
#define HPVMD_SERVER_EVENTS_CALL_HOOKS_H_

namespace hpvm {

class Observer;
class Tracer;

// Observers of every call (server/rpc/call_scope.h). Borrowed; they live longer than the server.
struct CallHooks {
  Observer* observer = nullptr;  // Without one no call is looked at.
  Tracer* tracer = nullptr;      // Makes the spans of calls; may be absent.
};

}  // namespace hpvm

#endif  // HPVMD_SERVER_EVENTS_CALL_HOOKS_H_
