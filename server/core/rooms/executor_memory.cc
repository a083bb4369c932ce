// SPDX-License-Identifier: Apache-2.0
// Sharing of device memory between tenants: executors report what they hold, and idle memory is asked back when it is
// short.
//
// An executor's report decides only which tenant is asked first and what its own tenant's accounts show. An executor
// that reports less than it holds keeps others from nothing that the driver would not keep them from anyway; one that
// claims to lack memory when it does not costs idle tenants what they had cached, once a second at most.
#include <algorithm>
#include <utility>

#include "server/core/rooms/executors.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

uint64_t At(const google::protobuf::RepeatedField<uint64_t>& values, size_t index) {
  return index < static_cast<size_t>(values.size()) ? values[static_cast<int>(index)] : 0;
}

}  // namespace

// Claim is the memory that one tenant holds on one device.
struct Executors::Claim {
  Tenant* tenant = nullptr;
  uint32_t entry = 0;
  uint64_t bytes = 0, idle_bytes = 0;
};

// Returns the claims of all tenants except `but`, the most idle first.
std::vector<Executors::Claim> Executors::ClaimsOn(const Tenant& but, const std::string& device) {
  std::vector<Claim> claims;
  for (const auto& [name, tenant] : tenants_.all()) {
    const ExecutorSlot& slot = tenant->executor;
    const auto found = std::find(slot.profile.begin(), slot.profile.end(), device);
    if (tenant.get() == &but || slot.port == nullptr || found == slot.profile.end()) {
      continue;
    }
    const auto entry = static_cast<uint32_t>(found - slot.profile.begin());
    const internal::Usage& usage = slot.usage;
    claims.push_back({tenant.get(), entry, At(usage.device_bytes(), entry), At(usage.idle_device_bytes(), entry)});
  }
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return std::pair(b.idle_bytes, a.tenant->key) < std::pair(a.idle_bytes, b.tenant->key);
  });
  return claims;
}

// Asks other tenants for `bytes` of the device. Returns the number of tenants asked; each of them calls `answered`,
// also when it fails.
uint64_t Executors::Ask(CoreScope& scope, const Tenant& but, const std::string& device, uint64_t bytes,
                        const std::function<void()>& answered) {
  uint64_t asked = 0, wanted = bytes;
  for (const Claim& claim : ClaimsOn(but, device)) {
    if (wanted == 0 || claim.idle_bytes == 0) {
      break;
    }
    const uint64_t part = std::min(wanted, claim.idle_bytes);
    wanted -= part;
    ++asked;
    LogInfo("An executor is asked to free device memory",
            {{"tenant", claim.tenant->name}, {"device", device}, {"bytes", std::to_string(part)}, {"for", but.name}});
    ExecutorSlot& slot = claim.tenant->executor;
    // Counted as given back already, so that no tenant is asked twice for the same memory.
    slot.usage.set_idle_device_bytes(static_cast<int>(claim.entry), claim.idle_bytes - part);
    scope.Defer([this, port = slot.port, tenant = claim.tenant->shared_from_this(), epoch = slot.epoch,
                 entry = claim.entry, left = claim.bytes - part, answered] {
      internal::Envelope reclaim;
      reclaim.mutable_reclaim()->set_entry(entry);
      reclaim.mutable_reclaim()->set_bytes_max(left);
      port->Ask(std::move(reclaim), [this, tenant, epoch, answered](const StatusOr<internal::Envelope>& answer) {
        if (answer.ok()) {
          OnUsage(tenant, epoch, answer->usage());
        }
        if (answered) {
          answered();
        }
      });
    });
  }
  return asked;
}

void Executors::OnUsage(const TenantRef& tenant, uint64_t epoch, const internal::Usage& usage) {
  CoreScope scope(monitor_);
  ExecutorSlot& slot = tenant->executor;
  if (slot.epoch != epoch || slot.port == nullptr) {
    return;
  }
  const internal::Usage before = std::exchange(slot.usage, usage);
  uint64_t sum = 0;  // At most 8 values of 2^50: protocol.h.
  for (const uint64_t bytes : usage.device_bytes()) {
    sum += bytes;
  }
  quotas_.SetDeviceBytes(*tenant, epoch, sum);
  const size_t entries = std::min(slot.profile.size(), static_cast<size_t>(usage.device_bytes_size()));
  for (size_t entry = 0; entry < entries; ++entry) {
    const uint64_t memory = devices_.table().MemoryOf(slot.profile[entry]);
    uint64_t held = At(usage.device_bytes(), entry);
    if (memory == 0 || held <= At(before.device_bytes(), entry)) {
      continue;
    }
    for (const Claim& claim : ClaimsOn(*tenant, slot.profile[entry])) {
      held += claim.bytes;
    }
    if (held > memory) {
      Ask(scope, *tenant, slot.profile[entry], held - memory, nullptr);
    }
  }
}

}  // namespace hpvm::server
