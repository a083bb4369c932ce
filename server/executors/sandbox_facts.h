// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_EXECUTORS_SANDBOX_FACTS_H_
#define HPVMD_SERVER_EXECUTORS_SANDBOX_FACTS_H_

#include <cstdint>
#include <string>

namespace hpvm::server {

// SandboxFacts is an executor's report of its sandbox, made before it had read anything of a tenant's (SandboxLevel).
struct SandboxFacts {
  uint32_t level = 0;
  std::string detail;  // For people.
  bool operator==(const SandboxFacts&) const = default;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_SANDBOX_FACTS_H_
