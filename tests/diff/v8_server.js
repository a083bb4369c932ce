// SPDX-License-Identifier: Apache-2.0
// Runs kernels in V8: reads launches from stdin, as v8.cc writes them, and answers on stdout. Ends with its input.
'use strict';
const fs = require('fs');

const kRefused = 1000;
const kPages = 64;
const memories = [new WebAssembly.Memory({initial: kPages, maximum: kPages}), null];

function MemoryFor(is64) {
  if (is64 && !memories[1]) memories[1] = new WebAssembly.Memory({initial: kPages, maximum: kPages, index: 'i64'});
  return memories[is64];
}

function ReadAll(length) {
  const bytes = Buffer.alloc(length);
  for (let done = 0; done < length;) {
    const got = fs.readSync(0, bytes, done, length - done, null);
    if (got === 0) process.exit(0);
    done += got;
  }
  return bytes;
}

function WriteAll(bytes) {
  for (let done = 0; done < bytes.length;) done += fs.writeSync(1, bytes, done, bytes.length - done);
}

// The numbers of ir::TrapCode.
const kTraps = [
  [/unreachable/, 1],
  [/memory access out of bounds|outside the bounds/, 2],
  [/divide by zero|remainder by zero/, 3],
  [/divide result unrepresentable/, 4],
  [/float unrepresentable/, 5],
  [/table index is out of bounds/, 14],
  [/null function or function signature/, 6],
  [/unaligned/, 8],
  [/table access out of bounds|table index out of bounds|element segment out of bounds/, 13],
];
function TrapCode(error) {
  if (error instanceof RangeError && /call stack/.test(error.message)) return 7;
  for (const [pattern, code] of kTraps) {
    if (pattern.test(error.message)) return code;
  }
  throw error;
}

function ParseLaunch(bytes) {
  let at = 0;
  const Word = () => {
    at += 8;
    return bytes.readBigUInt64LE(at - 8);
  };
  const Data = () => {
    const length = Number(Word());
    at += length;
    const data = bytes.subarray(at - length, at);
    at = (at + 7) & ~7;
    return data;
  };
  const launch = {extent: [0, 0, 0].map(Word), group: [0, 0, 0].map(Word)};
  [launch.pages, launch.pagesMax, launch.is64] = [Number(Word()), Number(Word()), Number(Word())];
  launch.params = Array.from({length: Number(Word())}, () => ({kind: Number(Word()), bits: Word(), bytes: Data()}));
  launch.module = Data();
  return launch;
}

const scratch = new DataView(new ArrayBuffer(8));
function Argument(param, is64) {
  switch (param.kind) {
    case 0: return Number(BigInt.asIntN(32, param.bits));
    case 1: return BigInt.asIntN(64, param.bits);
    case 2: scratch.setUint32(0, Number(param.bits)); return scratch.getFloat32(0);
    case 3: scratch.setBigUint64(0, param.bits); return scratch.getFloat64(0);
    default: return is64 ? param.bits : Number(param.bits);
  }
}

// The import module "hpvm". `place` is the running instance; pages count the kernel's own memory.
function Imports(launch, place) {
  const narrow = (table, other) => (d) => d >= 0 && d < 3 ? Number(BigInt.asIntN(32, table[d])) : other;
  const wide = (table, other) => (d) => d >= 0 && d < 3 ? table[d] : other;
  const address = (n) => launch.is64 ? BigInt(n) : n;
  const atomic = (type, bytes, better) => (at, value) => {
    if (Number(BigInt.asUintN(launch.is64 ? 64 : 32, BigInt(at))) % bytes !== 0) {
      throw new WebAssembly.RuntimeError('unaligned');
    }
    const view = new DataView(place.memory.buffer);
    const old = view['get' + type](launch.is64 ? Number(at) : at >>> 0, true);
    const fresh = type === 'Uint32' ? value >>> 0 : type === 'BigUint64' ? BigInt.asUintN(64, value) : value;
    if (better(fresh, old)) view['set' + type](launch.is64 ? Number(at) : at >>> 0, fresh, true);
    return old;
  };
  const less = (a, b) => a < b;
  const more = (a, b) => a > b;
  return {
    group_id: (d) => d >= 0 && d < 3 ? Number(place.id[d] / launch.group[d]) : 0,
    local_id: (d) => d >= 0 && d < 3 ? Number(place.id[d] % launch.group[d]) : 0,
    group_size: narrow(launch.group, 1),
    instance_id: narrow(place.id, 0),
    instance_id64: wide(place.id, 0n),
    instance_count: narrow(launch.extent, 1),
    instance_count64: wide(launch.extent, 1n),
    buffer_size: (k) => k >= 0 && k < launch.params.length ? launch.params[k].bytes.length : 0,
    atomic_min_s_i32: atomic('Int32', 4, less),
    atomic_max_s_i32: atomic('Int32', 4, more),
    atomic_min_u_i32: atomic('Uint32', 4, less),
    atomic_max_u_i32: atomic('Uint32', 4, more),
    atomic_min_s_i64: atomic('BigInt64', 8, less),
    atomic_max_u_i64: atomic('BigUint64', 8, more),
    memory_size: () => address(place.pages),
    memory_grow: (delta) => {
      const pages = place.pages + Number(BigInt.asUintN(launch.is64 ? 64 : 32, BigInt(delta)));
      if (pages > launch.pagesMax) return address(-1);
      const before = place.pages;
      place.pages = pages;
      return address(before);
    },
    memory: place.memory,
  };
}

function RunInstances(launch, module) {
  const memory = MemoryFor(launch.is64);
  const bytes = new Uint8Array(memory.buffer);
  const place = {id: [0n, 0n, 0n], pages: launch.pages, memory};
  const hpvm = Imports(launch, place);
  const values = launch.params.map((param) => Argument(param, launch.is64));
  for (const param of launch.params) {
    if (param.kind === 8) bytes.set(param.bytes, Number(param.bits));
  }
  const [nx, ny, nz] = launch.extent.map(Number);
  for (let linear = 0; linear < nx * ny * nz; ++linear) {
    place.id[0] = BigInt(linear % nx);
    place.id[1] = BigInt(Math.floor(linear / nx) % ny);
    place.id[2] = BigInt(Math.floor(linear / nx / ny));
    place.pages = launch.pages;
    bytes.fill(0, 0, launch.pagesMax * 65536);
    const instance = new WebAssembly.Instance(module, {hpvm});
    try {
      instance.exports.f(...values);
    } catch (error) {
      return {code: TrapCode(error), linear, bytes};
    }
  }
  return {code: 0, linear: 0, bytes};
}

function Answer(launch) {
  let result;
  try {
    result = RunInstances(launch, new WebAssembly.Module(launch.module));
  } catch (error) {
    const text = Buffer.from(String(error.message));
    const head = Buffer.alloc(8);
    head.writeUInt32LE(kRefused, 0);
    head.writeUInt32LE(text.length, 4);
    return Buffer.concat([head, text]);
  }
  const parts = [Buffer.alloc(8)];
  parts[0].writeUInt32LE(result.code, 0);
  parts[0].writeUInt32LE(result.linear, 4);
  for (const param of launch.params) {
    const base = Number(param.bits);
    if (param.kind === 8) parts.push(Buffer.from(result.bytes.slice(base, base + param.bytes.length)));
  }
  return Buffer.concat(parts);
}

for (;;) {
  const length = ReadAll(4).readUInt32LE(0);
  WriteAll(Answer(ParseLaunch(ReadAll(length))));
}
