"""`grade --json` and `scores --json`: one document on stdout, whatever was handed in, and progress on stderr."""

import json

from tests.coach.documents import faults
from tests.path.course_maker import hand_in, make_course, release

RIGHT = {"double": "def double(x):\n    return 2 * x", "triple": "def triple(x):\n    return 3 * x"}
WRONG = RIGHT | {"triple": "def triple(x):\n    raise ValueError('\\x1b[31m\\u202e<b>')"}


def test_what_is_graded_and_the_scores_as_data(tmp_path, here) -> None:
    root = make_course(tmp_path)
    release(root)
    hand_in(root, "ada", **RIGHT)
    hand_in(root, "ben", **WRONG)
    hand_in(root, "eve").write_text("not a notebook")

    code, out, err = here(root, "grade", "tiny", "--workers", "1", "--json")
    graded = json.loads(out)
    assert code == 1 and not faults(graded)
    assert "01_tiny: 2 of 3 submissions graded" in err and "eve: tiny.ipynb: is not JSON" in err
    ada, ben, eve = graded["submissions"]
    assert (ada["student"], ada["score"], ada["problems"]) == ("ada", 6.0, [])
    assert [verdict["earned"] for verdict in ada["verdicts"]] == [2.0, 2.0, 2.0] and graded["points"] == 6.0
    assert (ben["score"], ben["verdicts"][2]["earned"]) == (4.0, 0.0) and "ValueError" in ben["verdicts"][2]["message"]
    assert eve["score"] is None and eve["problems"][0]["code"] == "E202" and eve["problems"][0]["fatal"]
    assert "\x1b" not in out and "\u202e" not in out  # a terminal obeys neither

    code, out, err = here(root, "scores", "--json")
    scores = json.loads(out)
    assert (code, err) == (0, "") and not faults(scores) and scores["lost"] is None
    found = {student["student"]: student["scores"]["01_tiny"] for student in scores["students"]}
    assert found == {"ada": 6.0, "ben": 4.0, "eve": None}
    code, out, err = here(root, "scores", "--json", "--why")
    (lost,) = json.loads(out)["lost"]
    assert code == 0 and not faults(json.loads(out))
    assert (lost["student"], lost["check"], lost["earned"], lost["points"]) == ("ben", "triple value", 0.0, 2.0)

    assert here(root, "scores", "tiny", "--json")[1] == here(root, "scores", "--json")[1]  # it is the only set
    code, out, err = here(root, "scores", "large")
    assert code == 2 and "there is no set 'large'" in err

    code, out, err = here(root, "grade", "tiny", "--json")  # what is kept has its verdicts as well
    assert not faults(json.loads(out)) and json.loads(out)["submissions"][0] == ada
    code, out, err = here(root, "grade", "tiny")  # and afterwards stdout is for people again
    assert "of 3 submissions graded" in out
