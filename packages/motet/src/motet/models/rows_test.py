"""One packed row by hand: two prompts, three completions."""

import torch

from motet.batch import Rows
from motet.models.rows import PackedRow, common_beginning, padded

CPU = torch.device("cpu")


def test_a_packed_row_holds_every_real_token_once_and_knows_where_each_row_lies() -> None:
    prompts_PL, prompt_mask_PL = padded([[10, 11, 12], [20]], 0, "left", CPU)
    tokens_BL, mask_BL = padded([[1, 2], [3], [4, 5, 6]], 0, "right", CPU)
    packed = PackedRow.of(
        Rows(prompts_PL, prompt_mask_PL, torch.tensor([0, 1, 1]), tokens_BL, mask_BL)
    )
    # Places 0 to 6; the last token of a completion is not read.
    assert packed.tokens_1L.tolist() == [[10, 11, 12, 20, 1, 4, 5]]
    assert packed.positions_1L.tolist() == [[0, 1, 2, 0, 3, 1, 2]]
    # 1 comes after 12, 2 after 1; 3 after 20; 4 after 20, 5 after 4, 6 after 5.
    assert packed.ends_M.tolist() == [2, 4, 3, 3, 5, 6]
    prompts, completions = packed.blocks
    assert prompts.queries_BL.tolist() == [[0, 1, 2], [3, 0, 0]]
    assert prompts.seen_B1LK is None
    assert prompts.real_L.tolist() == [0, 1, 2, 3]
    assert completions.queries_BL.tolist() == [[4, 0], [0, 0], [5, 6]]
    assert completions.keys_BK.tolist() == [[0, 1, 2, 4, 0], [3, 0, 0, 0, 0], [3, 0, 0, 5, 6]]
    assert completions.real_L.tolist() == [0, 4, 5]
    assert completions.seen_B1LK is not None
    # The second token of the last completion sees its prompt, the first token and itself.
    assert completions.seen_B1LK[2, 0].tolist() == [
        [True, False, False, True, False],
        [True, False, False, True, True],
    ]


def test_completions_of_one_token_are_foretold_by_their_prompts_alone() -> None:
    prompts_PL, prompt_mask_PL = padded([[7, 8]], 0, "left", CPU)
    tokens_BL, mask_BL = padded([[1], [2]], 0, "right", CPU)
    packed = PackedRow.of(
        Rows(prompts_PL, prompt_mask_PL, torch.tensor([0, 0]), tokens_BL, mask_BL)
    )
    assert packed.tokens_1L.tolist() == [[7, 8]]
    assert packed.ends_M.tolist() == [1, 1]
    assert len(packed.blocks) == 1


def test_what_all_prompts_begin_with_stands_once_before_them() -> None:
    prompts_PL, prompt_mask_PL = padded([[8, 9, 10, 11], [8, 9, 20]], 0, "left", CPU)
    tokens_BL, mask_BL = padded([[1, 2], [4, 5, 6]], 0, "right", CPU)
    packed = PackedRow.of(
        Rows(prompts_PL, prompt_mask_PL, torch.tensor([0, 1]), tokens_BL, mask_BL)
    )
    # Places 0 to 7: the beginning, the rests of the prompts, the completions.
    assert packed.tokens_1L.tolist() == [[8, 9, 10, 11, 20, 1, 4, 5]]
    assert packed.positions_1L.tolist() == [[0, 1, 2, 3, 2, 4, 3, 4]]
    assert packed.ends_M.tolist() == [3, 5, 4, 6, 7]
    beginning, rests, completions = packed.blocks
    assert beginning.queries_BL.tolist() == beginning.keys_BK.tolist() == [[0, 1]]
    assert beginning.seen_B1LK is None
    assert rests.queries_BL.tolist() == [[2, 3], [4, 0]]
    assert rests.keys_BK.tolist() == [[0, 1, 2, 3], [0, 1, 4, 0]]
    assert rests.seen_B1LK is not None
    assert rests.seen_B1LK[1, 0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert rests.real_L.tolist() == [0, 1, 2]
    assert completions.keys_BK.tolist() == [[0, 1, 2, 3, 5, 0], [0, 1, 4, 0, 6, 7]]
    assert completions.seen_B1LK is not None
    assert completions.seen_B1LK[1, 0].int().tolist() == [[1, 1, 1, 0, 1, 0], [1, 1, 1, 0, 1, 1]]


def beginning_of(*prompts: list[int]) -> int:
    return common_beginning(*padded(list(prompts), 0, "left", CPU))


def test_a_beginning_is_read_once_if_that_saves_a_quarter_of_all_tokens() -> None:
    assert beginning_of([1, 2, 3, 4]) == 0, "one prompt is read once anyway"
    assert beginning_of([1, 2, 3, 4], [1, 2, 5, 6]) == 2
    assert beginning_of([1, 2, 3, 4, 5], [1, 2, 5, 6]) == 0, "two of nine"
    assert beginning_of([1, 2, 3], [1, 2], [1, 2, 3]) == 1, "a token of each is left"
    assert beginning_of([2, 3], [1, 2, 3]) == 0
    assert beginning_of([0, 0, 5], [0, 0, 6, 7]) == 2, "a pad token may be a token"
    assert beginning_of([1], [1]) == 0
