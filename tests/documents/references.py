#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the references of docs/ match their generators' output and are complete.

    references.py [BIN_FOLDER] [--write] [TestCase.test ...]

--write only generates the documents again (docs/reference). BIN_FOLDER has hpvmctl, which lists its commands and checks the examples of graphs.
ObservationTest compares metrics, and tests/e2e/documents.py the commands of OPERATIONS.md and TENANTS.md; this test covers the rest.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs/reference"))

import api  # noqa: E402
import common  # noqa: E402
import configuration  # noqa: E402
import cpp_headers  # noqa: E402
import graphs  # noqa: E402

GENERATORS = (configuration, graphs, api)
BIN = next((pathlib.Path(word).resolve() for word in sys.argv[1:] if "/" in word), None)
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
# Words with a dot that resemble a key of the configuration: files, or members of other objects.
FILE_SUFFIXES = {"cc", "h", "py", "md", "json", "jsonl", "toml", "proto", "pem", "key", "sock", "sqlite", "service", "timer", "wasm", "npy", "sh", "log", "token", "db"}
# Members of answers: those of hpvmctl run -o json, and of ServerInfoResponse.
NOT_KEYS = {"log.lines", "log.findings", "limits.runs_per_call_max", "limits.submits_per_call_max"}


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_fences(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors_of(text):
    """Returns the anchors that GitHub makes of headings; the second heading of a name gets -1."""
    seen, anchors = {}, set()
    for heading in re.findall(r"^#{1,6} (.+)$", without_fences(text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        anchors.add(name if name not in seen else f"{name}-{seen[name]}")
        seen[name] = seen.get(name, 0) + 1
    return anchors


class Generated(unittest.TestCase):
    def test_documents_are_as_generated(self):
        for generator in GENERATORS:
            with self.subTest(generator=generator.__name__):
                for fault in common.differences(generator.make()):
                    self.fail(f"Not as generated; tests/documents/references.py --write makes it anew.\n{fault[:4000]}")

    def test_generators_notice_what_contradicts(self):
        facts = {"min": 1, "max": 5, "restart": False, "choices": []}
        entry = {"type": "integer", "default": 2, "minimum": 1, "maximum": 5, "description": "How many there are."}
        self.assertIn("from 1 to 5", configuration.Key("jobs.x_max", entry, facts, "2").facts_line())
        for change in ({"maximum": 6}, {"description": ""}, {"description": "No full stop here"}, {"description": "Needs a restart."}, {"enum": ["a"]}):
            with self.subTest(change=change), self.assertRaises(common.Disagreement):
                configuration.Key("jobs.x_max", {**entry, **change}, facts, "2")
        with self.assertRaises(common.Disagreement):
            configuration.Key("jobs.x_max", entry, {**facts, "at_most": ["jobs.y_max"]}, "2")
        with self.assertRaises(common.Disagreement):
            graphs.Schema().field("x", {"type": "string"}, True)

    def test_generated_lines_fit(self):
        for generator in GENERATORS:
            for path, text in generator.make().items():
                if path.endswith(".md"):
                    self.assertEqual([line for line in text.splitlines() if len(line) > 160], [], path)


class Headers(unittest.TestCase):
    def test_declarations_without_bodies_and_private_members(self):
        header = cpp_headers.read("\n".join([
            "// SPDX-License-Identifier: Apache-2.0", "// What it is.", "#ifndef X", "#define X", "#include <string>", "namespace hpvm {", "class Other;", "",
            "// One of them.", "class Thing : public Base {", " public:", "  explicit Thing(int number) : number_(number), text_{\"}\"} {}", "  ~Thing();",
            "  Thing(const Thing&) = delete;", "  // Adds.", "  int Add(int more = 1) const { return number_ + more; }", "  enum class Kind : uint8_t { kA, kB };",
            "  int open = 0;  // For all.", "", " private:", "  friend class Other;", "  int number_ = 0;", "};", "using Things = std::vector<Thing>;",
            "inline Thing Make(std::string name) {", "  return {std::move(name)};", "}", "}  // namespace hpvm", "#endif  // X", ""]), "x.h")
        self.assertEqual(header.head, "What it is.")
        self.assertEqual([item.names for item in header.items], ["Thing", "", ""])
        self.assertEqual(header.items[0].comment, "One of them.")
        self.assertEqual(header.items[0].code, "\n".join([
            "class Thing : public Base {", "  explicit Thing(int number);", "", "  // Adds.", "  int Add(int more = 1) const;",
            "  enum class Kind : uint8_t { kA, kB };", "  int open = 0;  // For all.", "};"]))
        self.assertEqual(header.items[1].code, "using Things = std::vector<Thing>;")
        self.assertEqual(header.items[2].code, "inline Thing Make(std::string name);")

    def test_every_public_class_is_listed(self):
        reference = text_of("docs/API.md")
        for folder in api.HEADERS:
            for path in sorted((ROOT / folder).glob("*.h")):
                names = re.findall(r"^(?:class|struct|enum class) (\w+)[^;]*\{", path.read_text(encoding="utf-8"), re.M)
                for name in names:
                    self.assertIn(f"\n#### {name}\n", reference, path)


class Listed(unittest.TestCase):
    def test_every_document_is_linked_from_the_readme(self):
        readme = text_of("README.md")
        missing = [f"docs/{path.name}" for path in DOCUMENTS if f"](docs/{path.name}" not in readme]
        self.assertEqual(missing, [], "README.md is to link these.")

    def test_decisions_have_their_sections_and_stand_in_the_list(self):
        index = text_of("docs/decisions/README.md")
        rows = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| (.*) \| (in force.*|replaced.*) \|$", index, re.M)
        records = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
        self.assertEqual([path.name for path in records], [name for _, name, _, _ in rows])
        for path, (number, _, title, state) in zip(records, rows):
            with self.subTest(record=path.name):
                first, below, *_ = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
                self.assertEqual(first, f"# {number}. {title}")
                sections = re.findall(r"\*\*(Context|Choice|Rejected|Consequence)\b|\*\*(rejected)\*\*", path.read_text(encoding="utf-8"))
                self.assertEqual([one or other.capitalize() for one, other in sections], ["Context", "Choice", "Rejected", "Consequence"])
                # The line under the title names the same later records as the list.
                later = re.findall(r"\]\(0*(\d+)-", below) if below.startswith("*") and not below.startswith("**") else []
                self.assertEqual(sorted(re.findall(r"\d+", state)), sorted(later))

    def test_links_lead_somewhere(self):
        anchors = {path: anchors_of(path.read_text(encoding="utf-8")) for path in [*DOCUMENTS, ROOT / "README.md"]}
        faults = []
        for path in anchors:
            prose = re.sub(r"`[^`\n]*`", "", without_fences(path.read_text(encoding="utf-8")))
            for target in re.findall(r"\]\(([^()\s]+)\)", prose):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, fragment = urllib.parse.unquote(target).partition("#")
                there = (path.parent / name).resolve() if name else path
                if not there.exists():
                    faults.append(f"{path.name}: {target} does not exist.")
                elif fragment and fragment not in anchors.get(there, anchors_of(there.read_text(encoding="utf-8"))):
                    faults.append(f"{path.name}: {target} has no such heading.")
        self.assertEqual(faults, [])

    def test_links_of_installed_pages_lead_somewhere(self):
        """Checks the pages that the packages and the archive install (deploy/packages/CMakeLists.txt, deploy/bundle.sh)."""
        listed = re.findall(r"^hpvmd_pages\(\S+ \S+ (.*)\)", text_of("deploy/packages/CMakeLists.txt"), re.M)
        listed += re.findall(r"pages\.py \S+ (.*)", text_of("deploy/bundle.sh"))
        self.assertEqual(len(listed), 3)
        faults, pages = [], 0
        for line in listed:
            with tempfile.TemporaryDirectory() as folder:
                output = pathlib.Path(folder).resolve()
                subprocess.run([sys.executable, ROOT / "deploy/packages/pages.py", output, *line.split()], check=True)
                for path in output.rglob("*.md"):
                    pages += 1
                    prose = re.sub(r"`[^`\n]*`", "", without_fences(path.read_text(encoding="utf-8")))
                    for target in re.findall(r"\]\(([^()\s]*)\)", prose):
                        name, _, fragment = target.partition("#")
                        there = (path.parent / name).resolve() if name else path
                        if re.match(r"[a-z]+:", target):
                            continue
                        if not there.is_relative_to(output) or not there.exists():
                            faults.append(f"{line}: {path.name}: {target} is not installed.")
                        elif fragment and fragment not in anchors_of(there.read_text(encoding="utf-8")):
                            faults.append(f"{line}: {path.name}: {target} has no such heading.")
                if "docs=." in line:  # The Documentation= of the unit.
                    self.assertTrue((output / "OPERATIONS.md").exists() and (output / "CONFIGURATION.md").exists())
        self.assertEqual(faults, [])
        self.assertGreater(pages, 100)

    def test_keys_that_documents_name_exist(self):
        keys = set(configuration.code_keys())
        sections = {key.split(".")[0] for key in keys}
        faults = []
        for path in DOCUMENTS:
            for name in re.findall(r"`([a-z]+\.[a-z_]+)(?: = [^`]*)?`", path.read_text(encoding="utf-8")):
                section, word = name.split(".")
                if section in sections and word not in FILE_SUFFIXES and name not in keys | NOT_KEYS:
                    faults.append(f"{path.name}: `{name}` is no key of the configuration.")
        self.assertEqual(faults, [])

    def test_reasons_of_health_are_in_the_document(self):
        code = text_of("server/observe/health.cc")
        reasons = set(re.findall(r'push_back\(\s*\{(?:[^"{}]*\? )?"([a-z_]+)"', code)) | set(re.findall(r'\? "([a-z_]+)" : "([a-z_]+)"', code)[0])
        self.assertGreaterEqual(len(reasons), 9)
        listed = set(re.findall(r"^\| `([a-z_]+)` \| (?:live|ready) \|", text_of("docs/METRICS.md"), re.M))
        self.assertEqual(reasons | {"starting"}, listed)

    def test_sources_of_the_comparison_are_named(self):
        text, sources = text_of("docs/COMPARISON.md").split("\n## Sources\n")
        used, named = set(re.findall(r"\[([A-Z]\d+)\]", text)), set(re.findall(r"\b([A-Z]\d+)\s", sources))
        self.assertGreater(len(used), 40)
        self.assertEqual(used ^ named, set(), "Each key is explained, and each that is explained is used.")

    def test_metrics_that_documents_name_exist(self):
        listed = set(re.findall(r"^\| `((?:hpvm|process)_[a-z_]+)` \|", text_of("docs/METRICS.md"), re.M))
        self.assertGreater(len(listed), 80)
        listed |= set(re.findall(r"\bhpvm_[a-z_]+", text_of("client/kernel/hpvm.h")))  # Functions of kernels look alike.
        faults = []
        for path in [*DOCUMENTS, ROOT / "deploy/alerts.yml"]:
            for name in re.findall(r"(?<![\w/.-])(hpvm_(?:[a-z]+_)+(?:total|seconds|bytes|count|sum|bucket))\b", path.read_text(encoding="utf-8")):
                if name not in listed and re.sub(r"_(count|sum|bucket)$", "", name) not in listed:
                    faults.append(f"{path.name}: {name} is not in METRICS.md.")
        self.assertEqual(faults, [])


@unittest.skipIf(BIN is None, "No folder of programs was given.")
class WithHpvmctl(unittest.TestCase):
    @staticmethod
    def ctl(*words):
        return subprocess.run([BIN / "hpvmctl", *map(str, words)], capture_output=True, text=True, timeout=60)

    def commands(self, *words):
        block = re.search(r"^Subcommands:\n((?:  .*\n|\n(?=  \S))*)", self.ctl(*words, "--help").stdout, re.M)
        return re.findall(r"^  (\S+)", block.group(1), re.M) if block else []

    def test_every_command_is_in_the_document(self):
        spans = re.findall(r"`(?:hpvmctl )?([^`\n]+)`", text_of("docs/CLI.md"))
        commands = self.commands()
        self.assertGreater(len(commands), 30)
        missing = []
        for command in commands:
            of_command = [span.replace("\\|", "|") for span in spans if re.match(rf"{command}\b", span)]
            words = set(re.findall(r"[a-z]+", " ".join(of_command)))
            missing += [command] if not of_command else [f"{command} {inner}" for inner in self.commands(command) if inner not in words]
        self.assertEqual(missing, [], "docs/CLI.md is to name these.")

    def options_of(self, *words):
        help_text = re.sub(r"(?s)\nExamples?:.*", "", self.ctl(*words, "--help").stdout)
        yield from ((*words, option) for option in re.findall(r"(?<![\w`-])--[a-z][a-z-]+", help_text) if option != "--help")
        for inner in self.commands(*words):
            yield from self.options_of(*words, inner)

    def test_every_option_is_in_the_document(self):
        document = text_of("docs/CLI.md")
        missing = [" ".join(words) for words in self.options_of() if not re.search(rf"(?<![\w-]){words[-1]}(?![\w-])", document)]
        self.assertEqual(missing, [], "docs/CLI.md is to name these.")

    def test_examples_of_graphs(self):
        valid = sorted((ROOT / graphs.EXAMPLES / "valid").glob("*.json"))
        shown = re.findall(r"\(\.\./schemas/examples/valid/([\w-]+\.json)\)", text_of("docs/GRAPHS.md"))
        self.assertGreaterEqual(len(shown), 14)
        self.assertLessEqual(set(shown), {path.name for path in valid})
        for path in valid:
            with self.subTest(document=path.name):
                done = self.ctl("graph", "validate", "--document-only", path)
                self.assertEqual(done.returncode, 0, done.stderr)
        for path in sorted((ROOT / graphs.EXAMPLES / "invalid").glob("graph-*.json")):
            with self.subTest(document=path.name):
                done = self.ctl("graph", "validate", path)
                self.assertEqual(done.returncode, 2)
                self.assertIn(path.with_suffix(".expected.txt").read_text(encoding="utf-8").splitlines()[0], done.stdout)


if __name__ == "__main__":
    if "--write" in sys.argv:
        for generator in GENERATORS:
            for path, text in generator.make().items():
                (ROOT / path).write_text(text, encoding="utf-8")
    else:
        unittest.main(argv=[sys.argv[0], *(word for word in sys.argv[1:] if "/" not in word)])
