"""How the tests are shared among workers, and in which order they run.

What leans on one another stays on one worker: the cells of a notebook, the tests of a task, which share its records,
and the tests of a module with a costly fixture. The longest come first, so that no worker is left with one at the end.

The slowest are marked `slow`: `make test` leaves them out, `make test-all` does not; with COURSE_SLOW=4 about one in
four is run, others for another commit. Where there is no C++ compiler, what needs one is left out, unless
COURSE_REQUIRE_COMPILER=1.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from xdist.workermanage import WorkerController

FIRST = ("tests/engine", "tests/path", "tests/book", "tests/graders", "book")  # the rest is short
APART = {  # files that are shared out by so many of their tests' parameters; the rest of a file stays together
    "tests/graders/test_sets.py": 2,  # set and task
    "tests/graders/test_half.py": 1,  # set
    "tests/graders/test_solutions.py": 1,  # set
    "tests/graders/test_visible.py": 1,  # set
    "tests/path/test_sample.py": 1,  # student
    "tests/path/test_grade_cells.py": 1,  # set
    "tests/book/test_browser.py": 1,  # page
    "tests/engine/test_attacks.py": 1,  # class
}

# Before torch is loaded: the workers share the cores, and what is forked after a second thread of OpenMP's would hang.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_CBWR"] = "COMPATIBLE"  # as `tools.notebooks` has it: the same last digits on every processor
COMPILED = ("book/d_kernels.ipynb", "tests/book/test_kernels.py", "tests/tools/test_bench_kernels.py")


SLOW = (  # about what changes seldom: benchmarks, another torch, stock nbgrader, other machines and databases; what
    # waits long: kills, deadlines, other users, want of memory, whole archives as a newcomer has them; and what says on
    # every page, record or mistake what a quicker test says on some
    "tests/book/test_checklist.py::test_without_assertions_the_list_refuses",
    "tests/book/test_downloads.py::test_the_unpacked_book_opens_from_the_disk",
    "tests/book/test_downloads.py::test_colab_s_cell_fetches_the_coach_from_the_published_book",
    "tests/book/test_errors.py::test_the_search_leads_each_message_to_its_entry",
    "tests/book/test_figures.py::test_float_window_says_what_the_chapter_computes",
    "tests/book/test_figures.py::test_quantiser_bits_says_what_torch_computes",
    "tests/book/test_kernels.py::test_a_planted_fault_is_seen",
    "tests/book/test_kernels.py::test_the_cuda_source_compiles",
    "tests/book/test_kernels.py::test_without_its_tools_the_page_goes_on",
    "tests/book/test_look.py::test_the_build_fails_where_something_is_missing",
    "tests/book/test_pages.py::test_a_second_build_takes_a_new_style",
    "tests/book/test_pages.py::test_icons_are_drawn_from_the_small_font",
    "tests/book/test_planted.py",
    "tests/book/test_quiz.py::test_the_answers_open_by_keyboard_and_without_script",
    "tests/book/test_reading.py::test_a_card_is_shown_on_hover_can_be_hovered_and_is_dismissed[http]",
    "tests/book/test_reading.py::test_a_choice_is_remembered_as_long_as_the_option_says_the_same",
    "tests/book/test_reading.py::test_each_message_of_the_page_pasted_whole_is_found",
    "tests/book/test_reading.py::test_where_storage_is_refused_or_spoilt_a_page_does_the_rest",
    "tests/book/test_source.py::test_an_address_that_is_none_ends_the_build_with_a_line",
    "tests/book/test_source.py::test_with_a_repository_a_notebook_opens_in_two_places_and_its_source_is_linked",
    "tests/coach/test_alone.py::test_a_cell_that_does_not_end_is_named",
    "tests/coach/test_alone.py::test_a_loop_that_does_not_end_is_ended_and_what_was_found_stays",
    "tests/coach/test_solutions.py::test_each_way_runs_as_it_is_shown_and_passes",
    "tests/engine/test_attacks.py",
    "tests/engine/test_bounds.py::test_a_judge_that_gets_lost",
    "tests/engine/test_bounds.py::test_what_cannot_be_read",
    "tests/engine/test_dask.py",
    "tests/engine/test_denied.py::test_torch_s_own_backwards_are_denied",
    "tests/engine/test_neighbours.py",
    "tests/engine/test_outside.py",
    "tests/engine/test_pool.py",
    "tests/engine/test_postgres.py",
    "tests/engine/test_run.py::test_more_is_loaded_before_the_kernel_is_forked_where_it_is_used",
    "tests/engine/test_sandbox.py::test_an_ordinary_user",
    "tests/engine/test_unseen.py::test_a_warm_parent_that_dies",
    "tests/engine/test_unseen.py::test_an_ordinary_users_kernels",
    "tests/engine/test_unseen.py::test_memory_that_others_took",
    "tests/engine/test_user.py",
    "tests/engine/test_wire.py::test_the_costliest_header_is_cheap",
    "tests/engine/test_wire.py::test_whatever_comes_back_ends_in_a_verdict",
    "tests/graders/test_classes.py::test_a_task_has_cases_that_are_no_even_mixture",
    "tests/graders/test_classes.py::test_what_is_not_asked_is_not_seen",
    "tests/graders/test_half.py::test_a_mistake_costs_at_most_half",
    "tests/graders/test_index.py::test_the_index_is_what_the_mistakes_do",
    "tests/graders/test_paste.py::test_the_code_of_every_mistake",
    "tests/graders/test_sets.py::test_behind_a_pipe_the_verdicts_are_the_same",
    "tests/graders/test_sets.py::test_no_two_solutions_share_a_record",
    "tests/graders/test_sets.py::test_nothing_is_lost_on_the_wire",
    "tests/graders/test_sets.py::test_pasting_the_book_earns_at_most_five_points",
    "tests/graders/test_testfile.py::test_the_lines_that_failed_are_shown",
    "tests/graders/test_visible.py::test_what_passes_the_visible_checks_is_listed_with_its_reason",
    "tests/path/test_class.py::test_an_interruption_keeps_what_is_done",
    "tests/path/test_class.py::test_release_has_no_student_level",
    "tests/path/test_autograder.py::test_what_is_no_notebook",
    "tests/path/test_autograder.py::test_where_the_machine_is_at_fault",
    "tests/path/test_collect.py::test_a_late_submission_is_late_in_the_export",
    "tests/path/test_extend.py::test_an_extension_before_anything",
    "tests/path/test_desk.py",
    "tests/path/test_doctor.py::test_the_doctor_and_grading_repair_alike",
    "tests/path/test_escaping.py",
    "tests/path/test_feedback_page.py::test_one_page_that_takes_too_long_is_a_line_and_the_others_are_made",
    "tests/path/test_feedback_page.py::test_the_index_names_the_tests",
    "tests/path/test_feedback_page.py::test_a_lost_point_leads_to_the_book_and_is_explained_once",
    "tests/path/test_flow.py::test_a_failing_record_costs_one_submission",
    "tests/path/test_flow.py::test_nbgrader_s_own_command",
    "tests/path/test_flow.py::test_the_gradebook_is_that_of_stock_nbgrader",
    "tests/path/test_flow.py::test_what_a_mark_says_is_said_again_and_an_older_form_is_graded_again",
    "tests/path/test_formgrader.py",
    "tests/path/test_giving.py::test_after_an_interruption_what_was_made_is_kept",
    "tests/path/test_giving.py::test_pages_are_those_of_nbgrader_s_own_command",
    "tests/path/test_newcomer.py",
    "tests/path/test_sample.py::test_the_documented_commands",
    "tests/path/test_sample.py::test_three_students_go_the_whole_way",
    "tests/path/test_validate.py",
    "tests/path/test_firstday.py::test_a_due_date_that_was_set_first",
    "tests/path/test_firstday.py::test_on_a_terminal",
    "tests/path/test_firstday.py::test_the_sample_class",
    "tests/path/test_firstday.py::test_without_a_sandbox",
    "tests/path/test_seeds.py::test_nbgrader_draws_the_same",
    "tests/path/test_term.py",
    "tests/path/test_watch.py::test_attempts",
    "tests/path/test_watch.py::test_a_hand_in_that_comes",
    "tests/path/test_watch.py::test_each_kind_of_hand_in",
    "tests/path/test_watch.py::test_what_was_in_hand",
    "tests/path/test_watch.py::test_on_a_full_disk",
    "tests/review/test_review.py::test_the_answers_go_into_a_file_from_several_workers_too",
    "tests/review/test_wheel.py",
    "tests/tools/test_bench.py",
    "tests/tools/test_bench_grading.py",
    "tests/tools/test_order.py::test_a_worker_that_dies_costs_its_test_and_nothing_hangs",
    "tests/tools/test_check_book.py::test_the_command_fails_on_a_fault_and_where_there_is_no_book",
    "tests/tools/test_check_book.py::test_contents_that_cannot_be_read_are_one_line",
    "tests/tools/test_first_page.py::test_what_is_out_of_date_is_named_then_mended",
    "tests/tools/test_latest.py",
    "tests/tools/test_proved.py::test_with_workers_the_same_holds",
    "tests/tools/test_stock.py",
    "tests/tools/test_study.py::test_a_test_file_is_judged_where_it_was_unpacked",
    "tests/tools/test_study.py::test_both_commands_run_where_it_was_unpacked",
)
SOME = {  # what is asked of every page: `make test` asks it of those with one of these in their name
    "tests/book/test_browser.py::test_page[": (  # the other look has axe as well
        "intro-",
        *(f"{page}-dark-narrow]" for page in ("01_relu", "06_linear", "10_flash_attention", "a_errors", "instructors")),
    ),
    "tests/book/test_browser.py::test_a_typing_error_is_forgiven_and_told[": ("gradhceck",),
    "tests/book/test_browser.py::test_search_finds_and_leads_to_a_page[": ("gradcheck-file", "upstream gradient-http"),
    "tests/book/test_errors.py::test_what_is_typed_into_the_search_leads_to_an_entry[": ("file-modified",),
    "tests/book/test_kernels.py::test_a_fault_in_the_smallest_kernel_is_seen[": ("-sizes]",),
    "tests/book/test_look.py::test_lines_have_60_to_70_characters[": ("instructors",),
    "tests/book/test_pages.py::test_paper_is_light_whole_and_open[": ("02_sigmoid", "errata"),
    "tests/book/test_source.py::test_below_a_page_stands_the_name_of_its_source[": ("intro", "01_relu", "errata"),
    "tests/engine/test_below.py::test_torchs_gradient_earns_what_is_honest[": ("own", "unseen", "engine-called"),
    "tests/graders/test_solutions.py::test_visible_checks_pass_right_solutions[": ("relu", "linear", "flash_attention"),
    "tests/graders/test_testfile.py::test_right_files_earn_all_points[": ("thorough", "terse"),
    "tests/graders/test_testfile.py::test_who_is_stopped_hears_by_which_limit[": ("while True", "time.sleep(600)"),
    "tests/book/test_figures.py::test_alive_when_goes_step_by_step_as_the_chapter_does[": ("None", "[4]"),
    "tests/book/test_figures.py::test_broadcast_shapes_draws_what_torch_computes[": ("one0-", "one4-"),
    "tests/book/test_figures.py::test_tug_says_what_the_chapter_computes[": ("4-25", "0.5-60"),
    "tests/book/test_figures.py::test_cut_path_ends_as_the_chapter_s_functions_do[": ("slope, computed early-y-",),
    "tests/book/test_figures.py::test_streaming_lse_says_what_the_chapter_computes[": ("shuffled",),
    "tests/book/test_figures.py::test_two_roads_send_back_what_the_chapter_s_functions_do[": ("a ramp",),
    "tests/book/test_figures.py::test_two_roads_draw_the_run_of_the_chapter[": ("a ramp",),
    "tests/book/test_figures.py::test_wave_bits_says_what_the_chapter_computes[": ("trained",),
    "tests/book/test_figures.py::test_a_figure_keeps_its_height[": (
        "tape",
        "read-matrix",
        "sine-fit",
        "attention-tiles",
    ),
    "tests/book/test_figures.py::test_read_matrix_says_what_torch_computes[": ("right", "transposed", "mystery 1"),
    "tests/book/test_look.py::test_a_wrong_version_says_so_and_who_catches_it[": ("01_relu", "09_checkpointing"),
    "tests/book/test_look.py::test_below_the_title_stand_what_it_takes_and_the_summary[": ("01_relu", "07_logsumexp"),
    "tests/book/test_look.py::test_what_is_printed_is_whole_and_has_no_copy_button[": ("01_relu", "a_errors"),
    "tests/book/test_reading.py::test_each_option_of_a_quiz_is_judged_and_told_why[": ("01_relu", "09_checkpointing"),
    "tests/book/test_reading.py::test_what_is_said_of_an_option_is_what_the_answer_says_of_it[": (
        "02_sigmoid",
        "d_kernels",
    ),
    "tests/book/test_reading.py::test_the_filter_leaves_the_entry_of_a_message[": ("modified by", "hook changed siz]"),
    "tests/book/test_reading.py::test_what_is_added_is_accessible_and_fits[": ("intro",),
    "tests/book/test_turns.py::test_filled_in_every_turn_is_right[": ("01_relu",),
    "tests/engine/test_below.py::test_right_solutions_are_proved[": ("relu", "linear", "flash_attention"),
    "tests/path/test_grade_cells.py::test_right_answers_get_all_points[": ("01_", "03_", "06_", "10_"),
    "tests/graders/test_testfile.py::test_a_faulty_file_earns_its_score_and_hears_why[": (
        "nothing_asserted",
        "exact_equality",
        "gradcheck_in_float32",
        "wrong_import",
        "endless_loop",
    ),
    "tests/graders/test_testfile.py::test_a_file_that_cannot_serve_earns_nothing[": (
        "SyntaxError",
        "There is no test",
        "os._exit",
        "input()",
    ),
    "tests/path/test_sample.py::test_every_answer_is_judged_as_expected[": (
        *(f"-{number:02}_" for number in (1, *range(3, 11))),
        "amara-02",
        "elif-02",
    ),  # a test file takes seconds
    "tests/path/test_flow.py::test_a_notebook_is_parsed_twice_and_repaired_once[": ("[1]",),
    "tests/path/test_byhand.py::test_a_row_that_is_wrong_is_a_line_and_the_others_are_written[": ("given0-", "given4-"),
    "tests/path/test_gradescope.py::test_each_is_the_students[": ("[archive of a folder]",),
    "tests/path/test_gradescope.py::test_a_list_that_is_none_is_a_line[": ("[- a]",),
    "tests/path/test_similar.py::test_the_sample_class_and_a_copy_of_each[": ("01_relu", "06_linear", "10_flash"),
}
SLOW_LOOKS = ("dark-wide]", "light-narrow]")  # in tests/book; the other two have both themes and both widths
ALWAYS = ("[verdicts01-",)  # attacks on the judge: `make test` has them too


def group(nodeid: str) -> str:
    """The tests of the same group run on one worker."""
    file, _, name = nodeid.partition("::")
    parameters = name.partition("[")[2].rstrip("]").split("-")[: APART.get(file, 0)]
    return "-".join([file, *parameters])


@cache
def commit() -> str:
    """Return the hash of the commit that is checked out; "" where there is no git."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def drawn(nodeid: str, of: int, commit: str) -> bool:
    """Say whether a slow test is one of those that are run at this commit: about one of so many.

    What shares a costly fixture, as the attacks of a class do, is drawn together.
    """
    unit = group(nodeid) if nodeid.startswith(tuple(APART)) else nodeid
    return int(hashlib.sha256(f"{commit} {unit}".encode()).hexdigest(), 16) % of == 0


class Scheduling(LoadScopeScheduling):
    """Hands out groups, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def remove_node(self, node: "WorkerController") -> str | None:
        """Take a worker out; where it died, return the test that it was at, and hand out again only what it left.

        xdist 3.8 hands out again what the dead worker had done as well, in orders of no test, and each costs the worker
        that gets it the report on which the next order waits: the run hangs. The test that killed it is not run again.
        """
        workload = self.assigned_work.pop(node)
        left = {scope: {test: False for test, done in tests.items() if not done} for scope, tests in workload.items()}
        left = {scope: tests for scope, tests in left.items() if tests}
        if not left:
            return None
        scope = next(iter(left))
        died_in = next(iter(left[scope]))
        del left[scope][died_in]
        self.workqueue.update({scope: tests for scope, tests in left.items() if tests})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in


@pytest.hookimpl(optionalhook=True)  # there is none under `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> Scheduling | None:
    """Take this scheduling for `--dist loadscope`; any other stays what it is."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)  # before -m is heard
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first, mark the slow and draw among them, and leave out what cannot be compiled."""
    of = int(os.environ.get("COURSE_SLOW", "1"))
    for item in items:
        slow = item.nodeid.startswith(SLOW) and not any(part in item.nodeid for part in ALWAYS)
        slow = slow or any(item.nodeid.startswith(f) and not any(p in item.nodeid for p in SOME[f]) for f in SOME)
        if slow or (item.nodeid.startswith("tests/book/") and item.nodeid.endswith(SLOW_LOOKS)):
            item.add_marker(pytest.mark.slow)
            if of > 1 and not drawn(item.nodeid, of, commit()):
                item.add_marker(pytest.mark.skip(reason=f"COURSE_SLOW={of}: run at other commits"))
    if shutil.which("c++") is None and os.environ.get("COURSE_REQUIRE_COMPILER") != "1":
        for item in items:
            if item.nodeid.startswith(COMPILED):
                item.add_marker(pytest.mark.skip(reason="no c++ on PATH"))
    items.sort(key=lambda item: next((i for i, f in enumerate(FIRST) if item.nodeid.startswith(f)), len(FIRST)))


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """The system's Chromium. Where there is none, its tests are skipped, or fail if COURSE_REQUIRE_BROWSER=1."""
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        if os.environ.get("COURSE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"COURSE_REQUIRE_BROWSER=1, and none of {', '.join(names)} is on PATH")
        pytest.skip("no Chromium on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()
