// SPDX-License-Identifier: Apache-2.0
// How jobs and arrays stand in the store, read a little at a time: an array may have a million rows.
#ifndef HPVMD_SERVER_JOBS_UNIT_READER_H_
#define HPVMD_SERVER_JOBS_UNIT_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/jobs/rows/dependencies.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

struct StoredUnit {
  UnitState state;    // Of the rows that there are; live: ACCEPTED and RUNNING.
  uint64_t size = 0;  // Elements of an array, also those that are stored no longer; 0: not known, or a job.
  uint64_t missing() const {
    const uint64_t rows = state.live + state.succeeded + state.failed;
    return size > rows ? size - rows : 0;
  }
};

// By one thread at a time; blocks for as long as the store takes.
class UnitReader {
 public:
  // Borrows the database. Ids of jobs, and of arrays ("array-…").
  UnitReader(JobDatabase& database, std::string tenant, std::vector<std::string> ids)
      : database_(database), tenant_(std::move(tenant)), ids_(std::move(ids)) {}

  // Some rows; true when all are read. kNotFound naming the first id that the store has nothing of; kDataLoss when a
  // row among them is damaged. Not after an error.
  StatusOr<bool> Step();
  // Those that were read to the end.
  const std::map<std::string, StoredUnit>& units() const { return units_; }

 private:
  Status ReadJob(const std::string& id);
  // True: to the end.
  StatusOr<bool> ReadElements(const std::string& id);

  JobDatabase& database_;
  const std::string tenant_;
  const std::vector<std::string> ids_;
  size_t at_ = 0;
  StoredUnit array_;                       // Of the array at hand.
  uint64_t before_sequence_ = UINT64_MAX;  // Likewise: those that are newer have been read.
  std::map<std::string, StoredUnit> units_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_UNIT_READER_H_
