"""Messages of errors and warnings are one sentence, without a final full stop."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def last_words(tree):
    """Line and end of the message of every error that is made and every warning."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name.endswith("Error") or name == "warn":
            message = node.args[0]
            if isinstance(message, ast.JoinedStr) and message.values:
                message = message.values[-1]
            if isinstance(message, ast.Constant) and isinstance(message.value, str):
                yield node.lineno, message.value


def test_no_message_ends_with_a_full_stop():
    ending = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        for line, words in last_words(ast.parse(path.read_text("utf-8")))
        if words.endswith(".") and not words.endswith("..")
    ]
    assert ending == []


def test_a_full_stop_is_seen():
    tree = ast.parse('raise ValueError(f"x: expected {1}, got 2.")')
    assert list(last_words(tree)) == [(1, ", got 2.")]
