// SPDX-License-Identifier: Apache-2.0
#include "client/prepared_graphs.h"

#include <utility>

namespace hpvm {

void PreparedGraphs::Add(const std::string& handle, Source source) {
  auto entry = std::make_shared<Entry>();
  entry->source = std::move(source);
  entry->current = handle;
  const std::lock_guard lock(mutex_);
  entries_[handle] = std::move(entry);
}

std::string PreparedGraphs::Remove(const std::string& handle) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) {
    return handle;
  }
  std::string current = std::move(found->second->current);
  entries_.erase(found);
  return current;
}

std::string PreparedGraphs::Current(const std::string& handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(handle);
  return found == entries_.end() ? handle : found->second->current;
}

StatusOr<bool> PreparedGraphs::PrepareAgain(const std::string& handle, const std::string& used,
                                            const std::function<StatusOr<int64_t>()>& started_ns,
                                            const std::function<StatusOr<std::string>(const Source&)>& prepare) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) {
      return false;
    }
    entry = found->second;
  }
  const std::lock_guard one_at_a_time(entry->preparing);
  if (Current(handle) != used) {
    return true;
  }
  HPVMD_ASSIGN_OR_RETURN(const int64_t started, started_ns());
  if (started == entry->source.server_started_ns) {
    return false;
  }
  HPVMD_ASSIGN_OR_RETURN(std::string made, prepare(entry->source));
  const std::lock_guard lock(mutex_);
  entry->source.server_started_ns = started;
  entry->current = std::move(made);
  return true;
}

}  // namespace hpvm
