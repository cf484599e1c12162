from motet_tasks.travel.catalog import Catalog, Journey

TAXI = Journey("taxi", "taxi", "Oslo", "Bergen", 400.0)
CATALOG = Catalog((), (), (), (TAXI,), ())


def test_a_journey_is_found_however_its_words_are_spaced():
    assert CATALOG.journey("Taxi, from Oslo to Bergen") == TAXI
    assert CATALOG.journey("  taxi ,\n from  Oslo   to Bergen ") == TAXI


def test_a_long_text_of_a_model_takes_no_longer_than_it_is():
    """A minute for each of them if the time grew with the square of the length."""
    for begin in ("Taxi, from a", "Flight Number: F1, from a"):
        assert CATALOG.journey(begin + " " * 100_000) is None
        assert CATALOG.journey(begin + " to a" * 20_000) is None
