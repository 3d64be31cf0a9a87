"""Which method made a forecast: a digest of the code that can change one."""

import hashlib
import io
import tokenize
from importlib.resources import files

PARTS = (
    "argosy/laws/surfaces.py",
    "argosy/laws/annealing.py",
    "argosy/lab/runs.py",
    "argosy/lab/fit.py",
    "argosy/lab/origins.py",
    "argosy/lab/forecast.py",
    "argosy/lab/optimum.py",
    "argosy/lab/schedules.py",
    "argosy/lab/gap.py",
)
_QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def method_hash() -> str:
    """First 16 hex digits of the SHA-256 of the parts' tokens; comments, layout and docstrings do not count."""
    digest = hashlib.sha256()
    for part in PARTS:
        text = files("argosy").joinpath(*part.split("/")[1:]).read_text(encoding="utf-8")
        start = True
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING and start:
                continue  # a string that begins a statement is a docstring
            if token.type not in _QUIET:
                digest.update(token.string.encode() + b"\0")
            start = token.type in _QUIET
    return digest.hexdigest()[:16]
