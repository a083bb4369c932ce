// SPDX-License-Identifier: Apache-2.0
// Grids in two and three dimensions, images, and fields that several kernels update alternately.
#include "common.h"
#include "hpvm.h"

HPVM_KERNEL void relax(const float* restrict old, float* restrict next, int n) {
  int x = X, y = Y;
  if (x >= 1 && x <= n - 2 && y >= 1 && y <= n - 2) {
    next[x + y * n] =
        0.25f * (((old[x + 1 + y * n] + old[x - 1 + y * n]) + old[x + (y + 1) * n]) + old[x + (y - 1) * n]);
  } else {
    next[x + y * n] = old[x + y * n];
  }
}

HPVM_KERNEL void change(const float* restrict old, const float* restrict next, float* restrict rows, int n) {
  int y = X;
  float sum = 0;
  for (int x = 0; x < n; ++x) {
    float d = next[y * n + x] - old[y * n + x];
    sum += d * d;
  }
  rows[y] = sum;
}

HPVM_KERNEL void heat3(const double* restrict u, double* restrict v, int nx, int ny, int nz, double c) {
  int x = X, y = Y, z = Z, at = (z * ny + y) * nx + x;
  if (x == 0 || y == 0 || z == 0 || x == nx - 1 || y == ny - 1 || z == nz - 1) {
    v[at] = u[at];
    return;
  }
  v[at] =
      u[at] + c * (u[at - 1] + u[at + 1] + u[at - nx] + u[at + nx] + u[at - nx * ny] + u[at + nx * ny] - 6.0 * u[at]);
}

HPVM_KERNEL void life(const uint8_t* restrict old, uint8_t* restrict next, int w, int h) {
  int x = X, y = Y, count = 0;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      int at = (y + dy + h) % h * w + (x + dx + w) % w;
      count += (dx != 0 || dy != 0) & old[at];
    }
  }
  next[y * w + x] = count == 3 || (count == 2 && (old[y * w + x] & 1));
}

typedef struct {
  float f[9];
} Cell;  // 36 bytes.

static const int8_t kDx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
static const int8_t kDy[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};

// Lattice Boltzmann, two dimensions, nine speeds, a torus.
HPVM_KERNEL void boltzmann(const Cell* restrict in, const uint8_t* restrict wall, Cell* restrict out, int w, int h,
                           float omega) {
  int x = X, y = Y;
  float f[9], rho = 0, ux = 0, uy = 0;
  for (int k = 0; k < 9; ++k) {
    int sx = (x - kDx[k] + w) % w, sy = (y - kDy[k] + h) % h;
    f[k] = in[sy * w + sx].f[k] + 0.1f;
    rho += f[k];
    ux += f[k] * (float)kDx[k];
    uy += f[k] * (float)kDy[k];
  }
  Cell* to = out + (y * w + x);
  if (wall[y * w + x] == 0) {
    static const int8_t kBack[9] = {0, 3, 4, 1, 2, 7, 8, 5, 6};
    for (int k = 0; k < 9; ++k) {
      to->f[k] = f[kBack[k]] - 0.1f;
    }
    return;
  }
  ux /= rho;
  uy /= rho;
  float square = 1.5f * (ux * ux + uy * uy);
  for (int k = 0; k < 9; ++k) {
    float c = 3.0f * (ux * (float)kDx[k] + uy * (float)kDy[k]);
    float weight = k == 0 ? 4.0f / 9.0f : k < 5 ? 1.0f / 9.0f : 1.0f / 36.0f;
    to->f[k] = f[k] + omega * (weight * rho * (1.0f + c + 0.5f * c * c - square) - f[k]) - 0.1f;
  }
}

HPVM_KERNEL void wave(const double* restrict before, const double* restrict now, double* restrict after,
                      double* restrict kept, int n, double c) {
  int x = X, y = Y, at = y * n + x;
  double middle = now[at];
  kept[at] = middle;
  double left = x > 0 ? now[at - 1] : 0.0, right = x < n - 1 ? now[at + 1] : 0.0;
  double up = y > 0 ? now[at - n] : 0.0, down = y < n - 1 ? now[at + n] : 0.0;
  after[at] = 2.0 * middle - before[at] + c * (left + right + up + down - 4.0 * middle);
}

HPVM_KERNEL void sobel(const uint8_t* restrict in, int16_t* restrict gx, int16_t* restrict gy, int w, int h) {
  int x = X, y = Y, v[3][3];
  for (int j = 0; j < 3; ++j) {
    for (int i = 0; i < 3; ++i) {
      v[j][i] = in[Clamp(y + j - 1, 0, h - 1) * w + Clamp(x + i - 1, 0, w - 1)];
    }
  }
  gx[y * w + x] = (int16_t)(v[0][2] + 2 * v[1][2] + v[2][2] - v[0][0] - 2 * v[1][0] - v[2][0]);
  gy[y * w + x] = (int16_t)(v[2][0] + 2 * v[2][1] + v[2][2] - v[0][0] - 2 * v[0][1] - v[0][2]);
}

HPVM_KERNEL void sobel_join(const int16_t* restrict gx, const int16_t* restrict gy, uint8_t* restrict out, int w) {
  int at = Y * w + X;
  float a = (float)gx[at], b = (float)gy[at];
  float g = hpvm_sqrt_f32(a * a + b * b) * 0.25f;
  out[at] = g > 255.0f ? 255 : (uint8_t)g;
}

HPVM_KERNEL void median(const uint8_t* restrict in, uint8_t* restrict out, int w, int h) {
  int x = X, y = Y, count = 0;
  uint8_t v[25];
  for (int j = -2; j <= 2; ++j) {
    for (int i = -2; i <= 2; ++i) {
      uint8_t next = in[Clamp(y + j, 0, h - 1) * w + Clamp(x + i, 0, w - 1)];
      int k = count++;
      for (; k > 0 && v[k - 1] > next; --k) {
        v[k] = v[k - 1];
      }
      v[k] = next;
    }
  }
  out[y * w + x] = v[12];
}

HPVM_KERNEL void bilateral(const float* restrict in, float* restrict out, int w, int h, int radius, float space,
                           float range) {
  int x = X, y = Y;
  float here = in[y * w + x], sum = 0, weights = 0;
  for (int j = -radius; j <= radius; ++j) {
    for (int i = -radius; i <= radius; ++i) {
      if (x + i < 0 || x + i >= w || y + j < 0 || y + j >= h) {
        continue;
      }
      float v = in[(y + j) * w + x + i], d = v - here;
      float weight = hpvm_exp_f32(-(float)(i * i + j * j) * space - d * d * range);
      sum += v * weight;
      weights += weight;
    }
  }
  out[y * w + x] = sum / weights;
}

// Groups of 16 by 16 share a tile with an edge of 3.
HPVM_KERNEL void blur_tile(const float* restrict in, float* restrict out, int w, int h) {
  float* tile = hpvm_local_alloc(22 * 22 * sizeof(float));
  int lx = (int)hpvm_local_id(0), ly = (int)hpvm_local_id(1), x0 = X - lx - 3, y0 = Y - ly - 3;
  int gw = Least(16, w - (X - lx)), gh = Least(16, h - (Y - ly));
  for (int j = ly; j < 22; j += gh) {
    for (int i = lx; i < 22; i += gw) {
      tile[j * 22 + i] = in[Clamp(y0 + j, 0, h - 1) * w + Clamp(x0 + i, 0, w - 1)];
    }
  }
  hpvm_barrier();
  float sum = 0;
  for (int j = 0; j < 7; ++j) {
    for (int i = 0; i < 7; ++i) {
      sum += tile[(ly + j) * 22 + lx + i] * (float)((4 - (j > 3 ? j - 3 : 3 - j)) * (4 - (i > 3 ? i - 3 : 3 - i)));
    }
  }
  out[Y * w + X] = sum / 256.0f;
}

HPVM_KERNEL void erode(const int16_t* restrict in, int16_t* restrict out, int w, int radius, int sign) {
  int x = X, y = Y, best = sign * in[y * w + x];
  for (int k = 1; k <= radius; ++k) {
    if (x - k >= 0) {
      best = Least(best, sign * in[y * w + x - k]);
    }
    if (x + k < w) {
      best = Least(best, sign * in[y * w + x + k]);
    }
  }
  out[y * w + x] = (int16_t)(sign * best);
}

HPVM_KERNEL void field_e(const float* restrict ez, const float* restrict hx, const float* restrict hy,
                         float* restrict out, int n) {
  int x = X, y = Y, at = y * n + x;
  out[at] = x > 0 && y > 0 ? ez[at] + 0.5f * ((hy[at] - hy[at - 1]) - (hx[at] - hx[at - n])) : ez[at];
}

HPVM_KERNEL void field_h(const float* restrict ez, const float* restrict hx, const float* restrict hy,
                         float* restrict hx_out, float* restrict hy_out, int n) {
  int x = X, y = Y, at = y * n + x;
  hx_out[at] = y < n - 1 ? hx[at] - 0.5f * (ez[at + n] - ez[at]) : hx[at];
  hy_out[at] = x < n - 1 ? hy[at] + 0.5f * (ez[at + 1] - ez[at]) : hy[at];
}

// The offset of the upstream cell is subtracted last.
HPVM_KERNEL void upwind(const float* restrict u, const int* restrict back, float* restrict out, int w) {
  int x = X, y = Y, k = back[0], at = (y * w + x + 7) * 2 - 14;
  int from = (at >> 1) - k;
  float old = u[y * w + x], before = x >= k ? u[from] : u[y * w + w - k + x];
  out[at >> 1] = old - 0.25f * (old - before);
}

HPVM_KERNEL void restrict3(const float* restrict fine, float* restrict coarse, int n) {
  int x = X, y = Y, z = Z, m = n / 2;
  float sum = 0;
  for (int k = 0; k < 8; ++k) {
    sum += fine[((2 * z + (k >> 2)) * n + 2 * y + (k >> 1 & 1)) * n + 2 * x + (k & 1)];
  }
  coarse[(z * m + y) * m + x] = sum * 0.125f;
}

HPVM_KERNEL void prolong3(const float* restrict coarse, const float* restrict fine, float* restrict out, int n) {
  int x = X, y = Y, z = Z, m = n / 2, at = (z * n + y) * n + x;
  int cx = Least((x + 1) / 2, m - 1), cy = Least((y + 1) / 2, m - 1), cz = Least((z + 1) / 2, m - 1);
  float a = coarse[((z / 2) * m + y / 2) * m + x / 2], b = coarse[(cz * m + cy) * m + cx];
  out[at] = fine[at] + 0.5f * (a + b);
}

HPVM_KERNEL void ising(const int8_t* restrict spins, const uint32_t* restrict step, int8_t* restrict out,
                       uint32_t* restrict next_step, int n) {
  int x = X, y = Y, at = y * n + x;
  uint32_t s = step[0];
  if (at == 0) {
    next_step[0] = s + 1;
  }
  int here = spins[at] * 2 - 1;
  if (((uint32_t)(x + y) & 1u) != (s & 1u)) {
    out[at] = spins[at];
    return;
  }
  int sum = 0;
  sum += spins[y * n + (x + 1) % n] * 2 - 1;
  sum += spins[y * n + (x + n - 1) % n] * 2 - 1;
  sum += spins[(y + 1) % n * n + x] * 2 - 1;
  sum += spins[(y + n - 1) % n * n + x] * 2 - 1;
  uint32_t r = Mix32((uint32_t)at * 2654435761u + s * 40503u);
  float chance = hpvm_exp_f32(-0.8f * (float)(here * sum));
  out[at] = (int8_t)((float)(r >> 8) * 0x1p-24f < chance ? 1 - spins[at] : spins[at]);
}
