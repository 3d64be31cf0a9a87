"""A build that was killed goes on: finished shards are not done again, and the result is that of an undisturbed one."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from texts import Texts

from argosy.data import build as build_module
from argosy.data.build import Options, TokenizerSpec, build_data_set, read_manifest
from argosy.data.textfiles import TextFiles
from argosy.errors import StoppedError

BUILD = (
    "import sys; from pathlib import Path; from argosy.data.textfiles import TextFiles;"
    "from argosy.data.build import Options, TokenizerSpec, build_data_set;"
    "source, out, workers = sys.argv[1:]; corpus = TextFiles(source);"
    "print('ready', flush=True);"
    "build_data_set(corpus, Path(out), TokenizerSpec('bpe', 400), Options(shard_tokens=2000, workers=int(workers)),"
    "fingerprint=corpus.fingerprint, say=lambda line: None)"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    generator, path = random.Random(0), tmp_path_factory.mktemp("source") / "x.jsonl"
    words = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 9))) for _ in range(300)]
    with path.open("w") as file:
        for _ in range(3000):
            file.write(json.dumps({"text": " ".join(generator.choices(words, k=generator.randint(5, 60)))}) + "\n")
    return path


def start(source, out, workers=1):
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    arguments = [sys.executable, "-c", BUILD, str(source), str(out), str(workers)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture(scope="module")
def undisturbed(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    began_s = time.monotonic()
    assert start(source, out).wait(120) == 0
    return read_manifest(out)["digest"], time.monotonic() - began_s


def finished(out):
    """Finished shards under way: file → inode and time of change."""
    building = out.with_name(f".{out.name}.building")
    found = {}
    for part in ("train", "held_out"):
        list_of_them = building / part / "finished.jsonl"
        count = len(list_of_them.read_text().splitlines()) if list_of_them.exists() else 0
        for path in (building / part / f"tokens-{number:05d}.bin" for number in range(count)):
            found[path.relative_to(building)] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def kill_and_go_on(source, out, undisturbed, seed, most):
    digest, duration_s = undisturbed
    generator, kills = random.Random(seed), 0
    for _ in range(most):
        process = start(source, out)
        try:
            process.wait(generator.uniform(0, 0.8) * duration_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        if out.exists():
            break
        assert not list(out.parent.glob("out/*")), "nothing looks whole before it is"
    before = finished(out)
    if not out.exists():
        assert start(source, out).wait(120) == 0
        for path, identity in before.items():
            stat = (out / path).stat()
            assert (stat.st_ino, stat.st_mtime_ns) == identity, f"{path} was made again"
    assert read_manifest(out)["digest"] == digest
    assert sorted(os.listdir(out)) == ["dataset.json", "held_out", "tokenizer.json", "train"]
    assert os.listdir(out.parent) == ["out"]
    return kills


@pytest.mark.chaos
def test_killed_at_random_points_and_gone_on(source, undisturbed, tmp_path):
    kills = sum(kill_and_go_on(source, tmp_path / f"{n}" / "out", undisturbed, n, 2) for n in range(3))
    assert kills >= 1  # a machine that has become faster may finish before its time


@pytest.mark.chaos
@pytest.mark.slow
def test_killed_at_fifty_random_points(source, undisturbed, tmp_path):
    kills = 0
    while kills < 50:
        kills += kill_and_go_on(source, tmp_path / f"{kills}" / "out", undisturbed, kills, 5)


def test_processes_change_nothing(source, undisturbed, tmp_path):
    assert start(source, tmp_path / "out", workers=3).wait(120) == 0
    assert read_manifest(tmp_path / "out")["digest"] == undisturbed[0]


def test_every_stage_is_gone_on_with(source, tmp_path, monkeypatch):
    """Stops at each call that begins something, and counts what is done again."""
    corpus, out = TextFiles(source), tmp_path / "out"
    scans = []
    monkeypatch.setattr(build_module, "scan", lambda *a, original=build_module.scan: scans.append(1) or original(*a))

    def once(progress):
        build_data_set(
            corpus,
            out,
            TokenizerSpec("bytes"),
            Options(shard_tokens=20_000),
            fingerprint=corpus.fingerprint,
            say=lambda line: None,
            progress=progress,
        )

    done = []

    def stop_at(limit):
        def progress(bytes_done, total):
            done.append(bytes_done / total)
            if bytes_done > limit * total:
                raise KeyboardInterrupt

        return progress

    for limit in (0.2, 0.5, 0.9, 0.97):  # the last one lies in the second part
        with pytest.raises(KeyboardInterrupt):
            once(stop_at(limit))
    done.clear()
    once(stop_at(2))
    assert len(scans) == 1
    assert min(done) > 0.93, "what was finished is not read into tokens again"
    assert done[-1] == 1.0


def test_another_source_or_another_option_starts_afresh(source, tmp_path):
    out = tmp_path / "out"

    def build(corpus, options, progress=lambda done, total: None):
        arguments = {"fingerprint": corpus.fingerprint, "say": lambda line: None, "progress": progress}
        build_data_set(corpus, out, TokenizerSpec("bytes"), options, **arguments)

    def interrupt(done, total):
        if done > total / 2:
            raise KeyboardInterrupt

    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(source.read_bytes()[:200_000].rpartition(b"\n")[0])
    for corpus, options in (
        (TextFiles(changed), Options(shard_tokens=20_000)),
        (TextFiles(source), Options(shard_tokens=30_000)),
    ):
        with pytest.raises(KeyboardInterrupt):
            build(TextFiles(source), Options(shard_tokens=20_000), interrupt)
        seen = []
        build(corpus, options, lambda done, total, seen=seen: seen.append(done / total))
        assert seen[0] < 0.05
        for path in sorted(out.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()


def test_a_full_disk_keeps_what_is_finished(source, tmp_path):
    """The disk is full when the second part begins; the first is not made again."""
    corpus, out = TextFiles(source), tmp_path / "out"

    def build(progress=lambda done, total: None):
        arguments = {"fingerprint": corpus.fingerprint, "say": lambda line: None, "progress": progress}
        build_data_set(corpus, out, TokenizerSpec("bytes"), Options(shard_tokens=20_000), **arguments)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_up(done, total):
        if done > total / 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))

    try:
        with pytest.raises(StoppedError, match=r"no space left.*start again"):
            build(fill_up)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not out.exists()
    assert len(finished(out)) > 3
    seen = []
    build(lambda done, total: seen.append(done / total))
    assert seen[0] > 0.4
    assert read_manifest(out)["source"]["documents"] == 3000


def test_copies_are_left_out_or_counted(tmp_path):
    texts = tuple(f"text {n % 70}" for n in range(100))
    for keep in (False, True):
        out = tmp_path / str(keep)
        options = Options(held_out_share=0.2, keep_copies=keep)
        build_data_set(Texts(texts), out, TokenizerSpec("bytes"), options, say=lambda line: None)
        source = read_manifest(out)["source"]
        assert (source["documents"], source["copies"]) == (100, 30)
        assert source["copied_bytes"] == sum(len(text) for text in texts[70:])
        counts = {"documents": 0, "tokens": 0, "unique_tokens": 0}
        for part in ("train", "held_out"):
            manifest = json.loads((out / part / "manifest.json").read_text())
            counts = {name: counts[name] + manifest[name] for name in counts}
        unique = sum(len(text) + 1 for text in texts[:70])
        assert counts["unique_tokens"] == unique
        assert counts["documents"] == (100 if keep else 70)
        assert counts["tokens"] == (sum(len(text) + 1 for text in texts) if keep else unique)
