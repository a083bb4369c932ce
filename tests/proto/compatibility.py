#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the released files of proto/hpvm/v1 keep all items of earlier releases (proto/README.md has the rules).

    compatibility.py [PROTO_FOLDER [GOLDEN]]

Exits with 1 and prints a sentence for each break. The script lists additions; HPVMD_BLESS=1 writes them to the golden file if nothing is broken.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/golden/proto/hpvm_v1.txt"
HEADING = """# The public interface as released; tests/proto/compatibility.py compares with it and writes it (HPVMD_BLESS=1).
"""
FIELD = descriptor_pb2.FieldDescriptorProto


class Broken(Exception):
    """The files cannot be read."""


def descriptors(folder, names):
    with tempfile.TemporaryDirectory() as place:
        out = pathlib.Path(place) / "set"
        done = subprocess.run(["protoc", f"--proto_path={folder}", f"--descriptor_set_out={out}", *[f"hpvm/v1/{name}.proto" for name in names]],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise Broken(done.stderr.strip())
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file


def released(folder):
    lines = (folder / "released.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def type_of(field, message):
    """Returns the type as the .proto has it; it changes with the wire format and with field presence."""
    name = field.type_name[1:] or FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FIELD.LABEL_REPEATED:
        return f"repeated {name}"
    if field.proto3_optional:
        return f"optional {name}"
    return f"oneof {message.oneof_decl[field.oneof_index].name}: {name}" if field.HasField("oneof_index") else name


def of_message(message, scope, found):
    """Adds {item: {key: value}}: a message's fields by number, and its reserved numbers and names."""
    name = f"{scope}.{message.name}"
    item = found.setdefault(f"message {name}", {})
    for field in message.field:
        item[str(field.number)] = f"{field.name}: {type_of(field, message)}"
    of_reserved(item, message.reserved_range, message.reserved_name, 1)
    for inner in message.nested_type:
        of_message(inner, name, found)
    for inner in message.enum_type:
        of_enum(inner, name, found)


def of_enum(enum, scope, found):
    item = found.setdefault(f"enum {scope}.{enum.name}", {})
    for value in enum.value:
        item[str(value.number)] = ", ".join(filter(None, (item.get(str(value.number)), value.name)))  # Aliases.
    of_reserved(item, enum.reserved_range, enum.reserved_name, 0)


def of_reserved(item, ranges, names, beyond):
    """Adds reserved numbers and names. `beyond` is the distance from a range's last number to its end."""
    for part in ranges:
        item[f"reserved {part.start} to {part.end - beyond}"] = ""
    for name in names:
        item[f"reserved {name}"] = ""


def described(folder, names):
    found = {}
    for file in descriptors(folder, names):
        for message in file.message_type:
            of_message(message, file.package, found)
        for enum in file.enum_type:
            of_enum(enum, file.package, found)
        for service in file.service:
            item = found.setdefault(f"service {file.package}.{service.name}", {})
            for method in service.method:
                asks, answers = (("stream " if streams else "") + kind[1:] for streams, kind in
                                 ((method.client_streaming, method.input_type), (method.server_streaming, method.output_type)))
                item[method.name] = f"{asks} -> {answers}"
    return found


def written(found):
    lines = []
    for item in sorted(found):
        lines.append(item)
        lines += [f"  {key} = {value}" if value else f"  {key}" for key, value in
                  sorted(found[item].items(), key=lambda pair: (not pair[0].isdigit(), int(pair[0]) if pair[0].isdigit() else 0, pair[0]))]
    return HEADING + "\n".join(lines) + "\n"


def read(text):
    found, item = {}, None
    for line in text.splitlines():
        if line.startswith("  "):
            key, _, value = line.strip().partition(" = ")
            item[key] = value
        elif line and not line.startswith("#"):
            item = found.setdefault(line, {})
    return found


def is_reserved(item, number, name):
    for key in item:
        words = key.split()
        if words[0] == "reserved":
            if words[1:] == [name] or (len(words) == 4 and number.isdigit() and int(words[1]) <= int(number) <= int(words[3])):
                return True
    return False


def moved(was, now, key):
    """Returns the present number of the item that had this number, if it has another."""
    name = was[key].split(":")[0]
    return next((other for other, value in now.items() if other not in was and value.split(":")[0] == name), None)


def compare_item(item, was, now):
    """Yields a sentence for each break of one message, enumeration or service."""
    kind = {"message": "field", "enum": "value", "service": "method"}[item.split()[0]]
    name = item.split()[1]
    for key, value in was.items():
        if key.startswith("reserved "):
            continue  # The fields that use reserved numbers are judged below; a name may be reserved in another range.
        if key not in now:
            where = moved(was, now, key) if kind != "method" else None
            what = f"method {name}.{key}" if kind == "method" else f"{kind} {value.split(':')[0]} = {key} of {name}"
            yield (f"The {what} has the number {where} now; a number stays." if where is not None else
                   f"The {what} is gone; what a release had stays, and is deprecated instead.")
        elif now[key] != value:
            if kind == "method":
                yield f"The method {name}.{key} is ({now[key]}) and was ({value}); a method's messages and streams stay."
            elif kind == "value":
                yield f"The value {key} of {name} is called {now[key]} and was {value}; a name stays, as JSON and sources have it."
            elif now[key].split(": ", 1)[0] != value.split(": ", 1)[0]:
                yield f"The field {key} of {name} is called {now[key].split(':')[0]} and was {value.split(':')[0]}; a name stays, as JSON and sources have it."
            else:
                yield (f"The field {value.split(':')[0]} = {key} of {name} is \"{now[key].split(': ', 1)[1]}\" and was \"{value.split(': ', 1)[1]}\";"
                       " a field's type, and whether it is repeated, optional or in a oneof, stay.")
    for key, value in now.items():
        if key not in was and not key.startswith("reserved ") and is_reserved(was, key, value.split(":")[0]):
            yield f"The {kind} {value.split(':')[0]} = {key} of {name} takes what is reserved; a reserved number or name is not used again."


def compare(was, now):
    """Returns the breaks as sentences, and the names of additions."""
    broken, new = [], []
    for item, keys in was.items():
        if item not in now:
            broken.append(f"The {item} is gone; what a release had stays, and is deprecated instead.")
        else:
            broken += compare_item(item, keys, now[item])
    for item, keys in now.items():
        if item not in was:
            new.append(item)
        else:
            new += [f"{item}: {key} = {value}" if value else f"{item}: {key}" for key, value in keys.items() if key not in was[item]]
    return broken, new


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "proto"
    golden = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else GOLDEN
    names = released(folder)
    try:
        now = described(folder, names)
    except Broken as why:
        sys.exit(f"compatibility: the files cannot be read: {why}")
    others = sorted(path.stem for path in (folder / "hpvm/v1").glob("*.proto") if path.stem not in names)
    was = read(golden.read_text()) if golden.exists() else {}
    broken, new = compare(was, now)
    for sentence in broken:
        print(f"compatibility: {sentence}", file=sys.stderr)
    if broken:
        sys.exit(1)
    if os.environ.get("HPVMD_BLESS"):
        golden.write_text(written(now))
    elif new:
        print("new, for HPVMD_BLESS=1 before a release:\n  " + "\n  ".join(new))
    print(f"compatibility: {len(now)} messages, enumerations and services keep what they had; not released: {', '.join(others) or 'none'}")


if __name__ == "__main__":
    main()
