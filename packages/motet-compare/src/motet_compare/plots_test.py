import struct

from motet_compare.plots import cross_matrix


def size_of(path):
    """Return width and height from the header of a PNG."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_a_cross_matrix_grows_with_its_runs(tmp_path):
    cross_matrix([[0.9]], ["a"], tmp_path / "one.png")
    cross_matrix([[0.9, 0.1], [0.0, 1.0]], ["a", "b"], tmp_path / "two.png", agents=("aux", "main"))
    assert size_of(tmp_path / "one.png") < size_of(tmp_path / "two.png")
