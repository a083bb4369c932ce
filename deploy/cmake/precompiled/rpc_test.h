// SPDX-License-Identifier: Apache-2.0
// Read by nearly every test of the daemon and its clients.
#include "deploy/cmake/precompiled/rpc.h"
#include "deploy/cmake/precompiled/test.h"
