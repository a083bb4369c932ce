// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_VERSION_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_VERSION_H_

namespace hpvm {

// The release of the library that runs, "0.1.0"; Client::ServerInfo tells the server's. Lives for ever.
const char* Version();

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_VERSION_H_
