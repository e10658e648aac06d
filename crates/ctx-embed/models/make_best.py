"""Makes best.bin: all-MiniLM-L6-v2 with one byte per weight, laid out as the kernels read it.

usage: make_best.py FOLDER best.bin

FOLDER holds `model.safetensors`. Needs the packages `numpy` and `safetensors`.

A weight is code * scale, one scale per output (per token for the embeddings). Linear layers are cut into
panels of 16 outputs; a panel holds, for each pair of inputs, the two weights of each output:

    [outputs / 16][inputs / 2][16][2] i8, then scales [outputs] f32, then biases [outputs] f32

Sections, little endian, in this order (all lengths are multiples of 64 bytes but the first scales, which
are padded):

    token codes [30522][384] i8, token scales [30528] f32, positions [256][384] f32, norm [2][384] f32
    6 layers of: query/key/value, attention output, norm, intermediate, output, norm
                 (a norm is its gains, then its biases, 384 f32 each)

The embedding of token type 0 is added to the positions; query weights carry the 1 / sqrt(32) of attention.
"""

import sys

import numpy
from safetensors.numpy import load_file

LAYERS, HEAD, POSITIONS, PANEL, PADDED_TOKENS = 6, 32, 256, 16, 30528


def codes_and_scales(weights):
    scales = numpy.abs(weights).max(axis=1) / 127
    codes = numpy.rint(weights / numpy.where(scales == 0, 1, scales)[:, None])
    return codes.astype(numpy.int8), scales.astype("<f4")


def main():
    folder, path = sys.argv[1:]
    tensors = load_file(folder + "/model.safetensors")
    with open(path, "wb") as out:

        def floats(values):
            out.write(numpy.ascontiguousarray(values, dtype="<f4").tobytes())

        def norm(name):
            floats(tensors[name + ".weight"])
            floats(tensors[name + ".bias"])

        def linear(weights, biases):
            codes, scales = codes_and_scales(weights)
            outputs, inputs = codes.shape
            panels = codes.reshape(outputs // PANEL, PANEL, inputs // 2, 2).transpose(0, 2, 1, 3)
            out.write(numpy.ascontiguousarray(panels).tobytes())
            floats(scales)
            floats(biases)

        codes, scales = codes_and_scales(tensors["embeddings.word_embeddings.weight"])
        out.write(codes.tobytes())
        floats(numpy.pad(scales, (0, PADDED_TOKENS - len(scales))))
        positions = tensors["embeddings.position_embeddings.weight"][:POSITIONS]
        floats(positions + tensors["embeddings.token_type_embeddings.weight"][0])
        norm("embeddings.LayerNorm")
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}."
            parts = [name + f"attention.self.{part}" for part in ("query", "key", "value")]
            weights = [tensors[part + ".weight"] for part in parts]
            biases = [tensors[part + ".bias"] for part in parts]
            weights[0] = weights[0] / numpy.sqrt(HEAD)
            biases[0] = biases[0] / numpy.sqrt(HEAD)
            linear(numpy.concatenate(weights), numpy.concatenate(biases))
            for dense, normalisation in (
                ("attention.output.dense", "attention.output.LayerNorm"),
                ("intermediate.dense", None),
                ("output.dense", "output.LayerNorm"),
            ):
                linear(tensors[name + dense + ".weight"], tensors[name + dense + ".bias"])
                if normalisation:
                    norm(name + normalisation)


main()
