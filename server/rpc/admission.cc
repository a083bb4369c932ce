// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/admission.h"

#include <algorithm>

namespace hpvm::server {
namespace {

// Long enough to count slow graphs, short compared with wait_max.
constexpr Duration kWindow = std::chrono::milliseconds(250);
// Weight of the newest window in the smoothed pace.
constexpr double kNewest = 0.3;
constexpr Duration kWaitLeast = std::chrono::milliseconds(20);
// Maximum ratio of a tenant's bytes to the bytes it leaves free. With n tenants at that limit one part in 2n + 1 is
// free.
constexpr uint64_t kFreeTimes = 2;

Outcome Refuse(const std::string& text, Duration wait) { return Later(ResourceExhausted(text), wait); }

Duration Seconds(double seconds) { return Duration(static_cast<int64_t>(seconds * 1e9)); }

}  // namespace

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Release();
    admission_ = std::exchange(other.admission_, nullptr);
    tenant_ = std::exchange(other.tenant_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    in_progress_ = std::exchange(other.in_progress_, false);
  }
  return *this;
}

void Admission::Ticket::EndCall() {
  if (admission_ != nullptr && std::exchange(in_progress_, false)) {
    admission_->EndCall(*static_cast<Tenant*>(tenant_));
  }
}

void Admission::Ticket::Release() {
  EndCall();
  if (Admission* admission = std::exchange(admission_, nullptr)) {
    admission->Release(*static_cast<Tenant*>(tenant_), bytes_);
  }
}

// Windows without an end count: a tenant whose graphs no longer end has no pace.
void Admission::TurnWindow(Tenant& tenant, Time now) const {
  const Duration length = now - tenant.window_start;
  if (length < kWindow) {
    return;
  }
  const double newest = static_cast<double>(tenant.window_ended) * 1e9 / static_cast<double>(length.count());
  tenant.pace = tenant.pace < 0 ? newest : tenant.pace + kNewest * (newest - tenant.pace);
  tenant.window_start = now;
  tenant.window_ended = 0;
}

Outcome Admission::CheckBytes(const Tenant& tenant, uint64_t bytes) const {
  if (bytes_ > limits_.bytes_max || bytes > limits_.bytes_max - bytes_) {
    return Refuse("The requests in progress hold " + std::to_string(bytes_) + " bytes; with this one of " +
                      std::to_string(bytes) + " they would exceed the limit (" + std::to_string(limits_.bytes_max) +
                      ").",
                  kWaitLeast);
  }
  if (tenant.bytes > limits_.bytes_per_tenant_max || bytes > limits_.bytes_per_tenant_max - tenant.bytes) {
    return Refuse("The tenant's requests in progress hold " + std::to_string(tenant.bytes) +
                      " bytes; with this one of " + std::to_string(bytes) + " they would exceed the limit (" +
                      std::to_string(limits_.bytes_per_tenant_max) + ").",
                  kWaitLeast);
  }
  const uint64_t free = limits_.bytes_max - bytes_ - bytes;
  if (tenant.bytes + bytes > kFreeTimes * free) {
    return Refuse("The tenant's requests in progress hold " + std::to_string(tenant.bytes) +
                      " bytes; with this one of " + std::to_string(bytes) +
                      " they would be more than twice what stays " + "free for others (" + std::to_string(free) + ").",
                  kWaitLeast);
  }
  return absl::OkStatus();
}

Outcome Admission::CheckCalls(Tenant& tenant) {
  if (tenant.calls < limits_.calls_always) {
    return absl::OkStatus();
  }
  const Time now = clock_.Now();
  if (!tenant.busy) {
    tenant.busy = true;
    tenant.window_start = now;
    tenant.window_ended = 0;
    tenant.pace = -1;
  }
  TurnWindow(tenant, now);
  const double wait_max_s = static_cast<double>(limits_.wait_max.count()) / 1e9;
  const double calls_max = std::max<double>(limits_.calls_always, tenant.pace * wait_max_s);
  if (tenant.pace < 0 || tenant.calls < calls_max) {
    return absl::OkStatus();
  }
  // Until half of the calls before it have ended.
  const Duration wait = Seconds(tenant.calls / 2.0 / std::max(tenant.pace, tenant.calls / 2.0 / wait_max_s));
  return Refuse("The tenant has " + std::to_string(tenant.calls) +
                    " runs in progress, which are more than it completed in the last " +
                    std::to_string(limits_.wait_max.count() / 1'000'000) + " ms.",
                std::clamp(wait, kWaitLeast, limits_.wait_max));
}

Admission::Tenant& Admission::Find(std::string_view name) {
  const auto [found, is_new] = tenants_.try_emplace(std::string(name));
  if (is_new) {
    found->second.name = name;
  }
  return found->second;
}

void Admission::ForgetIdle(Tenant& tenant) {
  if (tenant.tickets == 0) {
    tenants_.erase(std::string(tenant.name));  // A copy, because the key must outlive its own removal.
  }
}

Admission::Ticket Admission::Issue(Tenant& tenant, uint64_t bytes) {
  ++tenant.tickets;
  tenant.bytes += bytes;
  bytes_ += bytes;
  Ticket ticket;
  ticket.admission_ = this;
  ticket.tenant_ = &tenant;
  ticket.bytes_ = bytes;
  return ticket;
}

Outcome Admission::Admit(std::string_view tenant_name, uint64_t bytes, Ticket* ticket) {
  ticket->Release();
  std::lock_guard lock(mutex_);
  Tenant& tenant = Find(tenant_name);
  Outcome outcome = CheckBytes(tenant, bytes);
  if (outcome.ok()) {
    outcome = CheckCalls(tenant);
  }
  if (!outcome.ok()) {
    ForgetIdle(tenant);
    return outcome;
  }
  ++tenant.calls;
  ++calls_;
  *ticket = Issue(tenant, bytes);
  ticket->in_progress_ = true;
  return absl::OkStatus();
}

Outcome Admission::Hold(std::string_view tenant_name, uint64_t bytes, Ticket* ticket) {
  ticket->Release();
  std::lock_guard lock(mutex_);
  Tenant& tenant = Find(tenant_name);
  if (Outcome outcome = CheckBytes(tenant, bytes); !outcome.ok()) {
    ForgetIdle(tenant);
    return outcome;
  }
  *ticket = Issue(tenant, bytes);
  return absl::OkStatus();
}

Admission::Ticket Admission::HoldAnyway(std::string_view tenant, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return Issue(Find(tenant), bytes);
}

bool Admission::HasRoom(std::string_view tenant_name, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto tenant = tenants_.find(std::string(tenant_name));
  return CheckBytes(tenant == tenants_.end() ? Tenant() : tenant->second, bytes).ok();
}

void Admission::EndCall(Tenant& tenant) {
  std::lock_guard lock(mutex_);
  --tenant.calls;
  --calls_;
  if (tenant.busy) {
    ++tenant.window_ended;
    TurnWindow(tenant, clock_.Now());
    tenant.busy = tenant.calls >= limits_.calls_always / 2;
  }
}

void Admission::Release(Tenant& tenant, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  tenant.bytes -= bytes;
  bytes_ -= bytes;
  --tenant.tickets;
  ForgetIdle(tenant);
}

uint64_t Admission::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

uint64_t Admission::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace hpvm::server
