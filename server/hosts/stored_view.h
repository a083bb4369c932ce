// SPDX-License-Identifier: Apache-2.0
// Conversions between a job as the cluster's store has it (JobView: state, host, numbers, and a record that the store
// does not look into) and as the core has it (StoredJob). The record is a StoredJob; where the two differ, the store's
// fields count.
#ifndef HPVMD_SERVER_HOSTS_STORED_VIEW_H_
#define HPVMD_SERVER_HOSTS_STORED_VIEW_H_

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "hpvm/v1/job.pb.h"
#include "proto/internal/stored_job.pb.h"
#include "server/cluster/cluster_store.h"
#include "server/jobs/rows/job_database.h"

namespace hpvm::server {

v1::JobState ToPublic(cluster::JobState state);

// kDataLoss: the record is damaged.
StatusOr<StoredJob> RowOf(const cluster::JobView& view);
// The row of a job that is being claimed: ACCEPTED, with the attempts before this one.
StatusOr<StoredJob> RowOf(const cluster::Claim& claim);

// Ids of elements by the id of their array.
using ArrayElements = std::map<std::string, std::vector<std::string>>;

// The job that the store is to have. `host` is this host's name, to which jobs are bound that use its buffers;
// `elements` are those of the arrays that the job comes after. kInvalidArgument: the job has to run on two hosts.
StatusOr<cluster::NewJob> NewJobOf(const InsertJobs& insert, size_t index, const std::string& host,
                                   const ArrayElements& elements = {});

// Returns the results that the store keeps for a job: none for jobs that the store ended itself.
StatusOr<StoredResults> ResultsOf(const cluster::JobView& view);

// Returns how a claim ends with that row: the state of its job, or kWaiting for a job that goes back.
cluster::JobState EndStateOf(v1::JobState state);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_STORED_VIEW_H_
