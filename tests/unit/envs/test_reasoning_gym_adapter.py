"""reasoning-gym data sets as token tasks: characters, limits, and scorers that no text can break."""

import random
import subprocess
import sys

import numpy as np
import pytest
from support.refusals import refuses

from envs.tokens.reasoning_gym import ASCII, ReasoningGym
from envs.tokens.safe_scorer import SafeScorer, isolated
from testbed.errors import UserError
from testbed.worlds.task_registry import build_task

# Ten scorers name eval or parse_expr; number_sorting applies it to its own reference answer only.
EVALUATING = {
    "binary_matrix": "python", "countdown": "sympy", "intermediate_integration": "sympy",
    "n_queens": "python", "number_sorting": "python", "polynomial_multiplication": "sympy",
    "puzzle24": "sympy", "simple_integration": "sympy", "spiral_matrix": "python",
    "string_insertion": "python",
}  # fmt: skip
WITHOUT_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
# Making a handful of their items takes longer than 0.1 s.
SLOW = {
    *("acre", "advanced_geometry", "arc_agi", "codeio", "countdown", "figlet_font", "futoshiki"),
    *("game_of_life", "group_anagrams", "intermediate_integration", "jugs", "knight_swap"),
    *("puzzle24", "quantum_lock", "rubiks_cube", "rush_hour", "simple_integration", "sokoban"),
    *("sudoku", "word_ladder", "zebra_puzzles"),
}
PARTS = [{"name": name, "weight": 1.0, "config": {}} for name in ("chain_sum", "gcd")]


def answers(task: ReasoningGym, text: str) -> tuple[np.ndarray, np.ndarray]:
    """One finished response of the given text."""
    token = [*task.encode(text), task.end_token]
    response_NT = np.zeros((1, task.response_length), dtype=np.int64)
    response_NT[0, : len(token)] = token
    return response_NT, np.arange(task.response_length)[None] < len(token)


def prompt_of(task: ReasoningGym, index: int) -> np.ndarray:
    token = task.encode(task.item(index).prompt)
    return np.array([[task.pad_token] * (task.prompt_length - len(token)) + token])


def survey(names: list[str]) -> dict[str, str]:
    """What goes wrong with each data set as a task: empty for those whose teacher scores 1."""
    wrong = {}
    for name in names:
        args = {
            "dataset": name, "survey": 3, "dataset_args": {"datasets": PARTS} if name == "composite" else {},
        }  # fmt: skip
        try:
            task = ReasoningGym(**args)
        except ValueError as error:
            wrong[name] = str(error)
            task = ReasoningGym(response_length=16, **args)
        report = task.validate(3)
        if not report.trainable:
            wrong[name] = f"{report.without_answer} without answer, {report.reference_below_one} below one"
            continue
        prompt_NQ = prompt_of(task, 0)
        score_N = task.score(prompt_NQ, *task.teacher(prompt_NQ, np.random.default_rng(0), 0.0))
        if score_N.tolist() != [1.0]:
            wrong[name] = f"teacher scores {score_N}"
    return wrong


def names() -> list[str]:
    import reasoning_gym  # noqa: F401 - fills the registry
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def test_the_default_task_fits_a_tiny_model():
    task = ReasoningGym()
    assert "".join(task.symbols[:-2]) == " +-0123456789="
    assert (task.vocabulary, task.prompt_length, task.response_length) == (16, 9, 4)
    prompt_NQ = task.prompts(np.random.default_rng(0), 3)
    assert [task.text(row) for row in prompt_NQ] == [task.item(i).prompt for i in find(task, prompt_NQ)]
    assert (prompt_NQ[:, 0] == task.pad_token).any()


def find(task: ReasoningGym, prompt_NQ: np.ndarray) -> list[int]:
    texts = [task.item(i).prompt for i in range(task.pool)]
    return [texts.index(task.text(row)) for row in prompt_NQ]


def test_the_teacher_gives_the_arithmetic_answer_and_scores_one_without_noise():
    task = ReasoningGym()
    rng = np.random.default_rng(1)
    prompt_NQ = task.prompts(rng, 300)
    response_NT, mask_NT = task.teacher(prompt_NQ, rng, 0.0)
    assert task.score(prompt_NQ, response_NT, mask_NT).sum() == 300
    for prompt_Q, response_T, mask_T in zip(prompt_NQ, response_NT, mask_NT, strict=True):
        left, operator, right, equals = task.text(prompt_Q).split()
        assert equals == "="
        total = int(left) + (int(right) if operator == "+" else -int(right))
        assert task.text(response_T, mask_T) == f"{total}<end>"
    assert (response_NT[~mask_NT] == 0).all()


def test_a_noisy_teacher_is_right_where_no_character_was_replaced():
    task = ReasoningGym()
    rng = np.random.default_rng(2)
    prompt_NQ = task.prompts(rng, 2000)
    clean_NT, mask_NT = task.teacher(prompt_NQ, np.random.default_rng(3), 0.0)
    noisy_NT, noisy_mask_NT = task.teacher(prompt_NQ, np.random.default_rng(3), 0.3)
    score_N = task.score(prompt_NQ, noisy_NT, noisy_mask_NT)
    assert (mask_NT == noisy_mask_NT).all()
    same_N = (clean_NT == noisy_NT).all(axis=1)
    assert score_N[same_N].all()
    assert score_N[~same_N].sum() == 0
    share = (clean_NT != noisy_NT).sum() / (mask_NT.sum() - len(mask_NT))
    assert abs(share - 0.3) < 0.03  # 3,800 characters, 4 standard errors


def test_prompts_repeat_with_the_generator_and_do_not_touch_global_random_states():
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - the legacy state is what is being protected
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first, again = (
        ReasoningGym(dataset="pool_matrix", survey=4).prompts(np.random.default_rng(0), 4) for _ in range(2)
    )
    assert (first == again).all()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_a_generator_that_prints_is_silent(capsys):
    ReasoningGym(dataset="bf", survey=2)
    assert capsys.readouterr().out == ""


def test_prompts_that_do_not_fit_are_counted_and_drawn_again():
    task = ReasoningGym(prompt_length=7)
    prompt_NQ = task.prompts(np.random.default_rng(0), 200)
    assert max(len(task.text(row)) for row in prompt_NQ) == 7
    assert 100 < task.rejected["prompt too long"] < 400  # half of the problems have two-digit terms
    short = ReasoningGym(response_length=2)
    prompt_NQ = short.prompts(np.random.default_rng(0), 50)
    assert short.score(prompt_NQ, *short.teacher(prompt_NQ, np.random.default_rng(0), 0.0)).sum() == 50
    assert short.rejected["answer too long"] > 0
    with pytest.raises(ValueError, match=r"1000 problems of chain_sum in a row .*'prompt too long': 1000"):
        ReasoningGym(prompt_length=6).prompts(np.random.default_rng(0), 1)


def test_an_unknown_character_is_named_with_the_remedy():
    task = ReasoningGym(alphabet="0123456789 +=")
    with pytest.raises(ValueError, match=r"chain_sum uses '-' in '.*'.*pass alphabet='ascii'"):
        task.prompts(np.random.default_rng(0), 50)


def test_alphabets_are_the_data_sets_own_characters_or_given():
    assert "".join(ReasoningGym(dataset="number_sequence").symbols[:-2]) == " ,-0123456789?"
    assert "".join(ReasoningGym(dataset="lcm").symbols[:-2]) == ASCII
    logic = ReasoningGym(dataset="propositional_logic", response_length=9)
    assert set(ASCII) | set("∧∨¬→↔") >= set(logic.symbols[:-2])
    assert ReasoningGym(alphabet="ascii").vocabulary == 98
    refuses("different characters, got '11'", ReasoningGym, alphabet="11", error=ValueError)


def test_an_unfinished_response_scores_zero():
    task = ReasoningGym()
    prompt_NQ = prompt_of(task, 0)
    response_NT, mask_NT = answers(task, str(task.item(0).answer))
    assert task.score(prompt_NQ, response_NT, mask_NT).tolist() == [1.0]
    response_NT[response_NT == task.end_token] = task.encode(" ")[0]
    assert task.score(prompt_NQ, response_NT, mask_NT).tolist() == [0.0]


def test_partial_credit_is_given_only_when_asked_for():
    # A response that contains the answer earns len(answer) / len(response) from reasoning-gym.
    for partial_credit, expected in ((False, 0.0), (True, 0.5)):
        task = ReasoningGym(partial_credit=partial_credit)
        index = next(i for i in range(100) if len(str(task.item(i).answer)) == 1)
        text = f"{task.item(index).answer}="
        response_NT, mask_NT = answers(task, text)
        assert task.score(prompt_of(task, index), response_NT, mask_NT).tolist() == [expected]
        response_NT[0, 1] = task.pad_token
        assert task.score(prompt_of(task, index), response_NT, mask_NT).tolist() == [0.0]


def test_a_scorer_that_raises_scores_zero_and_is_counted():
    task = ReasoningGym(dataset="prime_factorization", survey=8)
    with pytest.raises(ValueError, match="invalid literal"), isolated():
        task.scorer.dataset.score_answer("zzz", task.item(0).entry)
    assert task.score(prompt_of(task, 0), *answers(task, "zzz")).tolist() == [0.0]
    assert task.score_errors == 1


def test_a_scorer_without_a_number_or_out_of_range_is_bounded():
    class Odd:
        def __init__(self, given):
            self.given = given

        def score_answer(self, answer, entry):
            return self.given

    for given, score, errors in (
        (float("nan"), 0.0, 1), (7.0, 1.0, 0), (-1.0, 0.0, 0), (None, 0.0, 1), ("x", 0.0, 1),
    ):  # fmt: skip
        scorer = SafeScorer(Odd(given), partial_credit=True)
        assert scorer.score("1", {"answer": "2"}) == score
        assert scorer.errors == errors


def test_sampled_text_is_never_executed(tmp_path):
    task = ReasoningGym(dataset="spiral_matrix", survey=4, response_length=128)
    target = tmp_path / "executed"
    attack = f"__import__('pathlib').Path('{target}').touch()"
    item = task.item(0)
    with isolated():
        for text in (attack, f" {attack}\n", f"{attack} \\\n\n", f"[{attack}]", f"1 if {attack} else 2"):
            assert task.scorer.score(text, item.entry) == 0.0
            assert not target.exists(), text
        assert task.scorer.refused == 5
        task.scorer.dataset.score_answer(attack, item.entry)
    assert target.exists(), "reasoning-gym no longer evaluates answers; the guard may go"


@pytest.mark.parametrize(
    "text",
    [*("9**9**9", "9!!!!!!", "(9**12)**12", "9**99", "1e99999999", "1/1e-99999999", "1+" * 200 + "1"),
     *("'a'*10**9", "[0]*10", "lambda x: x", "x.y", "f(x)", "(1).__class__", "x[0]", "{}", "x:=1", "1j"),
     *("sin(1)", "exp(exp(exp(exp(x))))")],
)  # fmt: skip
def test_costly_or_odd_expressions_are_refused_before_sympy_sees_them(text):
    task = ReasoningGym(dataset="countdown", survey=1)
    with isolated():
        assert task.scorer.score(text, task.item(0).entry) == 0.0
    assert task.scorer.refused == 1


def test_honest_expressions_still_reach_the_scorers():
    with isolated():
        for name, form in (("countdown", "({})"), ("simple_integration", "0 + {}"), ("puzzle24", " {} ")):
            task = ReasoningGym(dataset=name, survey=1)
            item = task.item(0)
            assert task.scorer.score(form.format(item.answer), item.entry) == 1.0, name
            assert task.scorer.refused == 0
        task = ReasoningGym(dataset="binary_matrix", survey=1, partial_credit=True)
        rows = [[int(v) for v in row.split()] for row in task.item(0).answer.split("\n")]
        assert task.scorer.score(str(rows), task.item(0).entry) == pytest.approx(0.1)


@pytest.mark.slow
def test_another_instance_scores_the_same_prompts():
    task = ReasoningGym()
    other = ReasoningGym(prompt_length=9, response_length=4, alphabet=" +-0123456789=")
    prompt_NQ = task.prompts(np.random.default_rng(9), 20)
    response_NT, mask_NT = task.teacher(prompt_NQ, np.random.default_rng(0), 0.4)
    assert (other.score(prompt_NQ, response_NT, mask_NT) == task.score(prompt_NQ, response_NT, mask_NT)).all()
    foreign_NQ = np.array([[task.pad_token] * 8 + task.encode("7")])
    with pytest.raises(ValueError, match="'7' is not one of the 4096 problems"):
        other.score(foreign_NQ, response_NT[:1], mask_NT[:1])


def test_the_prompt_is_a_format_of_question_and_metadata():
    question = ReasoningGym(prompt="{question}")
    assert question.item(0).prompt.startswith("State the final answer")
    with pytest.raises(ValueError, match=r"asks for 'expresion', chain_sum has: .*expression.*question"):
        ReasoningGym(prompt="{expresion}")
    with pytest.raises(ValueError, match=r"boxed.*is not a format string: .*Write {{ and }} for braces"):
        ReasoningGym(prompt=r"{question} in \boxed{")


def test_data_sets_that_score_their_own_answer_zero_are_reported():
    report = ReasoningGym(dataset="propositional_logic", response_length=16, survey=4).validate(4)
    assert (report.without_answer, report.trainable) == (4, False)
    assert ReasoningGym().validate(8).trainable
    with pytest.raises(ValueError, match="graph_color has no reference answers to measure; pass"):
        ReasoningGym(dataset="graph_color", survey=4)
    task = ReasoningGym(dataset="graph_color", survey=4, response_length=16)
    prompt_NQ = task.prompts(np.random.default_rng(0), 1)
    with pytest.raises(ValueError, match="no reference answer to"):
        task.teacher(prompt_NQ, np.random.default_rng(0), 0.0)
    assert task.score(prompt_NQ, *answers(task, "{}")).tolist() == [0.0]


@pytest.mark.parametrize(
    "args",
    [{"dataset": "chain_sums"}, {"dataset": "?"}, {"dataset_args": {"terms": 3}},
     {"dataset_args": {"min_terms": -1}}, {"survey": 0}, {"prompt_length": -2}],
)  # fmt: skip
def test_wrong_arguments_are_answered_with_what_was_expected(args):
    refuses(".", ReasoningGym, error=ValueError, **args)


def test_a_missing_package_is_answered_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ImportError, match=r"pip install 'off-policy-testbed\[tasks\]'"):
        ReasoningGym()
    with pytest.raises(UserError, match=r"task 'reasoning-gym' cannot be made .*off-policy-testbed\[tasks\]"):
        build_task("reasoning-gym", dataset="chain_sum")


def test_listing_the_worlds_does_not_import_reasoning_gym():
    code = "import sys; from envs.catalog import worlds; worlds(); assert 'reasoning_gym' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_quick_data_sets_become_tasks_whose_teacher_scores_one():
    quick = [name for name in names() if name not in SLOW]
    assert len(quick) > 80
    assert set(survey(quick)) == WITHOUT_ANSWER - SLOW


@pytest.mark.slow
def test_every_data_set_becomes_a_task_whose_teacher_scores_one():
    wrong = survey(names())
    assert set(wrong) == WITHOUT_ANSWER, wrong


@pytest.mark.slow
def test_the_data_sets_that_evaluate_answers_are_known():
    found = {}
    for name in set(names()) - {"composite"}:
        scorer = ReasoningGym(dataset=name, survey=1, response_length=8).scorer
        if scorer.evaluation({}):
            found[name] = scorer.evaluation({})
    assert found == EVALUATING
