// SPDX-License-Identifier: Apache-2.0
// A checksum with a constant table, a call through a table of function pointers, and a static variable of which each
// instance has its own copy.
#include "hpvm.h"

static const uint32_t kNibble[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
static uint32_t calls = 7;  // Initialized data that is also written.

static uint32_t keep(uint32_t crc) { return crc; }
static uint32_t invert(uint32_t crc) { return ~crc; }
static uint32_t swap(uint32_t crc) { return __builtin_bswap32(crc); }
static uint32_t (*const kLast[3])(uint32_t) = {keep, invert, swap};

static __attribute__((noinline)) uint32_t step(uint32_t crc, uint8_t byte) {
  ++calls;
  crc = kNibble[(crc ^ byte) & 15] ^ (crc >> 4);
  return kNibble[(crc ^ (byte >> 4)) & 15] ^ (crc >> 4);
}

HPVM_KERNEL void checksum(const uint8_t* bytes, uint32_t* out, int length, int which) {
  int i = hpvm_instance_id(0);
  uint32_t crc = 0xffffffff;
  for (int j = 0; j < length; ++j) {
    crc = step(crc, bytes[i * length + j]);
  }
  out[2 * i] = kLast[(which + i) % 3](crc);
  out[2 * i + 1] = calls;
}
