// SPDX-License-Identifier: Apache-2.0
// The response of ListAccounts: one page of the accounts file.
#ifndef HPVMD_SERVER_ACCOUNTS_ACCOUNT_LIST_H_
#define HPVMD_SERVER_ACCOUNTS_ACCOUNT_LIST_H_

#include <string>

#include "base/io/disk.h"
#include "base/status.h"
#include "hpvm/v1/operations.pb.h"
#include "server/accounts/account_store.h"

namespace hpvm::server {

// Checks the request and converts it to a query about the tenant `tenant` (all tenants when empty), whom the caller
// may see. kInvalidArgument for a malformed request.
StatusOr<AccountQuery> QueryOf(const v1::ListAccountsRequest& request, const std::string& tenant, uint32_t today);

// Reads the disk. Thread-safe. The cost depends on the page, not on the size of the file.
Status ListAccounts(const std::string& path, AccountQuery query, v1::ListAccountsResponse* response,
                    Disk& disk = RealDisk(), const std::string& vfs = "");

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_ACCOUNTS_ACCOUNT_LIST_H_
