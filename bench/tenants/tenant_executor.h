// SPDX-License-Identifier: Apache-2.0
// One tenant's process, started as the daemon starts it, without the daemon.
#ifndef HPVMD_BENCH_TENANTS_TENANT_EXECUTOR_H_
#define HPVMD_BENCH_TENANTS_TENANT_EXECUTOR_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "supervisor/executor_link.h"

namespace hpvm::bench {

enum class Sandbox { kOff, kHighest };

// For the CPU alone. As root, with a user id of its own as the daemon assigns.
supervisor::ExecutorOptions TenantOptions(Sandbox sandbox);

class TenantExecutor {
 public:
  // `hub` must outlive the executor.
  static StatusOr<std::unique_ptr<TenantExecutor>> Start(supervisor::ExecutorHub& hub, Sandbox sandbox);

  // `document` has one module, bench_kernels.wasm, by that name.
  Status Prepare(const std::string& document, const std::string& module);
  // Waits for the reply; `took` covers the call and the reply.
  StatusOr<supervisor::RunReply> Run(const std::vector<supervisor::InputTensor>& inputs, Duration* took);

  int pid() const { return link_->pid(); }
  const supervisor::ExecutorReady& ready() const { return ready_; }

 private:
  std::unique_ptr<supervisor::ExecutorLink> link_;
  supervisor::ExecutorReady ready_;
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_TENANTS_TENANT_EXECUTOR_H_
