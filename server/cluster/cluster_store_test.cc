// SPDX-License-Identifier: Apache-2.0
// The promises of ClusterStore on the model and on SQLite.
#include "server/cluster/sqlite/sqlite_session.h"
#include "server/cluster/testing/cluster_store_promises.h"
#include "server/cluster/testing/direct_sql_store.h"
#include "server/cluster/testing/model_cluster_store.h"

namespace hpvm::server::cluster {
namespace {

std::unique_ptr<CheckedClusterStore> MakeModel(ClusterStoreOptions options, const ManualClock& clock) {
  return std::make_unique<ModelClusterStore>(options, clock);
}

std::unique_ptr<CheckedClusterStore> MakeSqlite(ClusterStoreOptions options, const ManualClock& clock) {
  auto session = SqliteSession::OpenInMemory(clock);
  HPVMD_CHECK(session.ok());
  return std::make_unique<DirectSqlStore>(options, *std::move(session));
}

INSTANTIATE_TEST_SUITE_P(Model, ClusterStorePromises, ::testing::Values(StoreFactory(&MakeModel)));
INSTANTIATE_TEST_SUITE_P(Sqlite, ClusterStorePromises, ::testing::Values(StoreFactory(&MakeSqlite)));

}  // namespace
}  // namespace hpvm::server::cluster
