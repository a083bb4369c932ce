#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates docs/CONFIGURATION.md and the comments of deploy/hpvmd.toml.

    configuration.py [--write]

Each fact has one source:

    keys, bounds, choices, restart, order between keys   server/config/config.cc (ServiceKeys, WorkKeys, AccessKeys, kOrdered)
    types, descriptions, the order of sections and keys  schemas/config.schema.json
    values as people write them (0o600)                  deploy/hpvmd.toml

The script fails when two sources disagree, when a key is missing in one of them, or when a key has no description. ConfigTest compares defaults with the code.
"""

import json
import re
import tomllib

import common
from common import ROOT, Disagreement

CODE = "server/config/config.cc"
SCHEMA = "schemas/config.schema.json"
EXAMPLE = "deploy/hpvmd.toml"
DOCUMENT = "docs/CONFIGURATION.md"

CONSTANTS = {"kKiB": 2**10, "kMiB": 2**20, "kGiB": 2**30, "kTiB": 2**40, "kPiB": 2**50, "kDayMs": 86_400_000}
# The unit is the last part of a key's name, before "max"; other integers are counts.
UNITS = [(r"_ms(_max)?$", "milliseconds"), (r"bytes_per_second(_max)?$", "bytes per second"), (r"(^|_)bytes(_max)?$", "bytes"),
         (r"_seconds_per_hour$", "seconds per hour"), (r"_seconds_max$", "seconds"), (r"_per_second(_max)?$", "per second"),
         (r"_days$", "days"), (r"_c$", "degrees Celsius"), (r"_per_mille$", "per mille"), (r"^socket_mode$", "permissions")]


def limits_of_base():
    """Returns the named limits that the bounds in the code use."""
    text = (ROOT / "base/limits.h").read_text(encoding="utf-8")
    found = dict(re.findall(r"constexpr uint(?:32|64)_t (k\w+) = ([^;]+);", text))
    values = {}
    for name in found:
        try:
            values[name] = number(found[name], values)
        except Disagreement:
            pass  # Its value uses names that no bound of a key uses.
    return values


def number(text, names):
    """Returns the value of a product or sum of numbers and constants."""
    plain = re.sub(r"(?<=\d)'(?=\d)", "", text.replace("limits::", ""))
    plain = re.sub(r"\bk\w+", lambda match: str({**CONSTANTS, **names}.get(match.group(), "?")), plain)
    plain = re.sub(r"(?<=\d)(u|ull|ul)\b", "", plain)
    plain = re.sub(r"\b0(?=\d)", "0o", plain)  # A C++ octal number.
    if not re.fullmatch(r"[0-9ox +*-]+", plain):
        raise Disagreement(f"{CODE}: the bound \"{text}\" is not understood.")
    return eval(plain, {"__builtins__": {}})  # The check above admits only numbers and operators.


def code_keys():
    """Returns {"section.key": facts} of the tables."""
    text = (ROOT / CODE).read_text(encoding="utf-8")
    names = limits_of_base()
    keys = {}
    for row in re.findall(r'^      \{("[a-z]+\.[a-z_]+", &Config::.*)\},$', text, re.M):
        match = re.fullmatch(r'"([a-z]+\.[a-z_]+)", &Config::(\w+)(?:, ([^,{]+), ([^,{]+?))?(?:, (!?kRestart))?(?:, \{(.*)\})?', row)
        if match is None or match.group(2) != match.group(1).replace(".", "_"):
            raise Disagreement(f"{CODE}: the row of \"{row}\" is not understood.")
        name, _, low, high, restart, choices = match.groups()
        keys[name] = {"min": number(low or "0", names), "max": number(high or "0", names), "restart": restart == "kRestart",
                      "choices": re.findall(r'"([^"]*)"', choices or "")}
    rows = len(re.findall(r'^      \{"[^"]*", &Config::', text, re.M))
    if rows != len(keys) or rows < 100:
        raise Disagreement(f"{CODE}: {rows} rows, of which {len(keys)} are understood.")
    ordered = re.search(r"kOrdered\[\] = \{(.*?)\};", text, re.S).group(1)
    for small, large in re.findall(r'\{"([a-z_.]+)", "([a-z_.]+)"\}', ordered):
        keys[small].setdefault("at_most", []).append(large)
    return keys


def unit_of(name):
    return next((unit for pattern, unit in UNITS if re.search(pattern, name.split(".")[1])), "")


def readable(value, unit):
    """Returns a large number in binary units, or nothing."""
    if unit.startswith("bytes") and value >= 1024:
        for power, suffix in ((50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value % 2**power == 0:
                return f"{value >> power:,} {suffix}"
        return f"{value / 2**20:.3g} MiB"
    if unit == "milliseconds" and value >= 1000:
        for length, word in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")):
            if value % length == 0:
                return f"{value // length:,} {word}{'s' if value != length else ''}"
    return f"{value:,}" if value >= 10_000 else ""


def with_reading(value, unit):
    """Returns a value such as "67,108,864 (64 MiB)", "16", "0o600"."""
    if unit == "permissions":
        return f"0o{value:o}"
    text = readable(value, unit)
    return f"{value:,} ({text})" if text and text != f"{value:,}" else f"{value:,}"


class Key:
    def __init__(self, name, entry, facts, written):
        self.name, self.facts, self.written = name, facts, written
        self.type, self.default, self.description = entry["type"], entry["default"], entry.get("description", "")
        self.unit = unit_of(name) if self.type == "integer" else ""
        if len(self.description) < 10 or not self.description.endswith("."):
            raise Disagreement(f"{SCHEMA}: {name} has no description that is a sentence.")
        if re.search(r"\b(restart|reload)\b", self.description) and name != "tls.certificate":
            raise Disagreement(f"{SCHEMA}: the description of {name} says what {CODE} says with kRestart.")
        if self.type == "integer" and (entry["minimum"], entry["maximum"]) != (facts["min"], facts["max"]):
            raise Disagreement(f"{name}: the bounds in {SCHEMA} are not those in {CODE}.")
        if entry.get("enum", []) != facts["choices"]:
            raise Disagreement(f"{name}: the choices in {SCHEMA} are not those in {CODE}.")
        for other in facts.get("at_most", []):
            if f"Must not exceed {other}." not in self.description:
                raise Disagreement(f"{SCHEMA}: the description of {name} does not say \"Must not exceed {other}.\"")

    def comment(self):
        """Returns the key's comment lines in the example. ConfigTest looks for "Needs a restart." in the last line."""
        text = self.description + (" Needs\0a\0restart." if self.facts["restart"] else "")
        return common.wrap(text, "# ").replace("\0", " ")

    def facts_line(self):
        parts = [self.type + (f", {self.unit}" if self.unit else "")]
        default = f"`{self.written}`"
        if self.type == "integer" and self.unit != "permissions" and readable(self.default, self.unit):
            default += f" ({readable(self.default, self.unit)})"
        parts.append(f"default {default}")
        if self.type == "integer":
            parts.append(f"from {with_reading(self.facts['min'], self.unit)} to {with_reading(self.facts['max'], self.unit)}")
        if self.facts["choices"]:
            parts.append("one of " + ", ".join(f"`{choice}`" for choice in self.facts["choices"]))
        parts.append("**restart**" if self.facts["restart"] else "reload")
        return " · ".join(parts)


def read():
    """Returns the head of the example, and (section, description, keys) of each section."""
    facts = code_keys()
    schema = json.loads((ROOT / SCHEMA).read_text(encoding="utf-8"))["properties"]
    example = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    values = tomllib.loads(example)
    in_schema = {f"{section}.{key}" for section, table in schema.items() for key in table["properties"]}
    in_example = {f"{section}.{key}" for section, table in values.items() for key in table}
    for place, names in ((SCHEMA, in_schema), (EXAMPLE, in_example)):
        if names != set(facts):
            raise Disagreement(f"{place} and {CODE} differ in the keys {sorted(names ^ set(facts))}.")
    written = {}
    section = ""
    for line in example.splitlines():
        section = match.group(1) if (match := re.fullmatch(r"\[(\w+)\]", line)) else section
        if match := re.fullmatch(r"(\w+) = (.*)", line):
            written[f"{section}.{match.group(1)}"] = match.group(2)
    sections = []
    for section, table in schema.items():
        keys = [Key(f"{section}.{name}", entry, facts[f"{section}.{name}"], written[f"{section}.{name}"])
                for name, entry in table["properties"].items()]
        for key in keys:
            if values[section][key.name.split(".")[1]] != key.default:
                raise Disagreement(f"{key.name}: the value in {EXAMPLE} is not the default in {SCHEMA}.")
        sections.append((section, table["description"], keys))
    return example.split("\n\n")[0], sections


def example_text(head, sections):
    parts = [head]
    for section, description, keys in sections:
        lines = [common.wrap(description, "# "), f"[{section}]"]
        for key in keys:
            lines += [key.comment(), f"{key.name.split('.')[1]} = {key.written}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """
`hpvmd --config FILE` reads one TOML file. Every key is optional; [`deploy/hpvmd.toml`](../deploy/hpvmd.toml) shows each with its default. An unknown key, a
wrong type or a value out of bounds is an error, and the message names the key, the value and the bound.

- `hpvmd --config FILE --check-config` checks a file, and `hpvmd --config FILE --print-config` prints the values in force, each with where it comes from.
- Options of the command line go before the file: `--listen`, `--state`, `--devices`, and `--dev`, which sets several keys for a server of one's own.
- `systemctl reload hpvmd` (SIGHUP) reads the file again. The daemon takes all of it or, if anything is wrong, none of it. A key marked **restart** keeps
  its old value until the daemon restarts; the log and `hpvmctl server config` name such keys. Work in progress keeps the limits with which it started, and
  keys of `[executor]` and `[graph]` count for the executors that start later.
- Sizes are in bytes, times in milliseconds unless the key's name says otherwise. The unit is the last part of the name.
- [OPERATIONS.md](OPERATIONS.md) says how to run a server, [TENANTS.md](TENANTS.md) who may use it.
"""


def rendered(text, sections):
    """Returns a description in Markdown: names of keys, sections and documents become links."""
    names = {key.name for _, _, keys in sections for key in keys}
    text = re.sub(r"\[([a-z]+)\]", r"[`[\1]`](#\1)", text)
    text = re.sub(r"docs/([A-Z]+\.md)", r"[\1](\1)", text)
    text = re.sub(r"(?<![\w/.])([a-z]+\.[a-z_]+)(?!\w)", lambda match: f"[`{match.group(1)}`](#{match.group(1).replace('.', '')})"
                  if match.group(1) in names else match.group(1), text)
    return common.wrap(text, columns=150)


def summary(description):
    """Returns the first sentence, without the document that it names."""
    return re.sub(r" [(]docs/[^)]*[)]", "", description).split(". ")[0].rstrip(".") + "."


def document_text(sections):
    count = sum(len(keys) for _, _, keys in sections)
    parts = ["# Configuration", common.generated("configuration.py", "the code, the schema and the example"), INTRODUCTION.strip()]
    rows = ["| section | keys | what |", "|---|---|---|"]
    rows += [f"| [`[{section}]`](#{section}) | {len(keys)} | {summary(description)} |" for section, description, keys in sections]
    parts += [f"There are {count} keys:", "\n".join(rows), "## Keys that need a restart"]
    lines = []
    for section, _, keys in sections:
        names = [f"`{key.name.split('.')[1]}`" for key in keys if key.facts["restart"]]
        if names:
            lines.append(common.wrap("all" if len(names) == len(keys) and len(keys) > 3 else ", ".join(names), "  ", f"- `[{section}]`: ", 150))
    parts.append("\n".join(lines))
    for section, description, keys in sections:
        parts += [f"## [{section}]", rendered(description, sections)]
        for key in keys:
            parts += [f"### `{key.name}`", key.facts_line(), rendered(key.description, sections)]
    return "\n\n".join(parts) + "\n"


def make():
    head, sections = read()
    return {DOCUMENT: document_text(sections), EXAMPLE: example_text(head, sections)}


if __name__ == "__main__":
    common.main(make)
