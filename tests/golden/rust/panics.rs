// SPDX-License-Identifier: Apache-2.0
// Typical Rust: slices with checked indices, an option that is unwrapped, a panic with a text.
use std::slice;

#[link(wasm_import_module = "hpvm")]
extern "C" {
    fn instance_id(dimension: u32) -> u32;
}

#[no_mangle]
pub unsafe extern "C" fn gather(x: *const i32, out: *mut i32, count: u32) {
    let i = instance_id(0) as usize;
    let x = slice::from_raw_parts(x, count as usize);
    let out = slice::from_raw_parts_mut(out, count as usize);
    out[i] = x[x[i] as usize]; // LINE gather
}

#[no_mangle]
pub unsafe extern "C" fn root(x: *const i32, out: *mut i32, count: u32) {
    let i = instance_id(0) as usize;
    let x = slice::from_raw_parts(x, count as usize);
    let out = slice::from_raw_parts_mut(out, count as usize);
    let value = *x.get(i).unwrap(); // LINE unwrap
    if value < 0 {
        panic!("there is no root of {} at {}", value, i); // LINE panic
    }
    out[i] = (value as f32).sqrt() as i32; // LINE store
}
