// SPDX-License-Identifier: Apache-2.0
// The facts in a call's messages for the audit, for its span, and about its outcome. One row per method.
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
  std::string tenant;   // The tenant that it concerns; the caller's when empty.
  bool changes = true;  // For Change::kBuffers: whether the call is recorded.
  Status error;         // An error in the response instead of the call's status.
  std::vector<Span::Attribute> attributes;
  const v1::PrepareTiming* prepared = nullptr;  // Points into the response; valid while that is read.
};

struct CallMessages {
  std::string_view path;
  const char* span = nullptr;  // Name of its span; null for none.
  // gRPC passes messages without their type; the method determines it. For a stream, its first message.
  v1::RequestOptions* (*options)(void* request) = nullptr;
  void (*request)(const void* request, CallNotes* notes) = nullptr;
  void (*response)(const void* response, CallNotes* notes) = nullptr;
};

// Returns null when nothing is recorded about calls of that method.
const CallMessages* MessagesOf(std::string_view path);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_MESSAGES_H_
