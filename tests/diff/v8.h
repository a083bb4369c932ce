// SPDX-License-Identifier: Apache-2.0
// Node's V8 as a third engine: one process, fed through a pipe (v8_server.js reads what v8.cc writes).
#ifndef HPVMD_TESTS_DIFF_V8_H_
#define HPVMD_TESTS_DIFF_V8_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "compiler/ir/launch.h"
#include "tests/diff/engines.h"

namespace hpvm::diff {

class V8 {
 public:
  // kUnavailable when there is no `node` on the PATH.
  static StatusOr<std::unique_ptr<V8>> Start(const std::string& server_script);
  ~V8();
  V8(const V8&) = delete;
  V8& operator=(const V8&) = delete;

  struct Run {
    std::span<const uint8_t> module;  // In V8's form.
    const LaunchSpec& launch;
    const ir::AddressSpace& space;
    uint64_t pages, pages_max;  // Size of the kernel's own memory.
    bool is_memory64;
  };
  // Sends a run; Receive returns its outcome. kInvalidArgument when V8 refuses the module. kInternal when the process
  // is gone or silent; it has then been ended, and every later call fails.
  Status Send(const Run& run);
  StatusOr<Outcome> Receive(const LaunchSpec& launch);

 private:
  V8() = default;
  Status ReadAll(void* into, size_t bytes);
  Status Fail(const std::string& what);

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_V8_H_
