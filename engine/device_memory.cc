// SPDX-License-Identifier: Apache-2.0
#include "engine/device_memory.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "engine/prepared_graph.h"

namespace hpvm::engine {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// In the page, 0 means no limit.
uint64_t PageLimit(const std::atomic<uint64_t>& bytes_max) {
  const uint64_t limit = bytes_max.load(std::memory_order_relaxed);
  return limit == 0 ? kNoLimit : limit;
}

uint64_t BytesOf(const Plan& plan, const Device* device) { return plan.device_bytes.of(device); }

}  // namespace

DeviceBytes::~DeviceBytes() {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    owner_->accounts_[i]->bytes.fetch_sub(bytes_[i], std::memory_order_relaxed);
  }
  if (owner_ != nullptr) {
    owner_->changes_.fetch_add(1, std::memory_order_relaxed);
  }
}

uint64_t DeviceBytes::of(const Device* device) const {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (owner_->accounts_[i]->device == device) {
      return bytes_[i];
    }
  }
  return 0;
}

DeviceMemory::DeviceMemory(std::span<Device* const> devices, std::vector<Limits> limits) {
  for (size_t i = 0; i < devices.size(); ++i) {
    accounts_.push_back(std::make_unique<Account>());
    accounts_.back()->device = devices[i];
    accounts_.back()->limits = i < limits.size() ? limits[i] : Limits();
  }
}

bool DeviceMemory::IsClosed(const Device& device) {
  const Account* account = Find(device);
  return account != nullptr && account->limits.entry != nullptr &&
         account->limits.entry->closed.load(std::memory_order_relaxed) != 0;
}

void DeviceMemory::Add(const std::shared_ptr<PreparedGraph>& graph) {
  std::lock_guard lock(mutex_);
  std::erase_if(graphs_, [](const std::weak_ptr<PreparedGraph>& other) { return other.expired(); });
  graphs_.push_back(graph);
}

std::vector<std::shared_ptr<PreparedGraph>> DeviceMemory::Graphs() {
  std::vector<std::shared_ptr<PreparedGraph>> graphs;
  std::lock_guard lock(mutex_);
  for (const std::weak_ptr<PreparedGraph>& graph : graphs_) {
    if (std::shared_ptr<PreparedGraph> held = graph.lock()) {
      graphs.push_back(std::move(held));
    }
  }
  return graphs;
}

DeviceMemory::Account* DeviceMemory::Find(const Device& device) {
  const auto found = std::find_if(accounts_.begin(), accounts_.end(),
                                  [&](const std::unique_ptr<Account>& account) { return account->device == &device; });
  return found == accounts_.end() || device.info().host_visible ? nullptr : found->get();
}

uint64_t DeviceMemory::Total() const {
  uint64_t total = 0;
  for (const std::unique_ptr<Account>& account : accounts_) {
    total += account->bytes.load(std::memory_order_relaxed);
  }
  return total;
}

bool DeviceMemory::TryTake(Account& account, uint64_t bytes) {
  const auto fits = [bytes](uint64_t held, uint64_t limit) { return held <= limit && bytes <= limit - held; };
  const Limits& limits = account.limits;
  if ((limits.entry != nullptr && !fits(account.bytes.load(), PageLimit(limits.entry->bytes_max))) ||
      (limits.page != nullptr && !fits(Total(), PageLimit(limits.page->device_bytes_max)))) {
    return false;
  }
  account.bytes.fetch_add(bytes, std::memory_order_relaxed);
  changes_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

Status DeviceMemory::Take(const Device& device, uint64_t bytes, DeviceBytes* held) {
  Account* account = Find(device);
  if (account == nullptr || bytes == 0) {
    return absl::OkStatus();
  }
  std::lock_guard lock(take_mutex_);
  if (!TryTake(*account, bytes)) {
    for (const std::unique_ptr<Account>& other : accounts_) {
      Reclaim(*other->device, 0);
    }
    if (!TryTake(*account, bytes)) {
      const Limits& limits = account->limits;
      const uint64_t own = limits.entry == nullptr ? kNoLimit : PageLimit(limits.entry->bytes_max);
      const uint64_t all = limits.page == nullptr ? kNoLimit : PageLimit(limits.page->device_bytes_max);
      return ResourceExhausted("The tenant's limit of device memory (" + std::to_string(std::min(own, all)) +
                               " bytes) does not allow " + std::to_string(bytes) + " bytes more on device " +
                               device.info().id + ": runs in progress hold " +
                               std::to_string(own < all ? account->bytes.load() : Total()) + ".");
    }
  }
  if (held->owner_ == nullptr) {
    held->owner_ = shared_from_this();
    held->bytes_.assign(accounts_.size(), 0);
  }
  for (size_t i = 0; i < accounts_.size(); ++i) {
    held->bytes_[i] += accounts_[i].get() == account ? bytes : 0;
  }
  return absl::OkStatus();
}

uint64_t DeviceMemory::LimitOf(const Device& device) {
  const Account* account = Find(device);
  return account == nullptr || account->limits.entry == nullptr ? kNoLimit
                                                                : PageLimit(account->limits.entry->bytes_max);
}

uint64_t DeviceMemory::LimitOfAll() const {
  uint64_t limit = kNoLimit;
  for (const std::unique_ptr<Account>& account : accounts_) {
    if (account->limits.page != nullptr) {
      limit = std::min(limit, PageLimit(account->limits.page->device_bytes_max));
    }
  }
  return limit;
}

uint64_t DeviceMemory::Reclaim(const Device& device, uint64_t bytes_max) {
  const Account* account = Find(device);
  uint64_t freed = 0;
  if (account == nullptr) {
    return freed;
  }
  for (const std::shared_ptr<PreparedGraph>& graph : Graphs()) {
    // Dropped after the graph's mutex is released, because drivers are slow.
    std::vector<std::unique_ptr<Plan>> dropped;
    uint64_t held = account->bytes.load(std::memory_order_relaxed);
    std::unique_lock lock(graph->mutex);
    while (!graph->is_running && held > bytes_max) {
      // Searches from the back for the plan used longest ago.
      const auto last = std::find_if(graph->plans.rbegin(), graph->plans.rend(),
                                     [&](const std::unique_ptr<Plan>& plan) { return BytesOf(*plan, &device) > 0; });
      if (last == graph->plans.rend()) {
        break;
      }
      const uint64_t bytes = BytesOf(**last, &device);
      held -= std::min(held, bytes);
      freed += bytes;
      dropped.push_back(std::move(*last));
      graph->plans.erase(std::next(last).base());
    }
  }
  return freed;
}

std::vector<DeviceMemory::Usage> DeviceMemory::Measure() {
  std::vector<Usage> usage(accounts_.size());
  for (size_t i = 0; i < accounts_.size(); ++i) {
    usage[i].bytes = accounts_[i]->bytes.load(std::memory_order_relaxed);
  }
  for (const std::shared_ptr<PreparedGraph>& graph : Graphs()) {
    std::lock_guard lock(graph->mutex);
    if (graph->is_running) {
      continue;
    }
    for (size_t i = 0; i < accounts_.size(); ++i) {
      for (const std::unique_ptr<Plan>& plan : graph->plans) {
        usage[i].idle_bytes += BytesOf(*plan, accounts_[i]->device);
      }
    }
  }
  for (Usage& each : usage) {
    each.idle_bytes = std::min(each.idle_bytes, each.bytes);  // The counters are read one after the other.
  }
  return usage;
}

}  // namespace hpvm::engine
