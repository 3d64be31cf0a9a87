"""Rows of measured runs: what is filled by which rule, what is refused with which words."""

from pathlib import Path

import pytest
from shared_data import ROW

from argosy.errors import InputError
from argosy.planner.cases import cases_from, read_cases
from argosy.planner.workload import DTYPES


def _fields(**cells: str) -> dict[str, float]:
    fields = cases_from([ROW | cells]).rows[0].fields
    assert fields is not None
    return fields


def test_a_known_model_name_fills_its_shape() -> None:
    empty = dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "vocab", "gated_mlp"), "")
    fields = _fields(**empty, model_name="llama3-8b")
    assert (fields["layers"], fields["hidden"], fields["kv_heads"], fields["vocab"]) == (32, 4096, 8, 128_256)
    assert fields["gated"] == 1


def test_what_is_missing_is_listed_and_the_row_is_not_predicted() -> None:
    row = cases_from([ROW | {"layers": "", "gpus": "", "model_name": "secret"}]).rows[0]
    assert row.fields is None
    assert set(row.missing) == {"gpus", "layers"}


def test_an_unknown_accelerator_is_a_reason_not_a_crash() -> None:
    row = cases_from([ROW | {"gpu": "H1000"}]).rows[0]
    assert row.fields is None
    assert "unknown accelerator 'H1000'" in row.missing[0]


def test_parameters_decide_what_cells_leave_open() -> None:
    # Gated and tied, and by chance as large as neither: then it is taken for what newer models are
    fields = _fields(layers="16", hidden="2048", ffn_hidden="8192", heads="32", vocab="131072", gated_mlp="",
                     params_b="1.34")  # fmt: skip
    assert (fields["gated"], fields["tied"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "per_gpu"),
    [("8x200 Gb/s HDR IB per node", 25e9), ("4x100 Gb/s RoCE per node", 6.25e9), ("1600 Gb/s per node RoCE", 25e9),
     ("NVLink + 4 Omni-Path links per node", 6.25e9), ("", 25e9)],
)  # fmt: skip
def test_networks_as_people_write_them(text: str, per_gpu: float) -> None:
    assert _fields(interconnect_if_stated=text)["nic_bytes_per_s"] == per_gpu


def test_precision_words() -> None:
    names = {
        text: DTYPES[int(_fields(gpu="B200", precision=text)["dtype"])] for text in ("mxfp8", "nvfp4", "bf16", "fp8-cs")
    }
    assert names == {"mxfp8": "fp8", "nvfp4": "fp4", "bf16": "bf16", "fp8-cs": "fp8"}


def test_impossible_layouts_are_named() -> None:
    assert "pp·vpp 64 > layers 32" in (cases_from([ROW | {"pp": "64", "tp": "1", "dp": "1"}]).rows[0].invalid or "")
    assert "not 64 accelerators" in (cases_from([ROW | {"dp": "3"}]).rows[0].invalid or "")


def test_a_row_that_asks_whether_it_fits_recomputes_nothing() -> None:
    assert _fields(recompute="", status="failed")["recompute_layers"] == 0


def test_damaged_files_say_where(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: layers is no number: 'many'"):
        cases_from([ROW | {"layers": "many"}])
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="has no column gpu, gpus"):
        read_cases(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_cases(tmp_path / "absent.csv")
