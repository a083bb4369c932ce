# SPDX-License-Identifier: Apache-2.0
"""Reads our public C++ headers: declarations with their comments, without private members, deleted functions and bodies.

The module is no C++ parser: it relies on the shape of formatted headers. A declaration ends at `;`, or at the brace that closes its body.
"""

import re

ACCESS = re.compile(r"(public|protected|private):")
DROPPED = re.compile(r"^(friend\b|#|static_assert\b)|=\s*delete;$")
FORWARD = re.compile(r"^(class|struct)\s+[\w:]+;$")


class Item:
    """A declaration: its comment, its text, and its names for headings."""

    def __init__(self, comment, code, names=""):
        self.comment, self.code, self.names = comment, code, names


class Header:
    def __init__(self, head, items):
        self.head, self.items = head, items


def read(text, path):
    lines = text.split("\n")
    head = []
    for line in lines[1:]:
        if not line.startswith("//"):
            break
        head.append(line.removeprefix("//").removeprefix(" "))
    body = "\n".join(lines[1 + len(head):])
    body = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*$", "", body, flags=re.M)
    items = []
    for comment, code in declarations(body, path):
        items += expand(comment, code, path)
    return Header("\n".join(head), items)


def expand(comment, code, path):
    """Returns the items of a declaration: the contents of a namespace, or the cleaned declaration."""
    match = re.match(r"(inline\s+)?namespace\b[^{]*\{", code)
    if match:
        return [item for inner in declarations(code[match.end():code.rindex("}")], path) for item in expand(*inner, path)]
    shown = cleaned(code, path)
    return [] if not shown else [Item(comment, shown, name_of(shown))]


def name_of(code):
    """Returns the name for a heading: classes, structures and enumerations have one; functions and aliases follow the item before them."""
    match = re.match(r"(?:template\s*<[^{;]*?>\s*)?(?:class|struct|enum class|enum|union)\s+(\w+)", code)
    return match.group(1) if match else ""


def declarations(text, path):
    """Yields (comment, declaration) in order. A comment that precedes a blank line also belongs to the next declaration."""
    at, comment = 0, []
    while at < len(text):
        if match := re.compile(r"[ \t]*//[ ]?([^\n]*)\n?").match(text, at):
            comment.append(match.group(1))
            at = match.end()
        elif match := re.compile(r"\s*\n").match(text, at):
            if match.group().count("\n") > 1 or (match.group() == "\n" and comment):
                comment.append("")
            at = match.end()
        elif text[at].isspace() or text[at] == ";":
            at += 1
        else:
            end = end_of(text, at, path)
            code = text[at:end]
            rest = re.compile(r"[ \t]*//[ ]?([^\n]*)(?:\n[ \t]{30,}//[ ]?([^\n]*))*").match(text, end)
            if rest:
                trailing = [part.split("//", 1)[1].strip() for part in rest.group().split("\n")]
                code += "  // " + " ".join(trailing)
                end = rest.end()
            yield "\n".join(comment).strip("\n"), code
            comment, at = [], end


def end_of(text, at, path):
    """Returns the position behind the declaration that begins at `at`."""
    if match := ACCESS.match(text, at):
        return match.end()
    depth, has_parameters = 0, False
    start = at
    while at < len(text):
        char = text[at]
        if text.startswith("//", at):
            at = text.find("\n", at)
            if at < 0:
                break
            continue
        if char in "\"'" and not (char == "'" and text[at - 1].isdigit()):
            at = end_of_literal(text, at)
            continue
        if char in "({[":
            has_parameters = has_parameters or (char == "(" and depth == 0)
            depth += 1
        elif char in ")}]":
            depth -= 1
            if char == "}" and depth == 0:
                # A function's declaration ends with its body; initialisers, classes and enumerations continue to the semicolon.
                head = text[start:at]
                if re.match(r"(inline\s+)?namespace\b", head) or (is_function(head) and not text[at + 1:].lstrip(" ").startswith((";", ",", "{"))):
                    return at + 1
        elif char == ";" and depth == 0:
            return at + 1
        at += 1
    raise ValueError(f"{path}: a declaration does not end: {text[start:start + 60]!r}")


def end_of_literal(text, at):
    quote = text[at]
    at += 1
    while text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return at + 1


def is_function(head):
    return not re.match(r"(template\s*<[^{]*?>\s*)?(class|struct|enum|union)\b", head) and "(" in head.split("{")[0]


def cleaned(code, path, indent=""):
    """Returns the declaration as a reader needs it; empty when a reader needs none of it."""
    code, _, trailing = code.partition("  // ") if re.search(r"[;}]  // [^\n]*$", code) else (code, "", "")
    trailing = "" if trailing.startswith("NOLINT") else trailing
    code = code.strip()
    if not code or DROPPED.search(code) or FORWARD.match(code) or re.match(r"~\w+\(\)", code):
        return ""
    match = re.match(r"(?s)((?:template\s*<[^{;]*?>\s*)?(class|struct|union)\s+[^;{(]*)\{(.*)\}([^{}]*;)$", code)
    if match and is_type(code):
        members = class_members(match.group(3), match.group(2) == "class", path)
        if not members:
            return f"{one_line(match.group(1))} {{}}{match.group(4)}"
        return f"{match.group(1).rstrip()} {{\n{members}\n}}{match.group(4)}" + (f"  // {trailing}" if trailing else "")
    if is_function(code) and code.endswith("}"):
        code = without_body(code)
    code = dedented(code)
    return code + (f"  // {trailing}" if trailing else "")


def is_type(code):
    return re.match(r"(template\s*<[^{;]*?>\s*)?(class|struct|union)\b", code) is not None


def class_members(text, is_private, path):
    lines = []
    for comment, code in declarations(text, path):
        if match := ACCESS.fullmatch(code.strip()):
            is_private = match.group(1) != "public"
            continue
        shown = "" if is_private else cleaned(code, path)
        if not shown:
            continue
        if comment:
            if lines and lines[-1] and not lines[-1].endswith("{"):
                lines.append("")
            lines += ["  " + ("// " + line).rstrip() for line in comment.split("\n")]
        lines += ["  " + line if line else "" for line in shown.split("\n")]
    return "\n".join(lines)


def without_body(code):
    """Returns a function's declaration up to its body, or to the initialisers of a constructor."""
    depth = 0
    for at, char in enumerate(code):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif depth == 0 and char == "{":
            return code[:at].rstrip() + ";"
        elif depth == 0 and char == ":" and code[at - 1] != ":" and code[at + 1] != ":" and ")" in code[:at]:
            return code[:at].rstrip() + ";"
    return code


def one_line(text):
    return " ".join(text.split())


def dedented(code):
    """Removes the least indentation of the lines below the first."""
    first, *rest = code.split("\n")
    least = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    is_even = code.startswith("template") or (rest and rest[-1].lstrip().startswith("}"))
    return "\n".join([first, *(line[least:] if is_even else "    " + line[least:] if line.strip() else "" for line in rest)])
