"""Makes tokenizer.bin: the vocabulary as a trie, and what becomes of every character.

usage: make_tokenizer.py FOLDER tokenizer.bin

FOLDER holds the `tokenizer.json` of all-MiniLM-L6-v2. Needs the package `tokenizers`, whose behaviour is
written down for each character, so that the crate needs no Unicode tables of its own.

Layout, little endian:

    nodes       N x { base u32, id u16, label u8, zero u8 }   a double-array trie over bytes
    pages       4352 x u8            for each 256 characters, which block of actions
    actions     P x 256 x u16        0 keep, 1 drop, 2 space, 3 a word of its own, 4 Hangul syllable,
                                     8 + i: replaced by the characters at expansions[i]
    expansions  E x u32              character, bit 30: a word of its own, bit 31: the last

The child of a node for byte `c` is `base ^ c`, if that node's label is `c`; no two nodes share a base.
"""

import struct
import sys

from tokenizers import Tokenizer

NO_ID = 0xFFFF
KEEP, DROP, SPACE, ALONE, HANGUL, FIRST_EXPANSION = 0, 1, 2, 3, 4, 8
ALONE_BIT, LAST_BIT = 1 << 30, 1 << 31
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)


def trie(vocabulary):
    """The nodes, and where the trie of continuations (`##`) begins."""
    root = {}
    for word, number in vocabulary.items():
        node = root
        for byte in word.encode():
            node = node.setdefault(byte, {})
        node[None] = number

    # A childless node has base 0, so nobody else may: nothing is then found below it.
    nodes, used_bases = [], {0}
    free = []  # ascending, node numbers nothing lives in yet

    def grow():
        start = len(nodes)
        nodes.extend([0, NO_ID, 0] for _ in range(256))
        free.extend(range(start, start + 256))

    def place(labels):
        position = max(0, len(free) - 4096)
        while True:
            if position >= len(free):
                grow()
            base = free[position] ^ labels[0]
            if base not in used_bases and all(nodes[base ^ c][2] == 0 for c in labels):
                return base
            position += 1

    grow()
    free.remove(0)
    nodes[0][2] = 0xFF  # the root lives here; no vocabulary has this byte
    queue = [(0, root)]
    continuation = None
    hash_child = root[ord("#")][ord("#")]
    while queue:
        index, node = queue.pop(0)
        if node is hash_child:
            continuation = index
        if None in node:
            nodes[index][1] = node[None]
        labels = sorted(label for label in node if label is not None)
        if not labels:
            continue
        base = place(labels)
        used_bases.add(base)
        nodes[index][0] = base
        for label in labels:
            child = base ^ label
            nodes[child][2] = label
            free.remove(child)
            queue.append((child, node[label]))
    nodes[0][2] = 0
    return nodes, continuation


def longest(nodes, start, text):
    """As the crate walks, to check what was built."""
    index, found = start, None
    for position, byte in enumerate(text):
        child = nodes[index][0] ^ byte
        if nodes[child][2] != byte:
            break
        index = child
        if nodes[index][1] != NO_ID:
            found = (position + 1, nodes[index][1])
    return found


def characters(tokenizer):
    """For each character what becomes of it."""
    normalize = tokenizer.normalizer.normalize_str
    split = tokenizer.pre_tokenizer.pre_tokenize_str

    def stands_alone(character):
        return len(split("a" + character + "a")) == 3

    actions, expansions, known = [], [], {}
    for point in range(0x110000):
        if 0xD800 <= point < 0xE000:
            actions.append(DROP)
            continue
        character = chr(point)
        result = normalize(character)
        if result == "":
            actions.append(DROP)
            continue
        words = split(result)
        if not words:
            actions.append(SPACE)
            continue
        if point in HANGUL_SYLLABLES:
            actions.append(HANGUL)
            continue
        spaced = result.startswith(" ") and result.endswith(" ")
        result = result.strip(" ")
        assert not any(c.isspace() for c in result), hex(point)
        alone = [stands_alone(c) for c in result]
        if spaced:
            assert len(result) == 1, hex(point)
            alone = [True]
        if result == character:
            actions.append(ALONE if alone[0] else KEEP)
            continue
        entry = [ord(c) | (ALONE_BIT if a else 0) for c, a in zip(result, alone)]
        entry[-1] |= LAST_BIT
        key = tuple(entry)
        if key not in known:
            known[key] = FIRST_EXPANSION + len(expansions)
            expansions.extend(entry)
        actions.append(known[key])
    assert len(expansions) + FIRST_EXPANSION < 0x10000
    pages, blocks = [], {}
    for start in range(0, 0x110000, 256):
        block = tuple(actions[start : start + 256])
        pages.append(blocks.setdefault(block, len(blocks)))
    assert len(blocks) <= 256
    return pages, list(blocks), expansions


def main():
    folder, path = sys.argv[1:]
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    vocabulary = tokenizer.get_vocab()
    nodes, continuation = trie(vocabulary)
    for word, number in vocabulary.items():
        assert longest(nodes, 0, word.encode()) == (len(word.encode()), number), word
    pages, blocks, expansions = characters(tokenizer)
    with open(path, "wb") as out:
        for base, number, label in nodes:
            out.write(struct.pack("<IHBB", base, number, label, 0))
        out.write(bytes(pages))
        for block in blocks:
            out.write(struct.pack("<256H", *block))
        out.write(struct.pack(f"<{len(expansions)}I", *expansions))
    print(f"NODES {len(nodes)}, CONTINUATION {continuation}, BLOCKS {len(blocks)}, EXPANSIONS {len(expansions)}")


main()
