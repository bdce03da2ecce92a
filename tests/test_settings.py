import threading

import pytest

from gpytorch_nkn.settings import kernel_evaluation

pytestmark = pytest.mark.usefixtures("default_evaluation")

PATHS = ["auto", "plain", "tiles", "compiled"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_holds_inside_the_context_only(path):
    setting = kernel_evaluation(path)
    assert kernel_evaluation.path() == "auto"
    for _ in range(2):
        with setting, setting:
            assert kernel_evaluation.path() == setting.path() == path
        assert kernel_evaluation.path() == "auto"


def test_an_exception_restores_the_path_and_is_passed_on():
    with kernel_evaluation("compiled"):
        with pytest.raises(KeyError, match="of the caller"):
            with kernel_evaluation("plain"):
                raise KeyError("of the caller")
        assert kernel_evaluation.path() == "compiled"
    assert kernel_evaluation.path() == "auto"


@pytest.mark.parametrize("path", ["fast", None])
def test_other_paths_are_rejected(path):
    with pytest.raises(ValueError, match=rf"path must be one of .*'tiles'.*got {path!r}"):
        kernel_evaluation(path)


def test_worker_threads_see_the_path():
    """As GPyTorch's settings, it belongs to the process: an evaluation may use threads."""
    seen = []
    with kernel_evaluation("plain"):
        worker = threading.Thread(target=lambda: seen.append(kernel_evaluation.path()))
        worker.start()
        worker.join()
    assert seen == ["plain"]


def test_contexts_need_not_be_left_in_reverse_order():
    """As happens with several threads."""
    first, second = kernel_evaluation("plain"), kernel_evaluation("tiles")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert kernel_evaluation.path() == "tiles"
    second.__exit__(None, None, None)
    assert kernel_evaluation.path() == "auto"
