// SPDX-License-Identifier: Apache-2.0
// Random modules of binaryen's: wasm-opt -ttf makes them from bytes of a seed, V8 runs them and says what must come
// out, hpvm-wast runs the same calls on both engines.
//
//   node ttf.js --seeds 0..999 --wast PATH/hpvm-wast --folder WORK [--found FOLDER] [--log FILE] [--commit NAME]
//               [--minutes N: begins nothing after that]
//
// Exit status 1 when an engine differs; the module and its script are then copied to FOLDER.
'use strict';
const childProcess = require('child_process');
const fs = require('fs');
const path = require('path');

const kFeatures = ['--mvp-features', '--enable-bulk-memory', '--enable-nontrapping-float-to-int', '--enable-sign-ext',
                   '--enable-mutable-globals', '--enable-multivalue', '--enable-simd'];
const kChunk = 40;
const kCallsMax = 24;

// What the modules import: each log function mixes its value into a sum, so that calls' order and values are compared.
const kSupport = `(module
  (global $sum (mut i64) (i64.const 0))
  (func $mix (param i64)
    (global.set $sum (i64.add (i64.rotl (global.get $sum) (i64.const 7)) (local.get 0))))
  (func (export "log-i32") (param i32) (call $mix (i64.extend_i32_u (local.get 0))))
  (func (export "log-i64") (param i64) (call $mix (local.get 0)))
  (func (export "log-f32") (param f32) (call $mix (i64.extend_i32_u (i32.reinterpret_f32 (local.get 0)))))
  (func (export "log-f64") (param f64) (call $mix (i64.reinterpret_f64 (local.get 0))))
  (func (export "log-v128") (param v128)
    (call $mix (i64x2.extract_lane 0 (local.get 0))) (call $mix (i64x2.extract_lane 1 (local.get 0))))
  (func (export "sum") (result i64) (global.get $sum)))`;

function Options() {
  const options = {folder: '/tmp/hpvm-ttf', found: '', log: '', commit: 'unknown', wast: 'hpvm-wast', seeds: '0..99', minutes: 1e9};
  for (let i = 2; i + 1 < process.argv.length; i += 2) options[process.argv[i].slice(2)] = process.argv[i + 1];
  [options.first, options.last] = options.seeds.split('..').map(Number);
  return options;
}

// SplitMix64.
class Random {
  constructor(seed) { this.state = BigInt(seed); }
  Next() {
    const cut = (x) => BigInt.asUintN(64, x);
    this.state = cut(this.state + 0x9e3779b97f4a7c15n);
    let z = this.state;
    z = cut((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = cut((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return z ^ (z >> 31n);
  }
  Below(count) { return Number(this.Next() % BigInt(count)); }
}

// The signatures of exported functions, from the module's bytes: JavaScript does not tell them.
function Signatures(bytes) {
  let at = 8;
  const Leb = () => {
    let value = 0;
    for (let shift = 0;; shift += 7) {
      const byte = bytes[at++];
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  };
  const List = (item) => Array.from({length: Leb()}, item);
  const Name = () => {
    const length = Leb();
    at += length;
    return bytes.toString('utf8', at - length, at);
  };
  const kTypes = {0x7f: 'i32', 0x7e: 'i64', 0x7d: 'f32', 0x7c: 'f64', 0x7b: 'v128'};
  const Type = () => kTypes[bytes[at++]] || 'other';
  const Limits = () => { const flags = Leb(); Leb(); if (flags & 1) Leb(); };
  let types = [], functions = [], found = [];
  while (at < bytes.length) {
    const id = bytes[at++];
    const end = Leb() + at;
    if (id === 1) types = List(() => { at++; return {params: List(Type), results: List(Type)}; });
    if (id === 2) {
      List(() => {
        Name(), Name();
        const kind = bytes[at++];
        if (kind === 0) functions.push(Leb());
        else if (kind === 1) { at++; Limits(); }
        else if (kind === 2) Limits();
        else at += 2;
      });
    }
    if (id === 3) functions = functions.concat(List(Leb));
    if (id === 7) found = List(() => [Name(), bytes[at++], Leb()]);
    at = end;
  }
  return found.filter((e) => e[1] === 0).map(([name, , index]) => ({name, ...types[functions[index]]}));
}

const view = new DataView(new ArrayBuffer(8));
// Bits of an argument or result, as the scripts write them.
function Bits(type, value) {
  switch (type) {
    case 'i32': return String(value >>> 0);
    case 'i64': return String(BigInt.asUintN(64, value));
    case 'f32': view.setFloat32(0, value); return String(view.getUint32(0));
    default: view.setFloat64(0, value); return String(view.getBigUint64(0));
  }
}
const Written = (type, value) =>
    ({type, value: (type === 'f32' || type === 'f64') && Number.isNaN(value) ? 'nan:arithmetic' : Bits(type, value)});

function Argument(type, random) {
  const small = random.Below(4) > 0;
  switch (type) {
    case 'i32': return small ? random.Below(64) - 8 : Number(BigInt.asIntN(32, random.Next()));
    case 'i64': return small ? BigInt(random.Below(64) - 8) : BigInt.asIntN(64, random.Next());
    default: return small ? random.Below(64) / 4 - 4 : Math.fround((random.Below(1000) - 500) * 1e10);
  }
}

// The specification's words, or what several of them begin with where V8 does not tell them apart.
const kTraps = [
  [/unreachable/, 'unreachable'],
  [/memory access out of bounds/, 'out of bounds memory access'],
  [/divide by zero|remainder by zero/, 'integer divide by zero'],
  [/divide result unrepresentable/, 'integer overflow'],
  [/float unrepresentable/, 'in'],
  [/table index is out of bounds/, 'undefined element'],
  [/null function or function signature/, ''],
  [/table access out of bounds|table index out of bounds/, 'out of bounds table access'],
];

// Runs the module in V8. The script's commands, or null where V8 itself gives up.
function Record(seed, file, support, random) {
  const bytes = fs.readFileSync(file);
  const host = new WebAssembly.Instance(support);
  const commands = [{type: 'module', line: seed, name: '$support', filename: 'support.wasm'},
                    {type: 'register', line: seed, name: '$support', as: 'fuzzing-support'}];
  let instance;
  try {
    instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), {'fuzzing-support': host.exports});
  } catch (error) {
    return null;
  }
  commands.push({type: 'module', line: seed, name: '$m', filename: path.basename(file)});
  const functions = Signatures(bytes).filter((f) => [...f.params, ...f.results].every((t) => /^[if]/.test(t)));
  for (const callee of functions.slice(0, kCallsMax)) {
    const values = callee.params.map((type) => Argument(type, random));
    const action = {type: 'invoke', module: '$m', field: callee.name,
                    args: values.map((value, i) => ({type: callee.params[i], value: Bits(callee.params[i], value)}))};
    try {
      const got = instance.exports[callee.name](...values);
      const results = callee.results.length === 0 ? [] : callee.results.length === 1 ? [got] : [...got];
      commands.push({type: 'assert_return', line: seed, action,
                     expected: results.map((value, i) => Written(callee.results[i], value))});
    } catch (error) {
      const known = kTraps.find(([pattern]) => pattern.test(error.message));
      if (!known) break;  // The stack's depth is nobody's promise.
      commands.push({type: 'assert_trap', line: seed, action, text: known[1], expected: []});
    }
  }
  commands.push({type: 'assert_return', line: seed,
                 action: {type: 'invoke', module: '$support', field: 'sum', args: []},
                 expected: [Written('i64', host.exports.sum())]});
  return commands;
}

// Makes one module and its script. False where there is none for this seed.
function Make(seed, options, support) {
  const random = new Random(seed);
  const input = Buffer.alloc(200 + random.Below(1400));
  for (let i = 0; i + 8 <= input.length; i += 8) input.writeBigUInt64LE(random.Next(), i);
  const base = path.join(options.folder, `ttf-${seed}`);
  fs.writeFileSync(base + '.bin', input);
  const made = childProcess.spawnSync('wasm-opt', ['-ttf', '--denan', base + '.bin', '-o', base + '.wasm', ...kFeatures],
                                      {stdio: 'ignore'});
  fs.unlinkSync(base + '.bin');
  if (made.status !== 0) return false;
  const commands = Record(seed, base + '.wasm', support, random);
  if (!commands) return false;
  fs.writeFileSync(base + '.json', JSON.stringify({source_filename: `ttf-${seed}.wast`, commands}));
  return true;
}

// Runs a chunk's scripts; gives the names of those that fail.
function RunEngine(engine, bases, options) {
  const run = childProcess.spawnSync(options.wast, ['--engine', engine, ...bases.map((b) => b + '.json')],
                                     {encoding: 'utf8', maxBuffer: 1 << 28, timeout: 600000});
  if (run.error) throw run.error;
  const failed = new Map();
  const seen = new Set();
  for (const line of run.stdout.split('\n')) {
    const total = /^(.*\.json): (\d+) passed, (\d+) failed/.exec(line);
    if (!total) continue;
    seen.add(total[1]);
    if (total[3] !== '0') failed.set(total[1], run.stdout.split('\n').find((l) => l.includes(path.basename(total[1], '.json'))));
  }
  // A process that died says nothing of the script it was at, and later ones: run them one by one.
  const unseen = bases.filter((b) => !seen.has(b + '.json'));
  if (bases.length === 1) {
    if (run.signal || (run.status !== 0 && failed.size === 0)) {
      failed.set(bases[0] + '.json', `hpvm-wast ended with ${run.signal || run.status}: ${run.stdout.slice(0, 300)}`);
    }
  } else {
    for (const base of unseen) for (const [k, v] of RunEngine(engine, [base], options)) failed.set(k, v);
  }
  return failed;
}

function Main() {
  const options = Options();
  fs.mkdirSync(options.folder, {recursive: true});
  const wat = path.join(options.folder, 'support.wat');
  fs.writeFileSync(wat, kSupport);
  childProcess.execFileSync('wat2wasm', [wat, '-o', path.join(options.folder, 'support.wasm')]);
  const support = new WebAssembly.Module(fs.readFileSync(path.join(options.folder, 'support.wasm')));
  const start = Date.now();
  let modules = 0, bytes = 0, calls = 0, differences = 0;
  let first = options.first;
  for (; first <= options.last && Date.now() - start < options.minutes * 60000; first += kChunk) {
    const bases = [];
    for (let seed = first; seed <= Math.min(options.last, first + kChunk - 1); ++seed) {
      if (!Make(seed, options, support)) continue;
      const base = path.join(options.folder, `ttf-${seed}`);
      bases.push(base);
      bytes += fs.statSync(base + '.wasm').size;
      calls += JSON.parse(fs.readFileSync(base + '.json')).commands.length - 3;
    }
    modules += bases.length;
    const failed = new Set();
    for (const engine of ['interp', 'cpu']) {
      for (const [script, why] of RunEngine(engine, bases, options)) {
        failed.add(script);
        console.log(`DIFFERENCE ${path.basename(script)} on ${engine}: ${why}`);
      }
    }
    differences += failed.size;
    for (const base of bases) {
      for (const extension of ['.json', '.wasm']) {
        if (options.found && failed.has(base + '.json')) {
          fs.copyFileSync(base + extension, path.join(options.found, path.basename(base) + extension));
        }
        fs.unlinkSync(base + extension);
      }
    }
  }
  const summary = `commit ${options.commit} wasm-opt -ttf seeds ${options.first}..${Math.min(first - 1, options.last)}: ${modules} modules (${bytes} bytes, ` +
      `${calls} calls) on both engines; ${differences} differences; ${((Date.now() - start) / 1000).toFixed(1)} s`;
  console.log(summary);
  if (options.log) fs.appendFileSync(options.log, summary + '\n');
  process.exit(differences === 0 ? 0 : 1);
}

Main();
