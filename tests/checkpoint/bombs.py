"""Read hostile files in a process that may have little memory: ``bombs.py`` prints how each was answered, as JSON."""

import json
import pickle
import resource
import struct

import xxhash

from argosy.checkpoint.dcp_index import parse_index
from argosy.checkpoint.manifest import SCHEMA, parse_manifest
from argosy.errors import InputError

ROOM_BYTES = 512 << 20
PROTO = b"\x80\x04"


def signed(values: dict) -> bytes:
    """With the digest that proves it whole: what is wrong with it must be seen by other means."""
    digest = xxhash.xxh3_128(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return json.dumps(values | {"xxh3_128": digest}).encode()


def doubled(times: int) -> bytes:
    """A tuple of the same tuple twice, and so on: its memory is small, a walk through it never ends."""
    return b"(Nt" + b"2\x86" * times


MANIFESTS = {
    "deep lists": b"[" * 1_000_000,
    "deep objects": b'{"a":' * 1_000_000,
    "a number of a million digits": b'{"schema": 1' + b"0" * 1_000_000 + b"}",
    "a million keys": json.dumps({str(n): n for n in range(1_000_000)}).encode(),
    "deep training state": json.dumps({"schema": SCHEMA, "xxh3_128": "", "training": {}}).encode(),
    "endless shape": signed({"schema": SCHEMA, "tensors": {"a": {"dtype": "float32", "shape": [2**62] * 50}}}),
    "floats for integers": signed({"schema": SCHEMA, "step": 1e308}),
}
PICKLES = {
    "place 2^32 in the memo": PROTO + b"Nr\xff\xff\xff\xff.",
    "bytes of 2^60": PROTO + b"\x8e" + struct.pack("<Q", 2**60) + b".",
    "bytearray of 2^40": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "text of 2^31": PROTO + b"X" + struct.pack("<I", 2**31) + b".",
    "frame of 2^62": PROTO + b"\x95" + struct.pack("<Q", 2**62) + b".",
    "number of 2^30 bytes": PROTO + b"\x8b" + struct.pack("<i", 2**30) + b".",
    "key that takes for ever to hash": PROTO + b"}" + doubled(60) + b"Ns.",
    "set of it": PROTO + b"\x8f(" + doubled(60) + b"\x90.",
    "deep tuples": PROTO + b"N" + b"\x85" * 1_000_000 + b".",
    "deep key": PROTO + b"}" + b"N" + b"\x85" * 1_000_000 + b"Ns.",
    "extension": PROTO + b"\x82\x01.",
    "persistent id": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "empty": b"",
    "just a stop": b".",
    "call of a number": PROTO + b"K\x01)R.",
    "command": pickle.dumps(eval, 4),
}


def answer(parse, content: bytes) -> str:
    try:
        return f"accepted: {parse(content, 'file')}"
    except InputError as error:
        return str(error)


def main() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, used + ROOM_BYTES))
    answers = {name: answer(parse_manifest, content) for name, content in MANIFESTS.items()}
    print(json.dumps(answers | {name: answer(parse_index, content) for name, content in PICKLES.items()}))


if __name__ == "__main__":
    main()
