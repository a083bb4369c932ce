# SPDX-License-Identifier: Apache-2.0
"""Functions that the drivers of the examples share: the command line, the line with the result, and pictures as PNG
files."""

import argparse
import pathlib
import struct
import sys
import zlib

import numpy as np

# Colours from dark to bright, as red, green and blue at equal distances.
RAMP = np.array([[24, 15, 60], [72, 29, 111], [134, 45, 107], [196, 70, 82], [238, 121, 49], [250, 191, 66],
                 [252, 253, 191]])
# Colours that are easy to tell apart.
DISTINCT = np.array([[76, 120, 168], [245, 133, 24], [84, 162, 75], [228, 87, 86], [114, 183, 178], [178, 121, 162],
                     [238, 202, 59], [157, 117, 93], [255, 157, 166], [121, 112, 110]], np.uint8)


def options(text):
    """Parses the options of a driver."""
    parser = argparse.ArgumentParser(description=text.strip().splitlines()[0])
    parser.add_argument("--picture", metavar="FILE", help="write a picture of the result, a PNG file")
    parser.add_argument("--inputs", metavar="FOLDER", help="write the graph's inputs there as .npy files, for hpvmctl")
    return parser.parse_args()


def keep(chosen, **inputs):
    """Writes the inputs if --inputs names a folder."""
    if chosen.inputs:
        folder = pathlib.Path(chosen.inputs)
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in inputs.items():
            np.save(folder / f"{name}.npy", values)


def finish(name, is_right, text):
    """Prints the line with the result, and ends the program."""
    print(f"{name}: {'ok' if is_right else 'WRONG'}: {text}")
    sys.exit(0 if is_right else 1)


# --- Pixels: arrays of u8, [height, width] for grey and [height, width, 3] for colour ---

def coloured(values, low=None, high=None):
    """Returns numbers as colours of RAMP."""
    low = np.min(values) if low is None else low
    high = np.max(values) if high is None else high
    place = np.clip((values - low) / ((high - low) or 1), 0, 1)
    stops = np.linspace(0, 1, len(RAMP))
    return np.stack([np.interp(place, stops, RAMP[:, c]) for c in range(3)], -1).round().astype(np.uint8)


def enlarged(pixels, factor):
    """Returns the picture with each pixel as a square."""
    return pixels.repeat(factor, 0).repeat(factor, 1)


def beside(*pictures, gap=6):
    """Returns pictures of one height in a row, in colour, with white between them."""
    parts = []
    for picture in pictures:
        if parts:
            parts.append(np.full((picture.shape[0], gap, 3), 255, np.uint8))
        parts.append(picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, 2))
    return np.concatenate(parts, 1)


def blank(height, width, colour=(255, 255, 255)):
    return np.full((height, width, 3), colour, np.uint8)


def line(pixels, rows, columns, colour):
    """Draws lines through the points, in place. Rows and columns may be fractions."""
    for (r0, c0), (r1, c1) in zip(zip(rows[:-1], columns[:-1]), zip(rows[1:], columns[1:])):
        steps = int(max(abs(r1 - r0), abs(c1 - c0))) + 1
        dots(pixels, np.linspace(r0, r1, steps + 1), np.linspace(c0, c1, steps + 1), colour)


def dots(pixels, rows, columns, colour, size=1):
    """Draws squares at the points, in place, without the parts outside the picture. `colour` is one colour, or one for
    each point."""
    rows, columns = np.round(rows).astype(int), np.round(columns).astype(int)
    colours = np.broadcast_to(np.asarray(colour, np.uint8), (len(rows), 3))
    for down in range(size):
        for right in range(size):
            r, c = rows + down - size // 2, columns + right - size // 2
            inside = (r >= 0) & (r < pixels.shape[0]) & (c >= 0) & (c < pixels.shape[1])
            pixels[r[inside], c[inside]] = colours[inside]


def write_png(path, pixels):
    """Writes a PNG file: grey, colour, or with a palette if there are at most 256 colours."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.ascontiguousarray(pixels, np.uint8)
    height, width = pixels.shape[:2]
    kind, palette = 0, b""
    if pixels.ndim == 3:
        kind = 2
        colours, places = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
        if len(colours) <= 256:
            kind, palette, pixels = 3, colours.tobytes(), places.reshape(height, width).astype(np.uint8)
    rows = pixels.reshape(height, -1).astype(np.int16)
    step = 3 if kind == 2 else 1
    left, above, corner = np.zeros_like(rows), np.zeros_like(rows), np.zeros_like(rows)
    left[:, step:], above[1:], corner[1:, step:] = rows[:, :-step], rows[:-1], rows[:-1, :-step]
    guess = left + above - corner  # The format's filter 4 predicts the neighbour that is nearest to this value.
    errors = np.stack([abs(guess - near) for near in (left, above, corner)])
    nearest = np.choose(errors.argmin(0), [left, above, corner])
    packed = []
    for number, predicted in ((0, np.zeros_like(rows)), (2, above), (4, nearest)):
        filtered = np.hstack([np.full((height, 1), number, np.uint8), ((rows - predicted) & 255).astype(np.uint8)])
        packed.append(zlib.compress(filtered.tobytes(), 9))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)))
        if palette:
            file.write(chunk(b"PLTE", palette))
        file.write(chunk(b"IDAT", min(packed, key=len)) + chunk(b"IEND", b""))
