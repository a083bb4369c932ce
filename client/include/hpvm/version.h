// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_VERSION_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_VERSION_H_

namespace hpvm {

// Returns the version of this library, "0.1.0"; Client::ServerInfo returns the server's. The string is never freed.
const char* Version();

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_VERSION_H_
