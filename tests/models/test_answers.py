"""The head of question answering with an MLP of its own: which tokens are the question's."""

import numpy as np
import torch
from transformers.models.big_bird.modeling_big_bird import BigBirdForQuestionAnswering

from bert_jax.models.heads import question_mask


def test_the_question_mask_equals_the_mask_of_transformers() -> None:
    """Its length is counted there as in the class; a text without a separator has none."""
    ids = np.array([[1, 7, 3, 8, 3], [3, 7, 7, 7, 7], [1, 7, 7, 7, 7], [1, 7, 7, 7, 3]])
    lengths = torch.argmax(torch.tensor(ids).eq(3).int(), dim=-1, keepdim=True) + 1
    expected = BigBirdForQuestionAnswering.prepare_question_mask(lengths, ids.shape[1])
    expected[:, 0] = False
    np.testing.assert_array_equal(question_mask(ids, 3), expected.numpy())
