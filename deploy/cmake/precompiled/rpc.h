// SPDX-License-Identifier: Apache-2.0
// Read by nearly every source of the daemon and its clients.
#include <grpcpp/grpcpp.h>

#include "deploy/cmake/precompiled/std.h"
#include "hpvm/v1/admin.grpc.pb.h"
#include "hpvm/v1/service.grpc.pb.h"
