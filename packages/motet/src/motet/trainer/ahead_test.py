"""The order of playing ahead, learning and publishing, and what happens if one of them fails."""

import asyncio
from dataclasses import replace

import pytest

from motet.errors import Interrupted, MotetError
from motet.trainer.ahead import beside_update, next_games, played_ahead, undisturbed
from motet.trainer.components import TrainComponents
from motet.trainer.loop import Played
from motet.trainer.loop_test import components


class Stage:
    """Games that wait until they are let go, and an update; both record their events."""

    def __init__(self, fails: str = "") -> None:
        self.events: list[str] = []
        self.go, self.fails = asyncio.Event(), fails

    async def play(self) -> Played:
        self.events.append("play")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        if self.fails == "play":
            raise MotetError("no games")
        self.events.append("played")
        return Played((), {"play": 2.0})

    async def learn(self, games: asyncio.Task[Played] | None) -> None:
        self.events.append("learn")
        await asyncio.sleep(0)  # games beside it start here
        if self.fails == "learn":
            raise Interrupted("stopped")
        self.events.append("learnt")
        self.go.set()
        assert games is not None
        await games
        self.events.append("publish")


def run(stage: Stage, beside: bool) -> Played | None:
    async def step() -> Played | None:
        if not beside:
            stage.go.set()
        async with played_ahead(stage.play, beside) as games:
            await stage.learn(games)
        return None if games is None else games.result()

    return asyncio.run(step())


def test_one_after_the_other_games_end_before_the_update_begins():
    stage = Stage()
    assert run(stage, beside=False) == Played((), {"play": 2.0})
    assert stage.events == ["play", "played", "learn", "learnt", "publish"]


def test_beside_the_update_publishing_waits_for_both():
    stage = Stage()
    assert run(stage, beside=True) == Played((), {"play": 2.0})
    assert stage.events == ["learn", "play", "learnt", "played", "publish"]


def test_games_beside_an_update_that_stops_are_cancelled():
    stage = Stage(fails="learn")
    with pytest.raises(Interrupted):
        run(stage, beside=True)
    assert stage.events == ["learn", "play", "cancelled"]


@pytest.mark.parametrize("beside", [False, True])
def test_games_that_fail_stop_the_step_before_anything_is_published(beside):
    stage = Stage(fails="play")
    with pytest.raises(MotetError, match="no games"):
        run(stage, beside=beside)
    assert "publish" not in stage.events
    assert ("learnt" in stage.events) == beside


def test_without_a_next_step_there_are_no_games():
    async def step() -> bool:
        async with played_ahead(None, beside=True) as games:
            return games is None

    assert asyncio.run(step())


def test_the_next_step_is_played_ahead_unless_there_is_none():
    fresh = components("mareinforce", steps=3)
    made = replace(fresh, train=fresh.train.model_copy(update={"max_lag": 1}))
    asked: list[tuple[int, bool]] = []

    async def play(given: TrainComponents, number: int) -> Played:
        asked.append((number, given.stop is made.stop))
        return Played((), {"play": 2.0})

    assert next_games(made, 3, play, beside=True) is None
    assert next_games(fresh, 1, play, False) is None
    for beside in (False, True):
        games = next_games(made, 1, play, beside)
        assert games is not None
        played = asyncio.run(games())  # type: ignore[arg-type]
        assert ("beside/play" in played.seconds) == beside
    # Games beside an update go on after a request to stop; the others end with it.
    assert asked == [(2, True), (2, False)]


def test_games_beside_an_update_go_on_after_a_request_to_stop():
    made = components("mareinforce")
    made.stop.wish()
    assert not undisturbed(made).stop.wished()


def test_the_time_of_games_beside_an_update_is_not_part_of_the_step():
    played = beside_update(Played((), {"play": 2.0, "play/decode": 1.5}))
    assert played.seconds == {"beside/play": 2.0}
