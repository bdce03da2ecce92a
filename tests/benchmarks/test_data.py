import numpy as np
import pytest

from benchmarks.data import (
    ClassificationTable,
    RegressionTable,
    load_askl_table,
    load_dank_table,
    load_regression,
    load_texture,
    load_time_series,
)


def test_benchmark_series_come_with_their_split(monkeypatch, tmp_path):
    folder = tmp_path / "timeseries"
    folder.mkdir()
    (folder / "toy.csv").write_text("x,y\n1.0,2.0\n2.0,3.5\n3.0,1.0\n")
    np.savez(folder / "splits.npz", toy_extrap_test=np.array([2]))
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    series = load_time_series("toy")
    assert series.y.tolist() == [2.0, 3.5, 1.0]
    assert series.test.tolist() == [False, False, True]
    with pytest.raises(FileNotFoundError, match=r"other\.csv; series that are there: toy"):
        load_time_series("other")


def test_benchmark_series_without_the_folder_name_the_variable(monkeypatch):
    monkeypatch.delenv("GPYTORCH_NKN_DATA", raising=False)
    loaders = (load_time_series, load_regression, load_askl_table, load_dank_table, load_texture)
    for load in loaders:
        with pytest.raises(FileNotFoundError, match="environment variable GPYTORCH_NKN_DATA"):
            load("airline")


@pytest.fixture
def table_folder(monkeypatch, tmp_path):
    """Folder of the tables of the benchmark data, with the table ``toy``."""
    folder = tmp_path / "uci_regression"
    folder.mkdir()
    np.savez(
        folder / "toy.npz",
        X=np.arange(10, dtype=np.uint8).reshape(5, 2),
        y=np.arange(5, dtype=np.int32),
        nkn_test_idx=np.array([[3], [0]]),
        nkn_pca_test_idx=np.array([0, 4]),
    )
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    return folder


def test_benchmark_tables_come_with_their_splits(table_folder):
    table = load_regression("toy")
    assert table.X.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert table.y.tolist() == [0, 1, 2, 3, 4]
    assert table.X.dtype == table.y.dtype == np.float64
    assert table.test_mask(0).tolist() == [False, False, False, True, False]
    assert table.test_mask(1).tolist() == [True, False, False, False, False]
    assert table.test_mask("pca").tolist() == [True, False, False, False, True]
    for split in (2, -1, "1"):
        with pytest.raises(ValueError, match=f"toy are 0 to 1 or 'pca', got {split!r}"):
            table.test_mask(split)


def test_benchmark_tables_that_are_not_there_are_explained(table_folder):
    with pytest.raises(FileNotFoundError, match=r"/other\.npz; files that are there: toy"):
        load_regression("other")
    np.savez(table_folder / "half.npz", X=np.zeros((2, 1)), y=np.zeros(2))
    with pytest.raises(ValueError, match=r"half\.npz .*lacks nkn_test_idx, nkn_pca_test_idx"):
        load_regression("half")


@pytest.fixture
def askl_folder(monkeypatch, tmp_path):
    """Folder of tables with random splits: ``classes`` with a published one, ``numbers``."""
    folder = tmp_path / "askl"
    folder.mkdir()
    X = np.arange(22, dtype=np.uint8).reshape(11, 2)
    y = np.arange(11) % 3 + 1
    np.savez(folder / "classes.npz", X=X, y=y.astype(np.uint8), n_train=8)
    np.savez(folder / "numbers.npz", X=X, y=y.astype(np.float32))
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    return folder


def test_classification_tables_have_random_splits_and_their_own(askl_folder):
    table = load_askl_table("classes")
    assert isinstance(table, ClassificationTable)
    assert table.X.dtype == np.float64 and table.y.tolist() == [1, 2, 3] * 3 + [1, 2]
    assert table.test_mask("official").tolist() == [False] * 8 + [True] * 3
    rows = np.random.default_rng(4).permutation(11)
    assert np.flatnonzero(table.test_mask(4)).tolist() == sorted(rows[8:])
    tests = {tuple(table.test_mask(split)) for split in range(30)}
    assert len(tests) > 25 and all(sum(test) == 3 for test in tests)
    for split in (30, -1, "pca"):
        with pytest.raises(ValueError, match=f"classes are 0 to 29 or 'official', got {split!r}"):
            table.test_mask(split)


def test_tables_of_real_numbers_are_for_regression(askl_folder):
    table = load_askl_table("numbers")
    assert isinstance(table, RegressionTable) and table.y.dtype == np.float64
    same = load_askl_table("classes")
    np.testing.assert_array_equal(table.test_mask(3), same.test_mask(3))
    with pytest.raises(ValueError, match="numbers are 0 to 29, got 'pca'"):
        table.test_mask("pca")


def test_tables_with_random_splits_that_are_not_there_are_explained(askl_folder):
    with pytest.raises(FileNotFoundError, match=r"askl/other\.npz; .*there: classes, numbers"):
        load_askl_table("other")
    np.savez(askl_folder / "half.npz", X=np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"half\.npz must hold X, y; it lacks y"):
        load_askl_table("half")


@pytest.fixture
def texture_folder(monkeypatch, tmp_path):
    """Folder of the textures of the benchmark data, with the texture ``toy`` of 6 x 5 pixels."""
    folder = tmp_path / "textures"
    folder.mkdir()
    np.savez(folder / "toy.npz", gray=np.arange(30, dtype=np.float32).reshape(6, 5) / 30)
    np.savez(folder / "toy_reference.npz", fill=np.zeros(3))
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    return folder


def test_textures_of_the_benchmarks_are_read_as_they_are(texture_folder):
    pytest.importorskip("skimage")
    texture = load_texture("toy", hole=((1, 3), (2, 4)))
    np.testing.assert_allclose(texture.image, np.arange(30).reshape(6, 5) / 30, rtol=1e-6)
    assert np.flatnonzero(texture.mask).tolist() == [7, 8, 12, 13]
    message = r"textures/other\.npz; files that are there: toy, toy_reference"
    with pytest.raises(FileNotFoundError, match=message):
        load_texture("other")
    with pytest.raises(ValueError, match=r"toy_reference\.npz must hold gray; it lacks gray"):
        load_texture("toy_reference")
    of_the_package = load_texture("brick", hole=((0, 1), (0, 1)))
    assert of_the_package.mask.sum() == 1 and of_the_package.source.startswith("scikit-image")


@pytest.fixture
def dank_folder(monkeypatch, tmp_path):
    """Folder of tables with random halves: two of classes or numbers, one with another target."""
    folder = tmp_path / "dank"
    folder.mkdir()
    X = np.arange(33, dtype=np.uint8).reshape(11, 3)
    np.savez(folder / "classes.npz", X=X, y=np.arange(11) % 2, n_train=8)
    np.savez(folder / "numbers.npz", X=X, y=np.arange(11.0))
    np.savez(folder / "bodyfat.npz", X=X, y=np.zeros(11), y_siri=np.arange(11.0))
    monkeypatch.setenv("GPYTORCH_NKN_DATA", str(tmp_path))
    return folder


def test_tables_for_support_vector_machines_are_halved(dank_folder):
    table = load_dank_table("classes")
    assert isinstance(table, ClassificationTable) and table.X.shape == (11, 3)
    rows = np.random.default_rng(102).permutation(11)
    assert np.flatnonzero(~table.test_mask(2)).tolist() == sorted(rows[:5])
    assert table.test_mask("official").tolist() == [False] * 8 + [True] * 3
    assert isinstance(load_dank_table("numbers"), RegressionTable)


def test_the_column_that_determines_its_target_is_left_out(dank_folder):
    table = load_dank_table("bodyfat")
    assert table.y.tolist() == list(range(11)) and table.X[0].tolist() == [1, 2]


def test_tables_that_are_not_there_or_lack_an_array_are_named(dank_folder):
    with pytest.raises(FileNotFoundError, match="dank/other.npz.*bodyfat, classes, numbers"):
        load_dank_table("other")
    np.savez(dank_folder / "half.npz", y=np.zeros(3))
    with pytest.raises(ValueError, match="lacks X"):
        load_dank_table("half")
