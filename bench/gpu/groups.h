/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of groups that share memory and wait for each other; each for one instance of a group. */
#ifndef HPVMD_BENCH_GPU_GROUPS_H_
#define HPVMD_BENCH_GPU_GROUPS_H_

#include "language.h"

/* The sum of what the instances of a group have, for all of them: a tree. */
#define NORM_GROUP 256
BODY float group_sum(LOCAL float* sums, float value, int local_id) {
  sums[local_id] = value;
  BARRIER();
  for (int stride = NORM_GROUP / 2; stride > 0; stride /= 2) {
    if (local_id < stride) {
      sums[local_id] += sums[local_id + stride];
    }
    BARRIER();
  }
  const float sum = sums[0];
  BARRIER();
  return sum;
}

/* Rows of NORM_ROW numbers, each row by its mean and deviation; a group a row. */
#define NORM_ROW 1024
BODY void layer_norm_at(GLOBAL const float* restrict in, GLOBAL float* restrict out, LOCAL float* sums, int group,
                        int local_id) {
  float own[NORM_ROW / NORM_GROUP], sum = 0, squares = 0;
  for (int k = 0; k < NORM_ROW / NORM_GROUP; ++k) {
    own[k] = in[group * NORM_ROW + k * NORM_GROUP + local_id];
    sum += own[k];
  }
  const float mean = group_sum(sums, sum, local_id) / NORM_ROW;
  for (int k = 0; k < NORM_ROW / NORM_GROUP; ++k) {
    own[k] -= mean;
    squares += own[k] * own[k];
  }
  const float deviation = SQRTF(group_sum(sums, squares, local_id) / NORM_ROW + 1e-5f);
  for (int k = 0; k < NORM_ROW / NORM_GROUP; ++k) {
    out[group * NORM_ROW + k * NORM_GROUP + local_id] = own[k] / deviation;
  }
}

/* Sorts blocks of SORT_BLOCK numbers by a bitonic network (Batcher, 1968); a group of half as many a block. */
#define SORT_BLOCK 1024
BODY void bitonic_sort_at(GLOBAL int* restrict values, LOCAL int* block, int group, int local_id) {
  const int begin = group * SORT_BLOCK, middle = SORT_BLOCK / 2;
  block[local_id] = values[begin + local_id];
  block[local_id + middle] = values[begin + local_id + middle];
  for (int size = 2; size <= SORT_BLOCK; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      BARRIER();
      const int low = 2 * local_id - (local_id & (stride - 1)), high = low + stride;
      const int a = block[low], b = block[high];
      if ((a > b) == ((low & size) == 0)) {
        block[low] = b;
        block[high] = a;
      }
    }
  }
  BARRIER();
  values[begin + local_id] = block[local_id];
  values[begin + local_id + middle] = block[local_id + middle];
}

#endif /* HPVMD_BENCH_GPU_GROUPS_H_ */
