// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/unit_reader.h"

#include <algorithm>
#include <utility>

namespace hpvm::server {
namespace {

constexpr size_t kRowsPerStep = 500;
constexpr int kJobsPerStep = 100;

Status NoSuchUnit(const std::string& id) {
  return NotFound("There is no job \"" + id.substr(0, 80) + "\" to come after.");
}

void Count(v1::JobState state, UnitState* unit) {
  const UnitState one = UnitOf(state);
  unit->live += one.live;
  unit->succeeded += one.succeeded;
  unit->failed += one.failed;
}

}  // namespace

StatusOr<bool> UnitReader::Step() {
  for (int jobs = 0; at_ < ids_.size() && jobs < kJobsPerStep; ++jobs) {
    const std::string& id = ids_[at_];
    if (!id.starts_with("array-")) {
      HPVMD_RETURN_IF_ERROR(ReadJob(id));
      ++at_;
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const bool is_whole, ReadElements(id));
    if (!is_whole) {
      return false;
    }
    ++at_;
  }
  return at_ == ids_.size();
}

Status UnitReader::ReadJob(const std::string& id) {
  const StatusOr<StoredJob> row = database_.Find(tenant_, id);
  if (!row.ok()) {
    return absl::IsNotFound(row.status()) ? NoSuchUnit(id) : row.status();
  }
  Count(row->job().state(), &units_[id].state);
  units_[id].ended_unix_ns = row->job().ended_unix_ns();
  return absl::OkStatus();
}

StatusOr<bool> UnitReader::ReadElements(const std::string& id) {
  JobFilter filter;
  filter.fails_on_damage = true;
  filter.array_id = id;
  filter.count_max = kRowsPerStep;
  filter.before_sequence = before_sequence_;
  HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> rows, database_.List(tenant_, filter));
  for (const StoredJob& row : rows) {
    Count(row.job().state(), &array_.state);
    array_.ended_unix_ns = std::max(array_.ended_unix_ns, row.job().ended_unix_ns());
    array_.size = row.array_size();
    before_sequence_ = row.sequence();
  }
  if (rows.size() == kRowsPerStep) {
    return false;
  }
  const StoredUnit whole = std::exchange(array_, StoredUnit());
  before_sequence_ = UINT64_MAX;
  if (whole.state == UnitState()) {
    return NoSuchUnit(id);
  }
  units_[id] = whole;
  return true;
}

}  // namespace hpvm::server
