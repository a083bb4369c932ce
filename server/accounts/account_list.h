// SPDX-License-Identifier: Apache-2.0
// The answer to ListAccounts, a page of what the file of accounts has.
#ifndef HPVMD_SERVER_ACCOUNTS_ACCOUNT_LIST_H_
#define HPVMD_SERVER_ACCOUNTS_ACCOUNT_LIST_H_

#include <string>

#include "base/io/disk.h"
#include "base/status.h"
#include "hpvm/v1/operations.pb.h"
#include "server/accounts/account_store.h"

namespace hpvm::server {

// What the request asks for, checked, of the tenant `tenant` (empty: all), whom the caller may see. kInvalidArgument.
StatusOr<AccountQuery> QueryOf(const v1::ListAccountsRequest& request, const std::string& tenant, uint32_t today);

// Reads a disk. Any thread. The work is that of a page, whatever the file has.
Status ListAccounts(const std::string& path, AccountQuery query, v1::ListAccountsResponse* response,
                    Disk& disk = RealDisk(), const std::string& vfs = "");

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_ACCOUNTS_ACCOUNT_LIST_H_
