// SPDX-License-Identifier: Apache-2.0
// Levenshtein's distance of all pairs of words: the number of letters to change, add or remove to turn one word into
// the other. One instance per pair. Slices check their indices: a word that is too long for its row ends the run with
// this file's name and line.

#[link(wasm_import_module = "hpvm")]
extern "C" {
    fn instance_id(dimension: u32) -> u32;
}

const LETTERS_MAX: usize = 31;

/// `table` has a row of `stride` bytes per word: its length, and its letters.
fn word(table: &[u8], stride: usize, index: usize) -> &[u8] {
    let row = &table[index * stride..(index + 1) * stride];
    &row[1..1 + row[0] as usize]
}

fn distance(a: &[u8], b: &[u8]) -> u8 {
    let mut row = [0u8; LETTERS_MAX + 1]; // row[j]: distance of the letters of `a` so far to the first j of `b`.
    for (j, cell) in row.iter_mut().enumerate() {
        *cell = j as u8;
    }
    for (i, letter) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i as u8 + 1;
        for (j, other) in b.iter().enumerate() {
            let changed = corner + (letter != other) as u8;
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// # Safety
/// The service calls this function with `words` of count * stride bytes and `out` of count * count bytes.
#[no_mangle]
pub unsafe extern "C" fn edit_distances(words: *const u8, out: *mut u8, count: u32, stride: u32) {
    let (x, y) = (instance_id(0) as usize, instance_id(1) as usize);
    let (count, stride) = (count as usize, stride as usize);
    let words = core::slice::from_raw_parts(words, count * stride);
    *out.add(y * count + x) = distance(word(words, stride, y), word(words, stride, x));
}
