"""The course for stock nbgrader is stock: it grades, and with nothing of this project's but the sets."""

import nbformat
import pytest
from nbgrader.api import Gradebook

from tests.path.course_maker import hand_in, make_course
from tools import stock


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("root"))
    return stock.stock_course(root, tmp_path_factory.mktemp("stock"), ["01_tiny"])


def test_it_grades_as_nbgrader_does(course):
    hand_in(course, "some", double="def double(x):\n    return 2 * x", triple="raise SystemExit")
    done = stock.nbgrader(course, "autograde", "01_tiny", timeout=120)
    assert done.returncode == 0, done.stderr
    with Gradebook(f"sqlite:///{course}/gradebook.db", "stock") as gradebook:
        assert gradebook.find_submission("01_tiny", "some").score == 4
    executed = nbformat.read(course / "autograded/some/01_tiny/tiny.ipynb", as_version=4)
    assert {cell.metadata.nbgrader.schema_version for cell in executed.cells if "nbgrader" in cell.metadata} == {3}


def test_its_configuration_names_folders_and_nothing_else(course):
    lines = (course / "nbgrader_config.py").read_text(encoding="utf-8").split("\n")
    assert [line for line in lines if line and not line.startswith(("c = ", "c.CourseDirectory."))] == []


def test_what_is_there_already_is_left_alone(course, tmp_path):
    with pytest.raises(stock.StockError, match="not empty"):
        stock.stock_course(course, course, ["01_tiny"])
    with pytest.raises(stock.StockError, match="no set 02_none"):
        stock.stock_course(course, tmp_path, ["02_none"])
    assert list(tmp_path.iterdir()) == []


def test_a_set_that_nbgrader_refuses_is_named(course, tmp_path):
    root = make_course(tmp_path / "root")
    path = root / "solutions/01_tiny/tiny.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("### END SOLUTION", ""), encoding="utf-8")
    with pytest.raises(stock.StockError, match="refuses 01_tiny"):
        stock.stock_course(root, tmp_path / "stock", ["01_tiny"])
