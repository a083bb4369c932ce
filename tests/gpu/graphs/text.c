// SPDX-License-Identifier: Apache-2.0
// Bytes: search, checksums, hashes, packing, parsing, and arithmetic of many words.
#include "common.h"
#include "hpvm.h"

// The failure table is on the stack.
HPVM_KERNEL void search(const uint8_t* restrict text, const uint8_t* restrict wanted, int* restrict count,
                        int* restrict first, int n, int m, int piece) {
  int fail[16], from = X * piece, to = Least(from + piece + m - 1, n), matched = 0, found = 0, where = -1;
  fail[0] = 0;
  for (int i = 1, k = 0; i < m; ++i) {
    while (k > 0 && wanted[i] != wanted[k]) {
      k = fail[k - 1];
    }
    k += wanted[i] == wanted[k];
    fail[i] = k;
  }
  for (int i = from; i < to; ++i) {
    while (matched > 0 && (matched == m || text[i] != wanted[matched])) {
      matched = fail[matched - 1];
    }
    matched += text[i] == wanted[matched];
    if (matched == m) {
      ++found;
      where = where < 0 ? i - m + 1 : where;
    }
  }
  count[X] = found;
  first[X] = where;
}

HPVM_KERNEL void crc_table(uint32_t* restrict table) {
  uint32_t r = (uint32_t)X;
  for (int k = 0; k < 8; ++k) {
    r = r & 1u ? r >> 1 ^ 0xedb88320u : r >> 1;
  }
  table[X] = r;
}

HPVM_KERNEL void crc_rows(const uint8_t* restrict in, const uint32_t* restrict table, uint32_t* restrict out, int n) {
  uint32_t r = ~0u;
  const uint8_t* row = in + X * n;
  for (int k = 0; k < n; ++k) {
    r = table[(r ^ row[k]) & 255u] ^ r >> 8;
  }
  out[X] = ~r;
}

typedef uint32_t Loose32 __attribute__((aligned(1)));
typedef uint16_t Loose16 __attribute__((aligned(1)));
typedef uint64_t Loose64 __attribute__((aligned(1)));

// Keys of any length at any position: four bytes at a time, unaligned.
HPVM_KERNEL void murmur(const uint8_t* restrict bytes, const int* restrict starts, uint32_t* restrict out) {
  const uint8_t* key = bytes + starts[X];
  int n = starts[X + 1] - starts[X];
  uint32_t h = 42, k;
  for (int i = 0; i + 4 <= n; i += 4) {
    k = *(const Loose32*)(key + i) * 0xcc9e2d51u;
    h = Turn32(h ^ Turn32(k, 15) * 0x1b873593u, 13) * 5u + 0xe6546b64u;
  }
  k = 0;
  for (int i = n & ~3, s = 0; i < n; ++i, s += 8) {
    k |= (uint32_t)key[i] << s;
  }
  out[X] = Mix32((h ^ Turn32(k * 0xcc9e2d51u, 15) * 0x1b873593u) ^ (uint32_t)n);
}

HPVM_KERNEL void sha_rounds(const uint32_t* restrict blocks, uint32_t* restrict out) {
  uint32_t w[64], s[8], f = 0x428a2f98u;
  for (int i = 0; i < 16; ++i) {
    w[i] = blocks[16 * X + i];
  }
  for (int i = 16; i < 64; ++i) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (Turn32(a, 25) ^ Turn32(a, 14) ^ a >> 3) + w[i - 7] + (Turn32(b, 15) ^ Turn32(b, 13) ^ b >> 10);
  }
  for (int i = 0; i < 8; ++i) {
    s[i] = 0x6a09e667u * (uint32_t)(2 * i + 1);
  }
  for (int i = 0; i < 64; ++i) {
    uint32_t t =
        s[7] + (Turn32(s[4], 26) ^ Turn32(s[4], 21) ^ Turn32(s[4], 7)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + f + w[i];
    uint32_t u =
        (Turn32(s[0], 30) ^ Turn32(s[0], 19) ^ Turn32(s[0], 10)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    f = f * 1664525u + 1013904223u;
    for (int k = 7; k > 0; --k) {
      s[k] = s[k - 1];
    }
    s[4] += t;
    s[0] = t + u;
  }
  for (int i = 0; i < 8; ++i) {
    out[8 * X + i] = s[i];
  }
}

static void Quarter(uint32_t* v, int a, int b, int c, int d) {
  v[a] += v[b];
  v[d] = Turn32(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = Turn32(v[b] ^ v[c], 12);
  v[a] += v[b];
  v[d] = Turn32(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = Turn32(v[b] ^ v[c], 7);
}

HPVM_KERNEL void chacha(const uint32_t* restrict key, const uint8_t* restrict in, uint8_t* restrict out) {
  uint32_t s[16], v[16];
  for (int i = 0; i < 16; ++i) {
    s[i] = v[i] = i < 4     ? 0x61707865u + 0x10101u * (uint32_t)i
                  : i < 12  ? key[i - 4]
                  : i == 12 ? (uint32_t)X
                            : key[i - 8];
  }
  for (int round = 0; round < 10; ++round) {
    for (int k = 0; k < 4; ++k) {
      Quarter(v, k, 4 + k, 8 + k, 12 + k);
    }
    for (int k = 0; k < 4; ++k) {
      Quarter(v, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
    }
  }
  for (int i = 0; i < 64; ++i) {
    out[64 * X + i] = in[64 * X + i] ^ (uint8_t)((v[i / 4] + s[i / 4]) >> 8 * (i % 4));
  }
}

// Values of `bits` bits, of which 32 fill `bits` words.
HPVM_KERNEL void pack_bits(const uint32_t* restrict in, uint32_t* restrict out, int bits) {
  uint64_t window = 0;
  int have = 0, at = X * bits;
  for (int i = 0; i < 32; ++i) {
    window |= (uint64_t)(in[32 * X + i] & ((1u << bits) - 1u)) << have;
    have += bits;
    if (have >= 32) {
      out[at++] = (uint32_t)window;
      window >>= 32;
      have -= 32;
    }
  }
}

HPVM_KERNEL void unpack_bits(const uint32_t* restrict in, uint32_t* restrict out, int bits) {
  int i = X, at = i % 32 * bits, word = i / 32 * bits + at / 32, from = at % 32;
  uint32_t low = in[word] >> from, high = from + bits > 32 ? in[word + 1] << (32 - from) : 0;
  out[i] = (low | high) & ((1u << bits) - 1u);
}

// Seven bits a byte, the top bit says that more follows; then decimal digits.
HPVM_KERNEL void write_numbers(const uint32_t* restrict in, uint8_t* restrict out, int* restrict lengths) {
  uint8_t* to = out + 16 * X;
  uint32_t v = in[X] >> in[X] % 29u;
  int n = 0;
  for (uint32_t rest = v; n == 0 || rest != 0; rest >>= 7) {
    to[n++] = (uint8_t)((rest & 127u) | (rest >> 7 ? 128u : 0u));
  }
  uint8_t digits[10];
  int count = 0;
  do {
    digits[count++] = (uint8_t)('0' + v % 10u);
    v /= 10u;
  } while (v != 0);
  while (count > 0) {
    to[n++] = digits[--count];
  }
  lengths[X] = n;
}

HPVM_KERNEL void read_numbers(const uint8_t* restrict in, const int* restrict lengths, uint32_t* restrict varints,
                              uint32_t* restrict decimals) {
  const uint8_t* from = in + 16 * X;
  uint32_t v = 0, d = 0;
  int n = 0, shift = 0;
  for (;; shift += 7) {
    v |= (uint32_t)(from[n] & 127u) << shift;
    if ((from[n++] & 128u) == 0) {
      break;
    }
  }
  for (; n < lengths[X]; ++n) {
    d = d * 10u + (uint32_t)(from[n] - '0');
  }
  varints[X] = v;
  decimals[X] = d;
}

static uint8_t Letter(uint32_t v) {
  return (uint8_t)(v < 26 ? 'A' + v : v < 52 ? 'a' + v - 26 : v < 62 ? '0' + v - 52 : v == 62 ? '+' : '/');
}

HPVM_KERNEL void base64(const uint8_t* restrict in, uint8_t* restrict out) {
  uint32_t v = (uint32_t)in[3 * X] << 16 | (uint32_t)in[3 * X + 1] << 8 | in[3 * X + 2];
  for (int k = 0; k < 4; ++k) {
    out[4 * X + k] = Letter(v >> (18 - 6 * k) & 63u);
  }
}

HPVM_KERNEL void base64_back(const uint8_t* restrict in, uint8_t* restrict out) {
  uint32_t v = 0;
  for (int k = 0; k < 4; ++k) {
    uint8_t c = in[4 * X + k];
    v = v << 6 | (uint32_t)(c >= 'a'   ? c - 'a' + 26
                            : c >= 'A' ? c - 'A'
                            : c >= '0' ? c - '0' + 52
                            : c == '+' ? 62
                                       : 63);
  }
  for (int k = 0; k < 3; ++k) {
    out[3 * X + k] = (uint8_t)(v >> (16 - 8 * k));
  }
}

// Products of 256 bits: eight words by eight, carries of 64 bits.
HPVM_KERNEL void multiply256(const uint32_t* restrict a, const uint32_t* restrict b, uint32_t* restrict out) {
  uint32_t product[16];
  for (int i = 0; i < 16; ++i) {
    product[i] = 0;
  }
  for (int i = 0; i < 8; ++i) {
    uint64_t carry = 0;
    for (int j = 0; j < 8; ++j) {
      uint64_t v = (uint64_t)a[8 * X + i] * b[8 * X + j] + product[i + j] + carry;
      product[i + j] = (uint32_t)v;
      carry = v >> 32;
    }
    product[i + 8] = (uint32_t)carry;
  }
  for (int i = 0; i < 16; ++i) {
    out[16 * X + i] = product[i];
  }
}

static uint64_t MultiplyModulo(uint64_t a, uint64_t b, uint64_t m) {
  uint64_t sum = 0;
  for (; b != 0; b >>= 1) {
    sum = b & 1u ? (sum + a) % m : sum;
    a = (a + a) % m;
  }
  return sum;
}

HPVM_KERNEL void power_modulo(const uint64_t* restrict base, const uint32_t* restrict exponent,
                              uint64_t* restrict out) {
  uint64_t m = (base[X] >> 9 & 0xffffffffffull) | 1u, v = base[X] % m, result = 1 % m;
  for (uint32_t e = exponent[X] & 1023u; e != 0; e >>= 1) {
    result = e & 1u ? MultiplyModulo(result, v, m) : result;
    v = MultiplyModulo(v, v, m);
  }
  out[X] = result;
}

HPVM_KERNEL void divide64(const int64_t* restrict a, const int64_t* restrict b, int64_t* restrict out) {
  int64_t x = a[X], y = b[X] | 1;
  uint64_t u = (uint64_t)x, v = (uint64_t)y;
  out[4 * X] = x / y;
  out[4 * X + 1] = x % y;
  out[4 * X + 2] = (int64_t)(u / v ^ u % v);
  uint64_t p = u, q = v;
  while (q != 0) {
    uint64_t r = p % q;
    p = q;
    q = r;
  }
  out[4 * X + 3] = (int64_t)(p * 8u + (uint64_t)__builtin_clzll(u | 1u) + (uint64_t)__builtin_ctzll(v) +
                             (uint64_t)__builtin_popcountll(u));
}

HPVM_KERNEL void runs_mark(const uint8_t* restrict in, int* restrict marks) { marks[X] = X == 0 || in[X] != in[X - 1]; }

HPVM_KERNEL void runs_place(const int* restrict marks, int* restrict places, uint32_t* restrict count, int n) {
  int at = -1;
  for (int i = 0; i < n; ++i) {
    at += marks[i];
    places[i] = at;
  }
  count[0] = (uint32_t)(at + 1);
}

HPVM_KERNEL void runs_write(const uint8_t* restrict in, const int* restrict marks, const int* restrict places,
                            uint8_t* restrict letters, int* restrict starts) {
  if (marks[X]) {
    letters[places[X]] = in[X];
    starts[places[X]] = X;
  }
}

HPVM_KERNEL void runs_read(const uint8_t* restrict letters, const int* restrict starts, const uint32_t* restrict count,
                           uint8_t* restrict out) {
  int low = 0, high = (int)count[0];
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (starts[middle] <= X) {
      low = middle;
    } else {
      high = middle;
    }
  }
  out[X] = letters[low];
}
