import json

import pytest

from motet.data.load import check_fields, load_rows
from motet.errors import ConfigError
from tests.fixtures.messages import facts, says


def rows_of(**source):
    return load_rows(**source).rows


ROWS = [{"id": i, "text": f"row {i}"} for i in range(10)]


@pytest.fixture
def jsonl(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def test_a_file_is_one_split_whatever_the_split_is_called(jsonl):
    assert rows_of(path=jsonl) == ROWS
    assert rows_of(path=jsonl, split="test[2:4]") == ROWS[2:4]


def test_json_lists_and_parquet_give_the_same_rows(tmp_path):
    import pyarrow
    from pyarrow import parquet

    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    assert rows_of(path=tmp_path / "rows.json") == rows_of(path=tmp_path / "rows.parquet") == ROWS


def test_the_values_of_a_csv_file_are_texts(tmp_path):
    (tmp_path / "rows.csv").write_text('id,text\n1,"two\nlines, ""quoted"""\n\n2,\n')
    rows = [{"id": "1", "text": 'two\nlines, "quoted"'}, {"id": "2", "text": ""}]
    assert rows_of(path=tmp_path / "rows.csv") == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\n1,2\n3\n", "row 2 has 1 values; expected 2: a, b"),
        (b'a,b\n"1,2\n', "is not CSV in UTF-8"),
        (b"a\n\xff\n", "is not CSV in UTF-8"),
        (b"", "selects none of the 0 rows"),
    ],
)
def test_a_csv_file_that_does_not_add_up_is_refused(tmp_path, text, message):
    (tmp_path / "rows.csv").write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        rows_of(path=tmp_path / "rows.csv")


def test_a_name_that_exists_as_a_path_is_a_path(jsonl):
    assert rows_of(name=str(jsonl), split="train[:1]") == ROWS[:1]


def test_in_a_folder_the_splits_name_chooses_the_files(tmp_path):
    for name, rows in {
        "train-00000-of-00002": ROWS[:3],
        "train-00001-of-00002": ROWS[3:5],
        "test": ROWS[5:],
    }.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert rows_of(path=tmp_path, split="train") == ROWS[:5]
    assert rows_of(path=tmp_path, split="test[-1:]") == ROWS[-1:]
    with pytest.raises(
        ConfigError, match=r"no file for split 'dev'; it has test.jsonl, train-00000"
    ):
        rows_of(path=tmp_path, split="dev")


def test_a_folders_only_file_is_every_split(jsonl):
    assert rows_of(path=jsonl.parent, split="validation") == ROWS


def test_a_folder_saved_by_datasets_is_read(tmp_path):
    import datasets

    whole = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": whole, "test": whole.select([0])}).save_to_disk(
        tmp_path / "many"
    )
    whole.save_to_disk(tmp_path / "one")
    assert rows_of(path=tmp_path / "many", split="test") == ROWS[:1]
    assert rows_of(path=tmp_path / "one", split="train[9:]") == ROWS[9:]
    with pytest.raises(ConfigError, match=facts("'tets' … 'test' … train, test")):
        rows_of(path=tmp_path / "many", split="tets")


def test_the_only_split_is_read_in_place_of_one_that_a_dataset_lacks(tmp_path):
    import datasets

    whole = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"test": whole}).save_to_disk(tmp_path / "one")
    found = load_rows(path=tmp_path / "one", split="train[8:]")
    assert found.rows == ROWS[8:]
    assert found.warnings == (
        f"{tmp_path / 'one'} has no split 'train': its only split, 'test', is read",
    )
    assert load_rows(path=tmp_path / "one", split="test").warnings == ()


def test_the_hub_falls_back_to_the_only_split_and_lists_several(monkeypatch):
    import datasets

    def load_dataset(name, subset, split):
        if split != "test":
            raise ValueError(f'Unknown split "{split}". Should be one of [...].')
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *_: ["test"])
    found = load_rows(name="owner/set", split="train[6:]")
    assert found.rows == ROWS[6:]
    (warning,) = found.warnings
    assert says(warning, "'owner/set' … no split 'train' … 'test' … is read")
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *_: ["test", "validation"])
    with pytest.raises(ConfigError, match=facts("'train' … test, validation")):
        load_rows(name="owner/set", split="train")


def test_the_hub_is_asked_for_the_whole_split_and_sliced_here(monkeypatch):
    import datasets

    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert rows_of(name="owner/set", split="test[3:5]", subset="main") == ROWS[3:5]
    assert asked == [(("owner/set", "main"), {"split": "test"})]


@pytest.mark.parametrize("error", ["DatasetNotFoundError", "DatasetGenerationError"])
def test_what_the_hub_refuses_is_one_clear_line(monkeypatch, error):
    import datasets

    def load_dataset(*args, **kwargs):
        raise getattr(datasets.exceptions, error)("no such thing")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        ConfigError,
        match=facts("'owner/set' … 'test' … no such thing"),
    ):
        rows_of(name="owner/set", split="test")


def test_one_of_path_and_name_is_given(jsonl):
    with pytest.raises(ConfigError, match=facts("path None … name None … exactly one")):
        rows_of()
    with pytest.raises(ConfigError, match="expected exactly one"):
        rows_of(path=jsonl, name="x")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        ConfigError,
        match=facts("gone.jsonl … does not exist … .jsonl, .json, .csv or .parquet"),
    ):
        rows_of(path=tmp_path / "gone.jsonl")


def test_no_rows_is_an_error(tmp_path, jsonl):
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(ConfigError, match=facts("'train' … none of the 0 rows … empty.jsonl")):
        rows_of(path=tmp_path / "empty.jsonl")
    with pytest.raises(ConfigError, match=facts("'train[10:]' … none of the 10 rows")):
        rows_of(path=jsonl, split="train[10:]")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("rows.jsonl", b'{"a": 1}\n\n{"a": 2\n', "rows.jsonl, line 3 … not JSON"),
        ("rows.jsonl", b'{"a": 1}\n[2]\n', "line 2 … list … object"),
        ("rows.jsonl", b'{"a": "\xff"}\n', "line 1 … not JSON"),
        ("rows.json", b'{"a": 1}\n{"a": 2}\n', "rows.json … .jsonl"),
        ("rows.json", b'{"a": 1}', "single dict … list of objects"),
        ("rows.json", b"[1]", "row 1 … int"),
        ("rows.parquet", b"PAR?", "rows.parquet … not … Parquet"),
        ("rows.jsonl", b'{"a":' * 2000, "rows.jsonl, line 1 … not JSON … recursion depth"),
        ("rows.tsv", b"a\tb", "'.tsv' … .jsonl, .json, .csv, .parquet"),
    ],
)
def test_a_broken_file_names_the_place(tmp_path, file, content, message):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ConfigError, match=facts(message)):
        rows_of(path=tmp_path / file)


def test_a_folder_without_data_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="has no data files"):
        rows_of(path=tmp_path)


def test_a_missing_field_names_the_row_and_the_nearest_field():
    check_fields(ROWS, ["id", "text"], "data.train")
    rows = [*ROWS, {"id": 10, "txt": "?"}]
    with pytest.raises(ConfigError) as caught:
        check_fields(rows, ["text"], "data.train")
    assert says(
        caught.value,
        "data.train … row 11 … 'text' … 'txt' … id, txt",
    )


def test_a_slice_that_ends_behind_the_last_row_is_a_warning(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"q": 1}\n{"q": 2}\n')
    loaded = load_rows(tmp_path / "rows.jsonl", split="train[1:1000]")
    assert loaded.rows == [{"q": 2}]
    (warning,) = loaded.warnings
    assert warning.startswith("split 'train[1:1000]' ends at row 1,000, but ")
    assert warning.endswith("rows.jsonl has 2 rows")
    assert load_rows(tmp_path / "rows.jsonl", split="train[:2]").warnings == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rows.jsonl", "rows.jsonl, line 1 is not JSON … expected one JSON object"),
        ("rows.json", "rows.json is not JSON … one object per line belongs in a .jsonl file"),
    ],
)
def test_what_is_no_json_says_what_a_file_of_its_kind_holds(tmp_path, name, said):
    file = tmp_path / name
    file.write_text('{"a": 1')
    with pytest.raises(ConfigError, match=facts(said)):
        rows_of(path=file)
