"""The optional abilities of environments."""

import inspect

import pytest

import motet
from motet.core import ABILITIES, Ability, Environment, Grades, Solves, abilities

EVERY_ABILITY = pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)


class Bare(Environment):
    agents = ("a",)

    async def start(self, task, seed): ...
    def observe(self, state): ...
    async def step(self, state, replies, seed): ...


def own(ability):
    return {name: lambda self, *given: given for name in ability.methods()}


def test_every_ability_is_listed_and_exported():
    defined = {
        kind
        for _, kind in inspect.getmembers(abilities, inspect.isclass)
        if issubclass(kind, Ability) and Ability in kind.__bases__
    }
    assert defined == set(ABILITIES)
    assert {ability.__name__ for ability in ABILITIES} <= set(motet.__all__)
    assert (motet.Solves, motet.Grades) == (Solves, Grades)


def test_no_method_belongs_to_two_abilities_and_none_is_in_the_base_class():
    names = [name for ability in ABILITIES for name in ability.methods()]
    assert len(names) == len(set(names)) == 13
    assert not any(name in vars(Environment) for name in names)


@EVERY_ABILITY
def test_whoever_defines_the_methods_has_the_ability_and_no_other(ability):
    kind = type("Own", (Bare,), own(ability))
    assert [one for one in ABILITIES if isinstance(kind(), one)] == [ability]
    assert not isinstance(Bare(), ability)
    assert ability.lacking(Bare) == list(ability.methods())


@EVERY_ABILITY
def test_a_subclass_inherits_an_ability_until_it_gives_one_of_its_methods_up(ability):
    kind = type("Own", (Bare,), own(ability))
    mixed = type("Mixed", (type("Mixin", (), own(ability)), Bare), {})
    inherits = type("Inherits", (kind,), {})
    for name in ability.methods():
        gives_up = type("GivesUp", (kind,), {name: None})
        found = [isinstance(one(), ability) for one in (kind, mixed, inherits, gives_up)]
        assert found == [True, True, True, False]
        assert ability.lacking(gives_up) == [name]


def test_half_of_an_ability_is_none():
    half = type("Half", (Bare,), {"question": lambda self, task: "?"})
    assert not isinstance(half(), Grades)
    assert Grades.lacking(half) == ["grade"]


def test_an_attribute_of_one_object_is_no_method_of_its_class():
    environment = Bare()
    environment.solve = environment.tasks = ["not a method"]
    assert not any(isinstance(environment, ability) for ability in ABILITIES)


@EVERY_ABILITY
def test_who_inherits_from_an_ability_must_define_its_methods(ability):
    with pytest.raises(TypeError, match=f"abstract method.* '?{ability.methods()[-1]}"):
        type("Promising", (Bare, ability), {})()
    assert isinstance(type("Keeping", (Bare, ability), own(ability))(), ability)


def test_an_environment_with_an_ability_is_no_ability_itself():
    class Solving(Bare, Solves):
        def solve(self, state, seed):
            return {}

    other = type("Other", (Bare,), own(Solves))
    assert isinstance(other(), Solves)
    assert not isinstance(other(), Solving)
