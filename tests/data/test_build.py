import gzip
import itertools
import json
import lzma
import multiprocessing
import os
import resource
import signal
import time

import numpy as np
import pytest
from texts import Texts

from argosy.data import encode as encode_module
from argosy.data.build import Options, TokenizerSpec, build_data_set, read_manifest
from argosy.data.corpus import Document, split_hash
from argosy.data.files import build_folder, locked
from argosy.data.inspect import inspect
from argosy.data.shards import TokenShards
from argosy.data.textfiles import TextFiles
from argosy.data.tokenizer import Tokenizer
from argosy.errors import Exit, InputError, StoppedError

BPE = TokenizerSpec("bpe", 280)
CORPUS = Texts(tuple(f"document {number}: " + "word " * (number % 17) + "ende\n" for number in range(400)))


def make(out, corpus=CORPUS, spec=BPE, share=0.1, **rest):
    build_data_set(corpus, out, spec, Options(held_out_share=share, **rest), say=lambda line: None)
    return out


def documents_of(folder, part):
    tokenizer = Tokenizer.load(folder / "tokenizer.json", read_manifest(folder)["tokenizer"]["kind"])
    shards = TokenShards.open(folder / part, verify=True)
    starts = 0
    for end in np.concatenate(list(shards.document_ends())).tolist():
        ids = shards.read(starts, end)
        assert ids[-1] == tokenizer.end_of_text
        yield tokenizer.decode(ids[:-1])
        starts = end


@pytest.mark.parametrize("spec", [BPE, TokenizerSpec("bytes")], ids=["bpe", "bytes"])
def test_every_document_is_there_once_in_order(tmp_path, spec):
    folder = make(tmp_path / "out", spec=spec)
    train, held_out = list(documents_of(folder, "train")), list(documents_of(folder, "held_out"))
    assert sorted(train + held_out) == sorted(CORPUS.texts)
    assert train == [text for text in CORPUS.texts if text in set(train)]
    assert 15 < len(held_out) < 70
    source = read_manifest(folder)["source"]
    assert source["documents"] == 400
    assert source["text_bytes"] == sum(len(text) for text in CORPUS.texts)


def test_equal_sources_give_equal_data_and_others_do_not(tmp_path):
    digests = [
        read_manifest(make(tmp_path / str(number), corpus, spec))["digest"]
        for number, (corpus, spec) in enumerate(
            [
                (CORPUS, BPE),
                (CORPUS, BPE),
                (CORPUS, TokenizerSpec("bpe", 270)),
                (Texts(CORPUS.texts[1:]), BPE),
            ]
        )
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_copies_of_a_text_fall_on_the_same_side(tmp_path):
    folder = make(tmp_path / "out", Texts(CORPUS.texts + CORPUS.texts))
    assert not set(documents_of(folder, "train")) & set(documents_of(folder, "held_out"))


def test_one_document_cannot_dominate_the_held_out_text(tmp_path):
    texts = (f"{number} " * 10_000 for number in itertools.count())
    giant = next(text for text in texts if split_hash(Document("", text, text.encode())) < 0.1 * 2**64)
    folder = make(tmp_path / "out", Texts((*CORPUS.texts, giant)), TokenizerSpec("bytes"), share=0.1)
    assert giant in set(documents_of(folder, "train"))


def test_a_small_corpus_still_holds_one_document_out(tmp_path):
    folder = make(
        tmp_path / "out", Texts(("first text", "second text", "third text")), TokenizerSpec("bytes"), share=1e-6
    )
    assert len(list(documents_of(folder, "held_out"))) == 1
    assert len(list(documents_of(folder, "train"))) == 2


@pytest.mark.parametrize(
    ("texts", "message"), [((), "no document"), (("one",), "1 document with text"), (("same", "same"), "'train'")]
)
def test_too_little_text_is_refused(tmp_path, texts, message):
    with pytest.raises(InputError, match=message):
        make(tmp_path / "out", Texts(texts))
    assert os.listdir(tmp_path) == []


def test_baselines_are_those_of_gzip_and_xz(tmp_path):
    folder = make(tmp_path / "out", share=0.5)
    text = "".join(documents_of(folder, "held_out")).encode()
    baselines = read_manifest(folder)["baselines"]
    assert baselines["text_bytes"] == len(text) == TokenShards.open(folder / "held_out").text_bytes
    assert baselines["gzip_bits_per_byte"] == 8 * len(gzip.compress(text, 9)) / len(text)
    assert baselines["xz_bits_per_byte"] == 8 * len(lzma.compress(text, preset=9)) / len(text)


def test_a_tokenizer_file_is_used_as_it_is(tmp_path):
    first = make(tmp_path / "first")
    path = first / "tokenizer.json"
    second = make(tmp_path / "second", spec=TokenizerSpec("file", path=path))
    assert read_manifest(second)["digest"] == read_manifest(first)["digest"]
    assert read_manifest(second)["tokenizer"]["kind"] == "file"


def test_bad_records_are_set_aside_up_to_a_limit(tmp_path):
    source = tmp_path / "x.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n{bad\n" for text in CORPUS.texts[:20]))
    folder = make(tmp_path / "out", TextFiles(source), most_rejected=20)
    rejected = [json.loads(line) for line in (folder / "rejected.jsonl").read_text().splitlines()]
    assert len(rejected) == read_manifest(folder)["source"]["rejected"] == 20
    assert rejected[0]["record"] == "x.jsonl:2"
    assert rejected[0]["beginning"] == "{bad\n"
    with pytest.raises(InputError, match=r"x\.jsonl:40: bad record .* the 20\. of 40.*more than 19"):
        make(tmp_path / "other", TextFiles(source), most_rejected=19)
    assert not (tmp_path / "other").exists()


def test_a_source_that_changes_meanwhile_is_noticed(tmp_path):
    class Growing:
        name = "growing"
        reads = 0

        def __iter__(self):
            self.reads += 1
            return iter(Texts(CORPUS.texts[: 100 + self.reads]))

    with pytest.raises(InputError, match="changed while it was read"):
        make(tmp_path / "out", Growing())


def test_a_full_folder_is_never_overwritten(tmp_path):
    make(tmp_path / "out")
    before = (tmp_path / "out" / "dataset.json").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        make(tmp_path / "out", Texts(CORPUS.texts[:50]))
    assert (tmp_path / "out" / "dataset.json").read_bytes() == before


def test_a_full_disk_leaves_nothing(tmp_path):
    """The system refuses to let a file grow beyond a limit, which reads like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StoppedError, match="no space left") as caught:
            make(tmp_path / "out", spec=TokenizerSpec("bytes"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == Exit.NEEDS_PERSON
    assert os.listdir(tmp_path) == []


def test_no_permission_says_so(tmp_path):
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:  # whom no mode stops
        os.seteuid(65_534)
    try:
        with pytest.raises(InputError, match="no permission"):
            make(tmp_path / "out")
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


def _build_slowly(out, built):
    def fill(folder):
        (folder / "half").write_text("half")
        time.sleep(0.2)
        (folder / "half").rename(folder / "whole")

    built.put(build_folder(out, fill, lambda line: None))


def test_of_processes_that_race_one_builds_and_all_find_it(tmp_path):
    context = multiprocessing.get_context("fork")
    built = context.Queue()
    racers = [context.Process(target=_build_slowly, args=(tmp_path / "out", built)) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(30)
    assert sorted(built.get(timeout=5) for _ in racers) == [False, False, False, True]
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(tmp_path / "out") == ["whole"]


def _hold(path, outcomes):
    with locked(path, lambda: None):
        alone = path.with_name("alone")
        try:
            alone.touch(exist_ok=False)
        except FileExistsError:
            outcomes.put(False)
            return
        time.sleep(0.05)
        alone.unlink()
    outcomes.put(True)


def test_only_one_process_holds_a_lock_although_its_file_goes_away(tmp_path):
    context = multiprocessing.get_context("fork")
    outcomes = context.Queue()
    holders = [context.Process(target=_hold, args=(tmp_path / "lock", outcomes)) for _ in range(6)]
    for holder in holders:
        holder.start()
        time.sleep(0.03)  # some come while another holds it, some while its file is being removed
    assert all(outcomes.get(timeout=20) for _ in holders)
    for holder in holders:
        holder.join(20)
    assert os.listdir(tmp_path) == []


def test_a_killed_build_leaves_nothing_that_looks_whole_and_the_next_one_succeeds(tmp_path):
    context = multiprocessing.get_context("fork")
    victim = context.Process(target=_build_slowly, args=(tmp_path / "out", context.Queue()))
    victim.start()
    half = tmp_path / ".out.building" / "half"
    deadline = time.monotonic() + 20
    while not half.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(victim.pid, signal.SIGKILL)
    victim.join(20)
    assert half.exists()
    assert not (tmp_path / "out").exists()
    make(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    assert "half" not in os.listdir(tmp_path / "out")


def test_inspect_describes_and_verifies(tmp_path):
    folder = make(tmp_path / "out")
    found = inspect(folder)
    json.dumps(found)
    assert found["splits"]["train"]["documents"] + found["splits"]["held_out"]["documents"] == 400
    assert found["splits"]["train"]["beginning"] in CORPUS.texts[0] + "<|endoftext|>"
    path = folder / "held_out" / "ends-00000.bin"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(InputError, match=r"held_out/ends-00000\.bin: wrong digest"):
        inspect(folder)


def test_text_is_encoded_in_bounded_pieces(tmp_path, monkeypatch):
    whole = read_manifest(make(tmp_path / "whole"))["digest"]
    monkeypatch.setattr(encode_module, "BATCH_BYTES", 100)
    assert read_manifest(make(tmp_path / "pieces"))["digest"] == whole
