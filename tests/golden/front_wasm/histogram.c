// SPDX-License-Identifier: Apache-2.0
// A histogram of bytes by atomic additions, the largest value, and a 64-bit sum. Each instance takes a strided share.
#include "hpvm.h"

HPVM_KERNEL void histogram(const uint8_t* bytes, int32_t* bins, uint32_t* largest, int64_t* sum) {
  uint32_t count = hpvm_buffer_size(0);
  int64_t mine = 0;
  for (uint32_t i = hpvm_instance_id(0); i < count; i += hpvm_instance_count(0)) {
    hpvm_atomic_add_i32(&bins[bytes[i]], 1);
    hpvm_atomic_max_u_i32(largest, bytes[i]);
    mine += bytes[i];
  }
  hpvm_atomic_add_i64(sum, mine);
}
