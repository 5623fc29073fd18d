"""Archives: damage, files of other programs, and what a file says about its fit."""

import zipfile

import numpy as np
import pytest
from support.archives import rewritten

import dgp_ppl
from dgp_ppl import DataError
from dgp_ppl.models import svgp
from dgp_ppl.persistence import _archive, read_record
from dgp_ppl.persistence._archive import ArchiveReader, array_bytes, read_array, write_archive

ARRAY = np.arange(40, dtype=np.float32).reshape(5, 8)
WANTED = "a fit that dgp_ppl.save wrote"


@pytest.fixture
def path(tmp_path):
    write_archive(
        tmp_path / "fit.dgp", "fit", 1, {"versions": {"dgp_ppl": "9.9"}, "n": [1.5, "ü"]},
        {"a.npy": array_bytes(ARRAY)},
    )  # fmt: skip
    return tmp_path / "fit.dgp"


def content(path):
    archive = ArchiveReader(path)
    return archive.record, read_array(archive.member("a.npy")).tolist()


def test_an_archive_comes_back(path):
    record, array = content(path)
    assert record["n"] == [1.5, "ü"]
    np.testing.assert_array_equal(array, ARRAY)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write_archive(tmp_path / name, "fit", 1, {"n": 1}, {"a.npy": array_bytes(ARRAY)})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_link_stays_a_link(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    write_archive(link, "fit", 1, {"n": 2}, {})
    assert link.is_symlink()
    assert ArchiveReader(path).record["n"] == 2


def test_damage_is_seen_or_harmless(path):
    """Of files that are cut short, and of files with a changed byte."""
    whole, expected, errors = path.read_bytes(), content(path), []
    for length in range(60, len(whole), 15):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"is damaged or cut short"):
            content(path)
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            assert content(path) == expected  # such as a date of the zip file
        except DataError as error:
            errors.append(str(error))
    assert len(errors) > len(whole) / 14
    assert not any("\n" in error for error in errors)


def test_files_that_are_no_archives_of_this_kind(path, tmp_path):
    """Each error says in one line what the file is, and what was wanted."""
    other = tmp_path / "other"
    np.savez(tmp_path / "arrays.npz", a=ARRAY)
    for foreign in (b"", b"x,y\n1,2\n", (tmp_path / "arrays.npz").read_bytes(), b"PK\x03\x04"):
        other.write_bytes(foreign)
        with pytest.raises(DataError, match=rf"is not a file of dgp_ppl; wanted {WANTED}"):
            ArchiveReader(other)
    for unreadable in (tmp_path / "missing.dgp", tmp_path):
        with pytest.raises(DataError, match=r"cannot be read: .*; wanted a fit"):
            ArchiveReader(unreadable)
    write_archive(path, "fit", 2, {"versions": {"dgp_ppl": "9.9"}}, {})
    with pytest.raises(DataError, match=r"format 2, written by dgp_ppl 9.9.*up to 1: update"):
        ArchiveReader(path)
    write_archive(path, "export", 1, {}, {})
    with pytest.raises(DataError, match=r"another kind of file, 'export'; wanted a fit"):
        ArchiveReader(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("dgp_ppl.json", "[]")
    with pytest.raises(DataError, match=r"damaged"):
        ArchiveReader(path)


def test_small_files_of_large_content_are_refused_unread(path, monkeypatch):
    """By the sizes that they state, and by the sizes they have; large files are not compressed."""
    zeros = np.zeros(10**6, np.uint8)
    monkeypatch.setattr(_archive, "_SMALL", 10**4)
    write_archive(path, "fit", 1, {}, {"a.npy": array_bytes(zeros)})
    assert path.stat().st_size > 10**6
    assert not read_array(ArchiveReader(path).member("a.npy")).any()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("dgp_ppl.json", '{"kind": "fit", "format": 1}')
        file.writestr("a.npy", array_bytes(zeros))
    bomb = path.read_bytes()
    with pytest.raises(DataError, match=r"a.npy would take 1,000,128 bytes, more than"):
        ArchiveReader(path).member("a.npy")
    path.write_bytes(bomb.replace((1_000_128).to_bytes(4, "little"), (9).to_bytes(4, "little")))
    archive = ArchiveReader(path)
    archive._room = 10
    for said in ("Bad CRC-32 for file 'a.npy'", "a.npy would take 9 bytes, more"):
        with pytest.raises(DataError, match=said):  # it counts how often a member is read
            archive.member("a.npy")


def test_the_record_is_read_without_the_parts_and_checked(tmp_path):
    """`read_record` imports no model. Entries of another type are damage, for the fit too."""
    path, options = tmp_path / "fit.dgp", {"columns": ["age"], "info": {"target": "price"}}
    dgp_ppl.save(path, svgp, None, {}, **options, data=([[1.0]], [2.0]))
    whole = path.read_bytes()
    path.write_bytes(rewritten(whole, content={"model": "gone"}))
    record = read_record(path)
    assert (record["model"], record["columns"]) == ("dgp_ppl.models.svgp", ["age"])
    assert record["info"] == {"target": "price"}
    assert record["data"]["shapes"] == [[1, 1], [1]]
    for entry, value in (
        ("versions", {"jax": "0.10", "date": "x"}), ("model", 3), ("info", [1]),
        ("columns", "age"), ("columns", [{}]), ("data", []),
    ):  # fmt: skip
        path.write_bytes(rewritten(whole, **{entry: value}))
        for read in (read_record, dgp_ppl.load):
            with pytest.raises(DataError, match=f"damaged or cut short .its {entry} is"):
                read(path)
