// SPDX-License-Identifier: Apache-2.0
// Offsets: constants that are added and subtracted, ends of buffers, wide strides, narrow and unaligned elements, memory
// private to an instance.
#include "common.h"
#include "hpvm.h"

typedef struct {
  uint64_t word[6];
} Record48;

// Two fields at one sum; `extra` is 0, which no compiler knows.
HPVM_KERNEL void plain48(const Record48* restrict in, const uint32_t* restrict extra, uint64_t* restrict out) {
  const uint8_t* at = (const uint8_t*)in + ((uint32_t)X * 48u + extra[0] * 16u);
  out[X] = *(const uint64_t*)(at + 40) + *(const uint64_t*)(at + 32);
}

// A constant inside the sum, and one that the kernel subtracts afterwards.
HPVM_KERNEL void tenants48(const uint8_t* restrict in, const uint32_t* restrict extra, uint64_t* restrict out) {
  uint32_t t = ((uint32_t)X + 16u) * 48u + extra[0] * 16u;
  out[X] = *(const uint64_t*)(in + (t - 680u)) + *(const uint64_t*)(in + (t - 688u));
}

HPVM_KERNEL void store48(const uint32_t* restrict extra, const uint64_t* restrict values, uint8_t* restrict out) {
  uint32_t t = (4096u + (uint32_t)X * 48u) + extra[0] * 16u;
  *(uint64_t*)(out + (t - 4056u)) = values[X];
  *(uint64_t*)(out + (t - 4064u)) = ~values[X];
  *(uint32_t*)(out + (t - 4096u)) = (uint32_t)X;
  *(uint16_t*)(out + (t - 4090u)) = 7;
}

// Twenty-four, sixteen and thirty-two bytes; fields 4 and 8 apart.
HPVM_KERNEL void strides(const uint8_t* restrict in, const uint32_t* restrict extra, double* restrict out, int n) {
  uint32_t i = (uint32_t)X, e = extra[0];
  const uint8_t* a = in + ((1024u + i * 24u + e * 8u) - 1024u);
  const uint8_t* b = in + ((i + 3u) * 16u + e * 16u - 48u);
  const uint8_t* c = in + (65536u + 32u * ((uint32_t)n - 1u - i) + e * 32u - 65536u);
  double sum = (double)*(const int32_t*)(a + 4) + (double)*(const int32_t*)(a + 8) - (double)*(const int16_t*)(a + 18);
  sum += (double)*(const uint32_t*)(b + 12) * 0.5 - (double)*(const uint8_t*)(b + 3);
  sum += (double)*(const int64_t*)(c + 24) * 0.25 + (double)*(const int64_t*)(c + 16) * 0.125;
  out[i] = sum;
}

// From the end to the beginning, the last bytes first.
HPVM_KERNEL void from_end(const uint8_t* restrict in, uint8_t* restrict out, int n) {
  int at = n - 1 - X;
  const uint8_t* end = in + n;
  out[at] = (uint8_t)(end[-1 - at] + in[n - 1 - at] * 3);
}

HPVM_KERNEL void last_words(const uint8_t* restrict in, uint64_t* restrict out, int n) {
  int at = Least(X * 5, n - 8);
  typedef uint64_t Loose __attribute__((aligned(1)));
  typedef uint32_t Loose4 __attribute__((aligned(1)));
  out[X] = *(const Loose*)(in + at) ^ *(const Loose4*)(in + (n - 4 - at / 2));
}

HPVM_KERNEL void wide_stride(const float* restrict in, float* restrict out, int stride, int n) {
  float sum = 0;
  for (int k = 0; k < n; ++k) {
    sum += in[k * stride + (X * 37) % stride] - in[(n - 1 - k) * stride + X];
  }
  out[X] = sum;
}

HPVM_KERNEL void wide_write(const float* restrict in, float* restrict out, int stride, int n) {
  for (int k = 0; k < n; ++k) {
    out[k * stride + (X * 37) % stride] = in[X] * (float)(k - 3);
  }
}

// Eight and sixteen bits: truncation, wrapping and extension.
HPVM_KERNEL void narrow(const int8_t* restrict a, const uint8_t* restrict b, int16_t* restrict c,
                        uint16_t* restrict d) {
  int8_t s = (int8_t)(a[X] * 3 + b[X]);
  uint8_t u = (uint8_t)(b[X] << (a[X] & 7));
  c[X] = (int16_t)(s * (int)u - a[X]);
  d[X] = (uint16_t)((uint32_t)(uint16_t)c[X] >> 3 ^ (uint32_t)(uint8_t)s << 7);
}

HPVM_KERNEL void narrow_mix(const int16_t* restrict c, const uint16_t* restrict d, int8_t* restrict out, int n) {
  int i = X, j = i + 1 < n ? i + 1 : 0;
  int16_t low = (int16_t)(c[i] - c[j]);
  uint16_t high = (uint16_t)(d[i] + d[j] * 5u);
  out[2 * i] = (int8_t)(low >> 4);
  out[2 * i + 1] = (int8_t)(high >> 9);
}

typedef struct __attribute__((packed)) {
  uint8_t kind;
  uint32_t id;
  double value;
  uint16_t flags;
  float scale;
} Packed;  // 19 bytes; nothing is aligned.

HPVM_KERNEL void packed_write(const uint32_t* restrict bits, Packed* restrict out) {
  uint32_t r = bits[X];
  Packed p = {(uint8_t)r, r >> 3, (double)(r >> 7) * 0.5, (uint16_t)(r >> 11), (float)(r >> 20)};
  out[X] = p;
}

HPVM_KERNEL void packed_read(const Packed* restrict in, double* restrict out, uint32_t* restrict ids, int n) {
  const Packed *p = in + X, *q = in + (n - 1 - X);
  out[X] = p->value * (double)q->scale + (double)q->flags - (double)p->kind;
  ids[X] = p->id ^ q->id << 1;
}

// A permutation is applied on the stack repeatedly, with indices from data.
HPVM_KERNEL void shuffle_own(const uint8_t* restrict order, const int* restrict in, int* restrict out) {
  int own[64], other[64];
  for (int i = 0; i < 64; ++i) {
    own[i] = in[64 * X + i];
  }
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 64; ++i) {
      other[i] = own[order[i] & 63u] + own[(i + round) & 63];
    }
    for (int i = 0; i < 64; ++i) {
      own[(i * 5 + round) & 63] = other[i];
    }
  }
  for (int i = 0; i < 64; ++i) {
    out[64 * X + 63 - i] = own[i];
  }
}

// Sums of 64 bits as offsets, truncated to 32.
HPVM_KERNEL void long_offsets(const int64_t* restrict places, const int* restrict in, int64_t* restrict out, int n) {
  int64_t at = places[X] * 3 - 1000000007LL;
  uint64_t hashed = Mix64((uint64_t)at);
  int k = (int)(hashed % (uint64_t)n);
  out[X] = (int64_t)in[k] * at + (int64_t)(hashed >> 40) - in[n - 1 - k];
}

// A window that moves over `x - k` in both directions.
HPVM_KERNEL void window(const float* restrict in, float* restrict out, int n, int k) {
  float sum = 0;
  for (int j = 0; j < k; ++j) {
    int before = X + 2 * k - j - 2 * k, after = X - k + j + k;
    sum += (before >= 0 ? in[before] : 0.0f) * (float)(k - j);
    sum -= (after < n ? in[after] : 0.0f) * 0.5f;
  }
  out[X] = sum;
}

HPVM_KERNEL void spread(const uint32_t* restrict in, uint32_t* restrict out, int n) {
  out[X] = in[X % n] ^ Mix32((uint32_t)X);
}

// Rows of a band, of which each instance touches one diagonal.
HPVM_KERNEL void diagonals(const double* restrict band, double* restrict out, int n, int width) {
  int d = X;
  double sum = 0;
  for (int row = 0; row < n; ++row) {
    int at = row * width + d - (row % 3);
    if (d >= row % 3) {
      sum = sum * 0.5 + band[at];
    }
  }
  out[d] = sum;
}

// Three dimensions with margins that are subtracted.
HPVM_KERNEL void margins(const int* restrict in, int* restrict out, int nx, int ny, int margin) {
  int x = X + margin, y = Y + margin, z = Z + margin;
  int at = ((z - margin) * ny + (y - margin)) * nx + (x - margin);
  int left = x - margin > 0 ? in[((z - margin) * ny + y - margin) * nx + x - margin - 1] : -1;
  int up = y > margin ? in[at - nx] : -2, back = z > margin ? in[at - nx * ny] : -3;
  out[at] = in[at] * 7 - left * 5 + up * 3 - back;
}
