"""Checks of arguments: what they admit, what they say."""

import pickle

import pytest

from cmr_runner import checks


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: checks.number("lam", -1, least=0), "lam must be >= 0, got -1"),
        (lambda: checks.number("rho", 2, above=0, most=1), "rho must be in (0, 1], got 2"),
        (lambda: checks.number("rate", 1.0, below=1), "rate must be < 1, got 1.0"),
        (lambda: checks.number("lam", "abc", least=0), "lam must be a number >= 0, got 'abc'"),
        (lambda: checks.number("lam", True), "lam must be a number, got True"),
        (lambda: checks.number("lam", float("nan")), "lam must be a finite number, got nan"),
        (lambda: checks.number("clip", float("nan"), finite=False), "clip must be a finite number, got nan"),
        (lambda: checks.number("lam", float("inf"), least=0), "lam must be a finite number >= 0, got inf"),
        (lambda: checks.integer("K", 2.0, least=3), "K must be an integer >= 3, got 2.0"),
        (lambda: checks.integer("K", True), "K must be an integer, got True"),
        (lambda: checks.boolean("bias", "no"), "bias must be true or false, got 'no'"),
        (lambda: checks.one_of("gram", "rows", ("a", "b")), "gram must be one of a, b, got 'rows'"),
    ],
)
def test_a_refused_value_names_the_argument_what_is_allowed_and_the_value(check, message):
    with pytest.raises(checks.ArgumentError) as caught:
        check()
    assert str(caught.value) == message
    assert caught.value.argument == message.split()[0]


def test_values_in_range_come_back_as_they_are():
    assert checks.number("clip", float("inf"), above=0, finite=False) == float("inf")
    assert checks.number("lam", 0, least=0) == 0
    assert checks.integer("K", 3, least=3) == 3
    assert checks.boolean("bias", False) is False
    assert checks.one_of("gram", "a", ("a", "b")) == "a"


def test_the_error_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(checks.ArgumentError("lam", "lam must be >= 0, got -1")))
    assert (error.argument, str(error)) == ("lam", "lam must be >= 0, got -1")
