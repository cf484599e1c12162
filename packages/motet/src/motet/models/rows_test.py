"""One packed row by hand: two prompts, three completions."""

import torch

from motet.batch import Rows
from motet.models.rows import PackedRow, padded

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
