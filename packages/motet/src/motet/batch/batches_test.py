"""The rows of a batch, dealt to processes."""

from motet.batch.batches import deal, deal_values, weightless
from tests.fixtures.batches import batch_of, values_of


def test_rows_keep_their_order_and_each_part_has_the_prompts_of_its_rows():
    first, second = deal(batch_of([0, 0, 1, 2, 2]), 2)
    assert first.tokens_BL.flatten().tolist() == [0, 1, 2]
    assert first.prompts_PL.flatten().tolist() == [10, 11]
    assert first.prompt_of_B.tolist() == [0, 0, 1]
    assert second.tokens_BL.flatten().tolist() == [3, 4]
    assert second.prompts_PL.flatten().tolist() == [12]
    assert second.prompt_of_B.tolist() == [0, 0]
    assert second.token_weight_B.tolist() == [4.0, 5.0]


def test_no_part_is_empty():
    parts = deal(batch_of([0, 0]), 3)
    assert [part.tokens_BL.flatten().tolist() for part in parts] == [[0], [1]]


def test_the_rows_of_a_pair_of_values_stay_together():
    def rows(count, parts):
        return [part.tokens_BL.flatten().tolist() for part in deal_values(values_of(count), parts)]

    assert rows(6, 2) == [[0, 1, 2, 3], [4, 5]]
    assert rows(5, 3) == [[0, 1], [2, 3], [4]]
    assert rows(2, 3) == [[0, 1]]
    assert rows(1, 2) == [[0]]


def test_a_process_without_rows_gets_rows_that_count_nothing():
    idle = weightless(batch_of([1, 0]))
    assert idle.tokens_BL.tolist() == [[0]]
    assert (idle.prompts_PL.tolist(), idle.prompt_of_B.tolist()) == ([[11]], [0])
    assert idle.token_weight_B.tolist() == [0.0]
    assert weightless(values_of(3)).value_weight_B.tolist() == [0.0, 0.0]
    assert weightless(values_of(1)).value_weight_B.tolist() == [0.0]
