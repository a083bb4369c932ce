// SPDX-License-Identifier: Apache-2.0
// What every fixed-width SIMD instruction computes, asked of Node's V8. Writes v128.golden, which is committed:
//   node generate.mjs /usr/include/wabt/opcode.def > v128.golden
// The argument is wabt's table of instructions, of which names, codes and types are read.
//
// "op NAME" begins an instruction; the lines behind it are cases: the immediate, the blocks of 16 bytes that it reads,
// and the block that holds the result, in hexadecimal, lowest address first. Memory is
//   0 operand 0, 16 operand 1, 32 operand 2 (zero where there are fewer), 48 the result, filled with 55 before.
// Operands are read from their block's first bytes; the address operand of a load is 0, of a store 48. The immediate is
// "-", a lane, 16 bytes, or for memory "OFFSET" or "OFFSET:LANE".
import {readFileSync} from 'node:fs';

const TYPES = {
  I32: {load: [0x28, 2], store: [0x36, 2]},
  I64: {load: [0x29, 3], store: [0x37, 3]},
  F32: {load: [0x2a, 2], store: [0x38, 2]},
  F64: {load: [0x2b, 3], store: [0x39, 3]},
  V128: {load: [0xfd, 0, 4], store: [0xfd, 11, 4]},
};
const RESULT = 48;
const SHAPES = {i8x16: 1, i16x8: 2, i32x4: 4, i64x2: 8, f32x4: 4, f64x2: 8};

let state = 0x9e3779b9;  // mulberry32.
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return (t ^ (t >>> 14)) >>> 0;
}
const pick = (list) => list[random() % list.length];

function leb(n) {
  const bytes = [];
  do {
    bytes.push((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
    n >>>= 7;
  } while (n > 0);
  return bytes;
}
function signedLeb(n) {
  const bytes = [];
  for (;;) {
    const byte = n & 0x7f;
    n >>= 7;
    const last = (n === 0 && (byte & 0x40) === 0) || (n === -1 && (byte & 0x40) !== 0);
    bytes.push(last ? byte : byte | 0x80);
    if (last) return bytes;
  }
}

function readTable(path) {
  const table = [];
  const row = /WABT_OPCODE\(\s*(\w+),\s*(\w+),\s*(\w+),\s*(\w+),\s*(\d+),\s*0xfd,\s*0x(\w+),\s*\w+,\s*"([^"]+)"/g;
  for (const [, result, a, b, c, bytes, code, name] of readFileSync(path, 'utf8').matchAll(row)) {
    if (parseInt(code, 16) < 0x100) {
      const params = [a, b, c].filter((type) => type !== '___');
      table.push({name, code: parseInt(code, 16), params, result: result === '___' ? null : result, bytes: +bytes});
    }
  }
  return table;
}

// The immediates to try, each with its bytes in the instruction.
function immediates(op) {
  if (op.bytes > 0) {
    const lanes = /_lane$/.test(op.name) ? [...Array(16 / op.bytes).keys()] : [null];
    return lanes.flatMap((lane) => [0, op.bytes < 16 ? 3 : 5].filter((offset) => op.result || offset + op.bytes <= 16)
        .map((offset) => ({
          text: lane === null ? `${offset}` : `${offset}:${lane}`,
          bytes: [0, ...leb(offset), ...(lane === null ? [] : [lane])],
        })));
  }
  if (/_lane(_[su])?$/.test(op.name)) {
    return [...Array(16 / SHAPES[op.name.split('.')[0]]).keys()].map((lane) => ({text: `${lane}`, bytes: [lane]}));
  }
  if (op.name === 'v128.const' || op.name === 'i8x16.shuffle') {
    const most = op.name === 'v128.const' ? 256 : 32;
    const wide = [2, 4, 8].flatMap((size) => [0, 1].map(() => [...Array(16 / size)].flatMap(() => {
      const lane = random() % (32 / size);
      return [...Array(size).keys()].map((i) => lane * size + i);
    })));
    const lists = [...Array(12)].map(() => [...Array(16)].map(() => random() % most));
    return [...lists, ...wide].map((bytes) => ({text: Buffer.from(bytes).toString('hex'), bytes}));
  }
  return [{text: '-', bytes: []}];
}

// A module that computes the instruction once on what is in memory.
function compile(op, immediate) {
  const load = (type, at) => [0x41, 0, ...TYPES[type].load, ...leb(at)];
  const address = (at) => [0x41, ...signedLeb(at)];
  const body = op.result ? address(RESULT) : [];
  op.params.forEach((type, i) => {
    const isAddress = op.bytes > 0 && i === 0;
    body.push(...(isAddress ? address(op.result ? 0 : RESULT) : load(type, 16 * i)));
  });
  body.push(0xfd, ...leb(op.code), ...immediate.bytes);
  if (op.result) body.push(...TYPES[op.result].store, 0);
  const code = [0, ...body, 0x0b];
  const section = (id, bytes) => [id, ...leb(bytes.length), ...bytes];
  const memory = new WebAssembly.Memory({initial: 1});
  const module = new WebAssembly.Module(new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, [1, 0x60, 0, 0]),
    ...section(2, [1, 1, 0x6d, 1, 0x6d, 2, 0, 1]), ...section(3, [1, 0]), ...section(7, [1, 1, 0x66, 0, 0]),
    ...section(10, [1, ...leb(code.length), ...code]),
  ]));
  const run = new WebAssembly.Instance(module, {m: {m: memory}}).exports.f;
  return (blocks) => {
    const bytes = Buffer.from(memory.buffer, 0, RESULT + 16);
    bytes.fill(0, 0, RESULT).fill(0x55, RESULT);
    blocks.forEach((block, i) => block.copy(bytes, 16 * i));
    run();
    return bytes.toString('hex', RESULT);
  };
}

const INTEGERS = [0n, 1n, -1n, 2n, -2n];
function integerLane(size) {
  const top = 1n << BigInt(8 * size - 1);
  const half = 1n << BigInt(4 * size);
  return pick([...INTEGERS, top, top - 1n, top + 1n, half, half - 1n, half >> 1n, -(half >> 1n), -half,
    BigInt(random()) << 32n | BigInt(random()), BigInt(random()), BigInt(random() % 256)]);
}
const FLOATS = [0, 0.5, 0.25, 1, 1.5, 2.5, 3.5, 0.1, 7.999999, 100.7, 127, 128, 32767.5, 8388607.5, 8388609, 16777217,
  2147483647, 2147483648, 2147483904, 4294967295, 4294967296, 4294967295.5, 9223372036854775807, 1e10, 1e19, 1e38,
  3.4028234663852886e38, 1.7e308, 1.1754943508222875e-38, 1e-40, 1.401298464324817e-45, 2.2250738585072014e-308,
  5e-324, 4503599627370497.5, Infinity];
const NANS = {4: [0x7fc00000n, 0x7f800001n, 0x7fc12345n, 0xffc00000n, 0xffa00001n],
  8: [0x7ff8000000000000n, 0x7ff0000000000001n, 0xfff8000000012345n, 0xfff4000000000000n]};
function floatLane(size) {
  const view = new DataView(new ArrayBuffer(8));
  if (random() % 6 === 0) return pick(NANS[size]);
  if (random() % 8 === 0) return BigInt(random()) << 32n | BigInt(random());
  const value = pick(FLOATS) * (random() % 2 ? 1 : -1);
  size === 4 ? view.setFloat32(0, value) : view.setFloat64(0, value);
  return size === 4 ? BigInt(view.getUint32(0)) : view.getBigUint64(0);
}

// Sixteen bytes of lanes of one of the shapes that the instruction's name has.
function block(op, type, index) {
  const shapes = op.name.match(/[if]\d+x\d+/g) ?? ['i8x16', 'i32x4', 'i64x2'];
  const shape = type === 'V128' ? pick(shapes) : {I32: 'i32x4', I64: 'i64x2', F32: 'f32x4', F64: 'f64x2'}[type];
  const bytes = Buffer.alloc(16);
  if (op.name === 'i8x16.swizzle' && index === 1) {
    for (let i = 0; i < 16; ++i) bytes[i] = random() % (random() % 4 === 0 ? 256 : 20);
    return bytes;
  }
  if (/all_true|any_true/.test(op.name)) {  // Otherwise nearly all would be of one kind.
    for (let i = 0; i < 16; ++i) bytes[i] = random() % 3 === 0 ? 0 : pick([1, 128, 255]);
    return random() % 8 === 0 ? bytes.fill(0) : bytes;
  }
  const size = SHAPES[shape];
  for (let at = 0; at < 16; at += size) {
    let lane = shape[0] === 'f' ? floatLane(size) : integerLane(size);
    for (let i = 0; i < size; ++i, lane >>= 8n) bytes[at + i] = Number(lane & 0xffn);
  }
  return bytes;
}

// The right-hand vector often repeats lanes of the left one, so that comparisons find equals.
function blocks(op) {
  const list = op.params.map((type, i) => block(op, type, i));
  if (op.params[1] === 'V128' && op.params[0] === 'V128' && random() % 3 === 0) {
    const at = 8 * (random() % 2);
    list[0].copy(list[1], at, at, at + 8);
  }
  return list;
}

const lines = [];
for (const op of readTable(process.argv[2])) {
  lines.push(`op ${op.name}`);
  const choices = immediates(op);
  const size = Math.max(...(op.name.match(/[if]\d+x\d+/g) ?? ['i32x4']).map((shape) => SHAPES[shape]));
  const cases = Math.ceil((8 + 4 * size) / choices.length);
  for (const immediate of choices) {
    const run = compile(op, immediate);
    for (let i = 0; i < (op.params.length > 0 ? cases : 1); ++i) {
      const inputs = blocks(op);
      lines.push([immediate.text, ...inputs.map((b) => b.toString('hex')), run(inputs)].join(' '));
    }
  }
}
process.stdout.write(lines.join('\n') + '\n');
