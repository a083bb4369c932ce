// SPDX-License-Identifier: Apache-2.0
// What the messages of a call say of it: to the audit, to its span, and how it ended. One row a method.
#ifndef HPVMD_SERVER_RPC_CALL_MESSAGES_H_
#define HPVMD_SERVER_RPC_CALL_MESSAGES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hpvm/v1/service.pb.h"
#include "server/observe/span.h"

namespace hpvm::server {

// Ids and settings, never contents or secrets.
struct CallNotes {
  std::string object, detail;
  std::string tenant;   // That it concerns; empty: the caller's.
  bool changes = true;  // Of Change::kBuffers: whether it is to be recorded.
  Status error;         // That the response carries instead of the call's status.
  std::vector<Span::Attribute> attributes;
  const v1::PrepareTiming* prepared = nullptr;  // Inside the response, for as long as that is read.
};

struct CallMessages {
  std::string_view path;
  const char* span = nullptr;  // The name of its span; null: it has none.
  // gRPC hands messages over without their type; the method says which it is. For a stream, its first message.
  v1::RequestOptions* (*options)(void* request) = nullptr;
  void (*request)(const void* request, CallNotes* notes) = nullptr;
  void (*response)(const void* response, CallNotes* notes) = nullptr;
};

// Null: nothing is said of calls of that method.
const CallMessages* MessagesOf(std::string_view path);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_MESSAGES_H_
