// SPDX-License-Identifier: Apache-2.0
// UnitReader reads the state of jobs and arrays from the store a little at a time: an array may have a million rows.
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
  UnitState state;            // State of the existing rows; live: ACCEPTED and RUNNING.
  int64_t ended_unix_ns = 0;  // Latest end among them.
  // Number of an array's elements, including those that are stored no longer; 0: not known, or a job.
  uint64_t size = 0;
  uint64_t missing() const {
    const uint64_t rows = state.live + state.succeeded + state.failed;
    return size > rows ? size - rows : 0;
  }
};

// Used by one thread at a time; blocks for as long as the store takes.
class UnitReader {
 public:
  // Borrows the database. The ids are those of jobs, and of arrays ("array-…").
  UnitReader(JobDatabase& database, std::string tenant, std::vector<std::string> ids)
      : database_(database), tenant_(std::move(tenant)), ids_(std::move(ids)) {}

  // Reads some rows; returns true when all are read. kNotFound naming the first id that is not in the store; kDataLoss
  // when one of its rows is damaged. Not called after an error.
  StatusOr<bool> Step();
  // Returns the units that were read to the end.
  const std::map<std::string, StoredUnit>& units() const { return units_; }

 private:
  Status ReadJob(const std::string& id);
  // Returns true at the end.
  StatusOr<bool> ReadElements(const std::string& id);

  JobDatabase& database_;
  const std::string tenant_;
  const std::vector<std::string> ids_;
  size_t at_ = 0;
  StoredUnit array_;                       // The array being read.
  uint64_t before_sequence_ = UINT64_MAX;  // Its newer elements, from this sequence on, have been read.
  std::map<std::string, StoredUnit> units_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_UNIT_READER_H_
