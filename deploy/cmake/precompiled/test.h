// SPDX-License-Identifier: Apache-2.0
// Read by nearly every test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/cmake/precompiled/std.h"
