#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups the sources of a target into batches, so that several sources share the work of reading headers and compiling templates.

    batches.py ROOT FOLDER SOURCE...

Writes FOLDER/batch_N.cc, which include sources by their paths below ROOT, and prints the files to compile, one per line: the batches,
and sources that stay alone. Two sources share a batch only if neither mentions a name that is local to the other (in an anonymous
namespace, static, or a macro), so that each source means the same in a batch as alone. An unchanged file is not written.
"""

import functools
import os
import re
import sys

# Total of the sources' sizes; about eight sources.
BATCH_BYTES = 60_000

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|\S")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
WORD = re.compile(r'[A-Za-z_]\w*$')
# Words that precede a bracket or an equals sign without being declared there.
NO_NAMES = set('''alignas auto bool char class const constexpr decltype default delete double enum false float if int long namespace
noexcept nullptr operator override requires return short signed sizeof static static_assert std absl struct true typename union unsigned
using void TEST TEST_F TEST_P INSTANTIATE_TEST_SUITE_P'''.split())


def is_declared(before, token, after):
    """Returns true if a name at the outermost level may be declared there; errs towards true."""
    if token in NO_NAMES or token.endswith(('_', '_t')):  # Members in a constructor's initialiser list, and types of the language.
        return False
    if before in ('struct', 'class', 'enum', 'union', 'using'):
        return after != '::'
    return before != '::' and after in ('(', '=', '{', '[', ';')


def kept_names(tokens):
    """Returns the names declared in anonymous namespaces at the outermost level, or as static there."""
    names = set()
    scopes = []  # 'named', 'anonymous' or 'inner' for each open brace.
    parentheses = 0
    static = in_base = False
    opens = None
    for at, token in enumerate(tokens):
        before, after = tokens[at - 1] if at else '', tokens[at + 1] if at + 1 < len(tokens) else ''
        outermost = parentheses == 0 and 'inner' not in scopes
        if token == 'namespace':
            opens = 'anonymous' if after == '{' else 'named'
        if outermost:
            static = static or token == 'static'
            if ('anonymous' in scopes or static) and not in_base and WORD.match(token) and is_declared(before, token, after):
                names.add(token)
                in_base = before in ('struct', 'class', 'enum', 'union', 'using')
        if token in '([':
            parentheses += 1
        elif token in ')]':
            parentheses -= 1
        elif token == '{':
            scopes.append(opens or 'inner')
            opens = None
            in_base = False
        elif token == '}' and scopes:
            scopes.pop()
            static = False
        elif token == ';' and outermost:
            static = in_base = False
            opens = None
    return names


@functools.cache
def header(root, path):
    """Returns the words of one of our headers, and the headers that it includes."""
    places = (os.path.join(root, folder, path) for folder in ('', 'base/include', 'client/include'))
    place = next(filter(os.path.isfile, places), None)
    if place is None:  # A generated header, or a library's.
        return frozenset(), ()
    with open(place, encoding='utf-8') as file:
        text = file.read()
    return frozenset(re.findall(r'[A-Za-z_]\w*', re.sub(r'//[^\n]*', '', text))), tuple(INCLUDE.findall(text))


def words_of_headers(root, text):
    words, seen, todo = set(), set(), INCLUDE.findall(text)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            more, included = header(root, path)
            words |= more
            todo += included
    return words


class Source:
    def __init__(self, root, path):
        with open(os.path.join(root, path), encoding='utf-8') as file:
            whole = file.read()
        text = NOISE.sub(' "" ', whole)
        macros = set(re.findall(r'^\s*#\s*define\s+(\w+)', text, re.MULTILINE))
        tokens = TOKEN.findall(re.sub(r'^\s*#(?:[^\n]*\\\n)*[^\n]*', ' ', text, flags=re.MULTILINE))
        self.path = path
        self.size = len(text)
        self.kept = kept_names(tokens) | macros
        # Members, and names of other namespaces, collide with nothing.
        self.mentioned = set(re.findall(r'\w+', text)) if macros else {
            token for at, token in enumerate(tokens)
            if at and WORD.match(token) and (tokens[at - 1] not in ('.', '->', '::') or tokens[at - 2] == 'hpvm')}
        self.seen = self.mentioned | words_of_headers(root, whole)
        # A macro before an include is meant for the included file; the names of a whole namespace are unknown here.
        self.is_alone = bool(re.search(r'^\s*#\s*define\b.*^\s*#\s*include\b', whole, re.MULTILINE | re.DOTALL)
                             or re.search(r'^using namespace\b', text, re.MULTILINE))

    def meets(self, other):
        return self.is_alone or other.is_alone or not (
            self.kept.isdisjoint(other.seen) and other.kept.isdisjoint(self.seen))


def choose(sources):
    """Puts each source into the smallest batch that it may join; sources with most local names come first, because they are hardest to
    place."""
    batches = [[] for _ in range(-(-sum(source.size for source in sources) // BATCH_BYTES))]
    for source in sorted(sources, key=lambda s: (-len(s.kept), s.path)):
        fitting = [batch for batch in batches if not any(source.meets(other) for other in batch)]
        if not fitting:
            fitting = [[]]
            batches += fitting
        min(fitting, key=lambda batch: sum(other.size for other in batch)).append(source)
    return batches


def main():
    root, folder = sys.argv[1:3]
    for number, batch in enumerate(choose([Source(root, path) for path in sys.argv[3:]])):
        paths = sorted(source.path for source in batch)
        if len(paths) == 1:
            print(os.path.join(root, paths[0]))
        if len(paths) < 2:
            continue
        text = ''.join(f'#include "{path}"\n' for path in paths)
        file = os.path.join(folder, f'batch_{number}.cc')
        if not os.path.exists(file) or open(file, encoding='utf-8').read() != text:
            os.makedirs(folder, exist_ok=True)
            with open(file, 'w', encoding='utf-8') as out:
                out.write(text)
        print(file)


if __name__ == '__main__':
    main()
