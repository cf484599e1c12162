import pytest

from motet_tasks.coding.assignment import SLACK, by_parameters, fair
from motet_tasks.rewards.skeleton import Skeleton


def skeleton(**sizes):
    """A class whose stubs have the given numbers of characters, beyond the minimum of a stub."""
    stubs = [f'    def {name}(self):\n        """{"x" * size}"""\n' for name, size in sizes.items()]
    return Skeleton.read("class C:\n" + "\n".join(stubs), "C", {})


def loads(found, shares):
    sizes = {stub.key: len(stub.text) for stub in found.stubs}
    return [sum(sizes[key] for key in keys) for keys in shares.values()]


AGENTS = ("one", "two")


def test_the_largest_goes_first_and_each_goes_where_there_is_least():
    assert fair(skeleton(a=500, b=100, c=100, d=100), AGENTS, {}) == {
        "one": ("a",),
        "two": ("b", "c", "d"),
    }


def test_methods_keep_the_order_of_the_skeleton():
    assert fair(skeleton(a=10, b=20, c=30, d=40), AGENTS, {}) == {
        "one": ("a", "d"),
        "two": ("b", "c"),
    }


@pytest.mark.parametrize("calls", [{"a": ("c",)}, {"c": ("a",)}])
def test_methods_that_call_each_other_stay_together_where_there_is_room(calls):
    even = skeleton(a=100, b=100, c=100, d=100)
    assert fair(even, AGENTS, {}) == {"one": ("a", "c"), "two": ("b", "d")}
    assert fair(even, AGENTS, {"a": ("b",)}) == {"one": ("a", "b"), "two": ("c", "d")}
    assert fair(even, AGENTS, calls) == {"one": ("a", "c"), "two": ("b", "d")}


def test_fairness_goes_before_company():
    calls = {"a": ("b", "c", "d")}
    assert fair(skeleton(a=100, b=100, c=100, d=100), AGENTS, calls) == {
        "one": ("a", "b"),
        "two": ("c", "d"),
    }


@pytest.mark.parametrize("agents", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "sizes", [(500, 1, 1, 1, 1), (90, 80, 70, 60, 50, 40), (10,) * 9, (300, 299, 1, 1, 1, 1, 298)]
)
def test_everybody_writes_something_and_nobody_much_more_than_an_even_share(agents, sizes):
    found = skeleton(**{f"m{number}": size for number, size in enumerate(sizes)})
    calls = dict.fromkeys(found.keys, found.keys)
    shares = fair(found, [f"agent{number}" for number in range(agents)], calls)
    assert sorted(key for keys in shares.values() for key in keys) == sorted(found.keys)
    assert len(shares) == agents
    even, largest = sum(loads(found, shares)) / agents, max(len(stub.text) for stub in found.stubs)
    assert max(loads(found, shares)) <= max(SLACK * even, even + largest)


def test_where_there_are_fewer_methods_than_agents_the_last_have_none():
    assert fair(skeleton(a=10, b=20), ("one", "two", "three"), {}) == {"one": ("b",), "two": ("a",)}


def test_both_halves_of_a_property_have_one_author():
    text = (
        "class C:\n    @property\n    def x(self):\n        'x'\n    @x.setter\n"
        "    def x(self, value):\n        'x'\n"
        "    def y(self):\n        'as long as the two'\n"
    )
    assert fair(Skeleton.read(text, "C", {}), AGENTS, {}) == {
        "one": ("x", "x.setter"),
        "two": ("y",),
    }


def test_the_published_split_is_by_the_number_of_parameters():
    text = (
        "class C:\n    def a(self): ...\n    def b(self, x): ...\n    @staticmethod\n"
        "    def c(x): ...\n"
        "    def d(): ...\n    def e(self, *xs): ...\n"
    )
    assert by_parameters(Skeleton.read(text, "C", {}), AGENTS) == {
        "one": ("a", "c"),
        "two": ("b", "d", "e"),
    }


def test_one_agent_writes_everything():
    found = skeleton(a=1, b=2)
    assert fair(found, ("one",), {}) == by_parameters(found, ("one",)) == {"one": ("a", "b")}
