// SPDX-License-Identifier: Apache-2.0
// One round of k-means: each point takes the nearest centre, and each centre moves to the mean of its points.
#include "hpvm.h"

// One instance per point. Counts the points that have changed their centre.
HPVM_KERNEL void assign(const hpvm_f32x2* points, const hpvm_f32x2* centres, const int* labels, int* labels_next,
                        int* changed, int centre_count) {
  int i = hpvm_instance_id(0), best = 0;
  hpvm_f32x2 point = points[i];
  float nearest = 3.4e38f;
  for (int k = 0; k < centre_count; ++k) {
    float dx = point.x - centres[k].x, dy = point.y - centres[k].y;
    float distance = dx * dx + dy * dy;
    best = distance < nearest ? k : best;
    nearest = distance < nearest ? distance : nearest;
  }
  labels_next[i] = best;
  if (best != labels[i]) {
    hpvm_atomic_add_i32(changed, 1);
  }
}

// Sums of coordinates as integers of 2^-20: the sum of integers does not depend on their order; that of floats does.
HPVM_KERNEL void accumulate(const hpvm_f32x2* points, const int* labels, long long* sums, int* counts) {
  int i = hpvm_instance_id(0), k = labels[i];
  hpvm_atomic_add_i64(sums + 2 * k, (long long)(points[i].x * 1048576.0));
  hpvm_atomic_add_i64(sums + 2 * k + 1, (long long)(points[i].y * 1048576.0));
  hpvm_atomic_add_i32(counts + k, 1);
}

// One instance per centre. A centre without points stays where it is.
HPVM_KERNEL void move(const long long* sums, const int* counts, const hpvm_f32x2* centres, const int* changed,
                      hpvm_f32x2* centres_next, unsigned* done) {
  int k = hpvm_instance_id(0);
  double scale = 1 / (1048576.0 * (counts[k] > 0 ? counts[k] : 1));
  hpvm_f32x2 mean = {(float)(sums[2 * k] * scale), (float)(sums[2 * k + 1] * scale)};
  centres_next[k] = counts[k] > 0 ? mean : centres[k];
  if (k == 0) {
    *done = *changed == 0;
  }
}
