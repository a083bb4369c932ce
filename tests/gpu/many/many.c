// SPDX-License-Identifier: Apache-2.0
// Kernels whose launches may be split over devices: rows of a product, all pairs, a stencil whose parts need the edges
// of other parts, an update in place.
#include "hpvm.h"

HPVM_KERNEL void product(const float* restrict a, const float* restrict b, float* restrict c, int n) {
  const int row = (int)hpvm_y(), column = (int)hpvm_x();
  float sum = 0;
  for (int k = 0; k < n; ++k) {
    sum += a[row * n + k] * b[k * n + column];
  }
  c[row * n + column] = sum;
}

HPVM_KERNEL void pairs(const float* restrict x, float* restrict force, int n) {
  const int i = (int)hpvm_x();
  const float here = x[i];
  float sum = 0;
  for (int j = 0; j < n; ++j) {
    const float distance = x[j] - here;
    sum += distance / (distance * distance + 0.25f);
  }
  force[i] = sum;
}

HPVM_KERNEL void heat(const float* restrict u, float* restrict v, int n) {
  const int row = (int)hpvm_y(), column = (int)hpvm_x();
  const int above = row > 0 ? row - 1 : row, below = row + 1 < n ? row + 1 : row;
  const int left = column > 0 ? column - 1 : column, right = column + 1 < n ? column + 1 : column;
  const float here = u[row * n + column];
  v[row * n + column] =
      here + 0.2f * (u[above * n + column] + u[below * n + column] + u[row * n + left] + u[row * n + right] - 4 * here);
}

// Inner cells only.
HPVM_KERNEL void heat3(const float* restrict u, float* restrict v, int n) {
  const int x = (int)hpvm_x() + 1, y = (int)hpvm_y() + 1, z = (int)hpvm_z() + 1;
  const int here = (z * n + y) * n + x;
  v[here] = u[here] * 0.5f +
            0.08f * (u[here - 1] + u[here + 1] + u[here - n] + u[here + n] + u[here - n * n] + u[here + n * n]);
}

HPVM_KERNEL void decay(float* restrict values, int turns) {
  const int i = (int)hpvm_x();
  float value = values[i];
  for (int turn = 0; turn < turns; ++turn) {
    value = value * 0.75f + 0.125f;
  }
  values[i] = value;
}
